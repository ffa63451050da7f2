#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena admin reload` and `check`, and SIGHUP: exports come, change and go while others are served."""
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import time

import daemon
import hung_disk
import peers
from leases_test import OK, READ, READ_ACCESS, Holder
from peers import TcpPeer

LARGE = 64 << 20
STALE = 70


class Reload(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        self.config = os.path.join(self.folder, "config.toml")
        for name in ("a", "b", "c"):
            os.mkdir(self.tree(name))
            os.chmod(self.tree(name), 0o777)
            with open(os.path.join(self.tree(name), "large"), "wb") as file:
                file.truncate(LARGE)

    def tree(self, name):
        return os.path.join(self.folder, name)

    def write(self, *exports, more="", nfs="", daemon_table=""):
        """Each export is a name, or a name and its settings."""
        text = f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(2)}
{daemon_table}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
{nfs}
"""
        for each in exports:
            name, settings = each if isinstance(each, tuple) else (each, "")
            text += f'[[nfs.export]]\ndirectory = "{self.tree(name)}"\npseudo = "/{name}"\n{settings}\n'
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text + more)

    def serve(self, **options):
        return self.run_daemon("serve", self.config, **options)

    def admin(self, *words, status=0):
        done = subprocess.run([self.client, "admin", "--socket", os.path.join(self.folder, "state", "control"), *words],
                              capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done.stderr if status else done.stdout

    def rows(self, *words):
        return json.loads(self.admin("--json", *words))["rows"]

    def changes(self, *words):
        return {row["what"]: (row["change"], row["needs_restart"]) for row in self.rows(*words)}

    def exported(self):
        return sorted(row["path"] for row in self.rows("exports") if row["state"] != "closing")

    def reader(self, d, name, version):
        """A client that has read the first byte of a large file, and waits for somebody to take the rest."""
        process = subprocess.Popen([self.client, "-q", "cat", "--layout", "no",
                                    f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/{name}/large?vers={version}"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) # pylint: disable=consider-using-with
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.read(1), b"\0")
        return process

    def end(self, process):
        process.kill()
        process.communicate()

    def rest(self, process):
        """What is left of it, and what it complained of."""
        out, complaint = process.communicate(timeout=120 * daemon.SLOW)
        return process.returncode, len(out) + 1, complaint.decode()

    def mounted(self, d, name):
        caller = TcpPeer(d.port("tcp"))
        self.addCleanup(caller.close)
        return caller, caller.mount(f"/{name}")

    def getattr(self, caller, root):
        return caller.nfs(1, peers.opaque(root)).nfs_status()

    def what_comes_and_goes(self, d, reload):
        stays, goes = self.reader(d, "a", "4.2"), self.reader(d, "b", "4.2")
        here, gone = self.mounted(d, "a"), self.mounted(d, "b")
        self.write("a", ("c", 'clients = ["127.0.0.0/8"]'))
        reload()
        self.assertEqual(self.exported(), ["/a", "/c"])
        d.log_with(r"an export is closed .*export=/b .*opens=[1-9]")
        self.assertEqual(self.getattr(*here), 0)
        self.assertEqual(self.getattr(*gone), STALE)
        self.assertEqual(self.getattr(*self.mounted(d, "c")), 0)
        self.assertEqual(self.rest(stays)[:2], (0, LARGE))
        status, size, complaint = self.rest(goes)
        self.assertNotEqual(status, 0)
        self.assertLess(size, LARGE)
        self.assertRegex(complaint, "(?i)stale")
        self.assertFalse([line for line in self.descriptors(d) if line.startswith(self.tree("b"))])
        self.assertTrue([line for line in self.descriptors(d) if line.startswith(self.tree("a"))])

    def descriptors(self, d):
        folder = f"/proc/{d.process.pid}/fd"
        found = []
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                pass
        return found

    def test_exports_come_and_go_while_others_are_served(self):
        self.write("a", "b")
        d = self.serve()
        def reload():
            told = self.changes("reload")
            self.assertEqual(told["export /b"], ("removed", False))
            self.assertRegex(told["export /c"][0], "^added: " + self.tree("c") + ", rw,.*, for 127.0.0.0/8$")
            self.assertNotIn("export /a", told)
        self.what_comes_and_goes(d, reload)
        # What was removed comes back, and is another one.
        self.write("a", "b", "c")
        self.assertEqual(self.changes("reload")["export /b"][1], False)
        caller, root = self.mounted(d, "b")
        self.assertEqual(self.getattr(caller, root), 0)
        self.assertEqual(self.changes("reload"), {})

    def test_a_signal_does_the_same(self):
        self.write("a", "b")
        d = self.serve()
        def reload():
            d.process.send_signal(signal.SIGHUP)
            d.log_with("the configuration was reloaded")
        self.what_comes_and_goes(d, reload)

    def test_what_changes_of_an_export_its_clients_see_at_once(self):
        self.write("a", "b")
        d = self.serve()
        caller, root = self.mounted(d, "a")
        create = peers.opaque(root) + peers.opaque(b"made") + bytes(8 * 4)
        self.assertEqual(caller.nfs(8, create).nfs_status(), 0)
        self.write(("a", 'read_only = true\nclients = ["127.0.0.0/8", "192.0.2.0/24"]'), "b")
        told = self.changes("reload")
        self.assertEqual(told, {"export /a": ("clients: 127.0.0.0/8 192.0.2.0/24, was this host only; read_only: true, was false", False)})
        self.assertEqual(caller.nfs(8, create).nfs_status(), 30)
        self.assertEqual(self.getattr(caller, root), 0)
        self.write(("a", 'clients = ["192.0.2.0/24"]'), "b")
        self.changes("reload")
        self.assertEqual(self.getattr(caller, root), 13)
        self.write("a", "b")
        self.changes("reload")
        self.assertEqual(self.getattr(caller, root), 0)
        remove = peers.opaque(root) + peers.opaque(b"made")
        self.assertEqual(caller.nfs(12, remove).nfs_status(), 0)

    def test_room_is_told_of_what_can_be_written_now(self):
        self.write(("a", "read_only = true"), "b")
        d = self.serve()
        room = 'verbena_export_available_bytes{export="/a"}'
        self.assertIsNone(d.metric(room))
        for settings, is_told in (("", True), ("read_only = true", False), ("", True)):
            self.write(("a", settings), "b")
            self.changes("reload")
            end = time.monotonic() + peers.LIMIT # the first time that it is asked for is soon after the start
            while (d.metric(room) is not None) != is_told:
                self.assertLess(time.monotonic(), end, d.scrape())
                time.sleep(0.05)

    def test_what_needs_a_restart_is_said_and_stays(self):
        self.write("a", "b")
        d = self.serve()
        caller, root = self.mounted(d, "b")
        self.write("a", nfs="lease = 30", daemon_table='log_level = "debug"\ndrain_seconds = 3\nmemory_mib = 1024',
                   more=f'[[nfs.export]]\ndirectory = "{self.tree("c")}"\npseudo = "/b"\nclients = ["*"]\n')
        told = self.changes("reload")
        self.assertEqual(told["nfs.lease"], ("30, was 90", True))
        self.assertEqual(told["daemon.memory_mib"], ("1024, was 512", True))
        self.assertEqual(told["daemon.log_level"], ("debug, was info", False))
        self.assertEqual(told["daemon.drain_seconds"], ("3, was 10", False))
        self.assertEqual(told["export /b"], (f"directory: {self.tree('c')}, was {self.tree('b')}", True))
        self.assertEqual(self.rows("loglevel"), [{"log_level": "debug"}])
        self.assertEqual({row["path"]: row["clients"] for row in self.rows("exports")}["/b"], "this host only")
        self.assertEqual(self.getattr(caller, root), 0)
        self.assertEqual(set(self.changes("reload")), {"nfs.lease", "daemon.memory_mib", "daemon.peer_memory_mib", "export /b"})

    def test_a_mistake_changes_nothing(self):
        self.write("a", "b")
        d = self.serve()
        reader = self.reader(d, "b", "4.2")
        mistakes = {
            "typo": dict(nfs="leas = 3"),
            "folder": dict(more='[[nfs.export]]\ndirectory = "/nonexistent/folder"\npseudo = "/d"\n'),
            "twice": dict(more=f'[[nfs.export]]\ndirectory = "{self.tree("c")}"\npseudo = "/a"\n'),
            "range": dict(more="[nfs.limits]\nopens = 5\n"),
            "syntax": dict(more="[nfs.limits\n"),
            "module": dict(more='[[nfs.export]]\nbackend = "memfs"\npseudo = "/d"\n'),
        }
        says = {"typo": r"config.toml:\d+:\d+: .*leas.*lease", "folder": r"config.toml:\d+:\d+: .*/nonexistent/folder.*make it",
                "twice": r"config.toml:\d+:\d+: .*/a is taken", "range": r"config.toml:\d+:\d+: nfs.limits.opens must be a number from 100",
                "syntax": r"config.toml:\d+:\d+: ", "module": r"config.toml:\d+:\d+: .*memfs was not in use.*restart"}
        for number, (name, how) in enumerate(mistakes.items()):
            with self.subTest(name):
                self.write("a", ("c", ""), **how) # b would go
                for command in ("check", "reload"):
                    self.assertRegex(self.admin(command, status=1), says[name])
                self.assertEqual(self.exported(), ["/a", "/b"])
                log = d.log_with(rf"(?s)({'not reloaded.*' * (number + 1)})")
                self.assertRegex(log, says[name])
                self.assertEqual(d.metric("verbena_config_last_reload_successful"), 0)
        self.assertEqual(self.rest(reader)[:2], (0, LARGE))
        self.write("a")
        before = d.metric("verbena_config_last_reload_success_timestamp_seconds")
        self.changes("reload")
        self.assertEqual(d.metric("verbena_config_last_reload_successful"), 1)
        self.assertGreater(d.metric("verbena_config_last_reload_success_timestamp_seconds"), before)

    def test_without_descriptors_nothing_changes(self):
        self.write("a", "b")
        d = self.serve()
        caller, root = self.mounted(d, "b")
        _, hard = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)
        self.write("a", "c")
        # The file can be read, and no back end be opened.
        taken = {int(name) for name in os.listdir(f"/proc/{d.process.pid}/fd")}
        free = [number for number in range(len(taken) + 2) if number not in taken][0]
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (free + 1, hard))
        d.process.send_signal(signal.SIGHUP)
        d.log_with("not reloaded.*Too many open files|not reloaded.*can't be opened")
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        self.assertEqual(self.exported(), ["/a", "/b"])
        self.assertEqual(self.getattr(caller, root), 0)
        self.assertEqual(self.changes("reload")["export /b"], ("removed", False))

    def test_a_look_changes_nothing_and_sees_ports_and_folders(self):
        self.write("a", "b")
        d = self.serve()
        caller, root = self.mounted(d, "b")
        self.write("a", "c")
        other = os.path.join(self.folder, "other.toml")
        os.rename(self.config, other)
        self.write("a", "b")
        self.assertEqual(self.changes("check"), {})
        told = self.changes("check", other)
        self.assertEqual((told["export /b"], told["export /c"][1]), (("removed", False), False))
        self.assertEqual(self.exported(), ["/a", "/b"])
        self.assertEqual(self.getattr(caller, root), 0)
        self.assertIn("write the whole path", self.admin("check", "other.toml", status=1))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with open(other, encoding="utf-8") as file:
                text = file.read()
            with open(other, "w", encoding="utf-8") as file:
                file.write(text.replace('"tcp://127.0.0.1:0"', f'"tcp://127.0.0.1:{taken.getsockname()[1]}"'))
            self.assertRegex(self.admin("check", other, status=1), r"other.toml:\d+:\d+: .*can't listen there")
        self.assertEqual(stat.S_IMODE(os.stat(self.tree("c")).st_mode), 0o777)
        self.assertEqual(sorted(os.listdir(self.tree("c"))), ["large"])

    def test_a_look_tells_a_state_folder_that_a_start_could_not_use(self):
        self.write("a")
        self.serve()
        state = os.path.join(self.folder, "read-only")
        os.mkdir(state)
        other = os.path.join(self.folder, "other.toml")
        with open(self.config, encoding="utf-8") as file:
            text = file.read()
        with open(other, "w", encoding="utf-8") as file:
            file.write(text.replace(f'"{self.folder}/state"', f'"{state}"'))
        self.assertIn("daemon.state", self.changes("check", other))
        self.assertEqual(hung_disk.LIBC.mount(b"none", state.encode(), b"tmpfs", 1, b"mode=700"), 0) # MS_RDONLY
        self.addCleanup(hung_disk.LIBC.umount2, state.encode(), 2) # MNT_DETACH
        self.assertRegex(self.admin("check", other, status=1), rf"other.toml:\d+:\d+: state {state}: is on a file system that is "
                         r"read-only here.*mount it to be written \(mount -o remount,rw\), name it in ReadWritePaths=")
        hung_disk.LIBC.umount2(state.encode(), 2)
        os.chmod(state, 0o777)
        self.assertIn("others may write there", self.admin("check", other, status=1))

    def test_a_client_that_is_kept_out_has_no_delegation_that_others_wait_for(self):
        self.write("a", "b")
        d = self.serve()
        clients = {}
        for name in (b"a", b"b"):
            clients[name] = Holder(d.port("tcp"), name)
            self.addCleanup(clients[name].peer.close)
            clients[name].export = name
            self.assertEqual(clients[name].connect(), OK)
            self.assertEqual(clients[name].open_file(b"large", READ_ACCESS), (OK, READ))
        self.write(("a", 'clients = ["192.0.2.0/24"]'), ("b", 'clients = ["127.0.0.0/8"]'))
        self.changes("reload")
        self.assertEqual(d.metric('verbena_nfs4_delegations{type="read"}'), 1)
        self.assertEqual({(row["client"], row["kind"]) for row in self.rows("opens")}, {("a", "open"), ("b", "open"), ("b", "delegation")})
        self.assertEqual(clients[b"b"].give_back(clients[b"b"].delegation), OK)

    def hung(self):
        """A file system that hangs, where /c would be."""
        disk = hung_disk.HungDisk(self.tree("c"))
        self.addCleanup(disk.close)
        disk.hang()
        return disk

    def test_a_check_of_a_disk_that_hangs_ends_and_leaves_nothing(self):
        self.write("a", "b")
        d = self.serve()
        disk = self.hung()
        self.write("a", "b", "c")
        self.assertEqual(self.changes("check")["export /c"][1], False)
        d.log_with("an export that was opened for nothing can't be closed, as its disk does not answer.*export=/c")
        self.assertEqual(self.exported(), ["/a", "/b"])
        # A reload that fails for another reason.
        self.write("a", "b", "c", more='[[nfs.export]]\ndirectory = "/nonexistent/folder"\npseudo = "/d"\n')
        self.assertIn("/nonexistent/folder", self.admin("reload", status=1))
        self.assertIsNone(d.metric('verbena_export_up{export="/c"}'))
        disk.go_on()
        self.write("a", "c")
        self.assertEqual(self.changes("reload")["export /c"][1], False)
        self.assertEqual(self.getattr(*self.mounted(d, "c")), 0)
        self.assertEqual(d.metric('verbena_export_up{export="/c"}'), 1)

    def test_a_signal_during_a_reload_has_one_more_follow(self):
        self.write("a", "b")
        d = self.serve()
        disk = self.hung()
        self.write("a", "b", "c")
        d.process.send_signal(signal.SIGHUP)
        disk.wait_for(1) # it has read the file
        self.write("a")
        for _ in range(3):
            d.process.send_signal(signal.SIGHUP)
        d.log_with("SIGHUP: a reload is under way, and one more follows")
        disk.go_on()
        d.log_with("(?s)(the configuration was reloaded.*){2}")
        self.assertEqual(self.exported(), ["/a"])
        self.changes("reload")
        self.assertEqual(len(re.findall("the configuration was reloaded", d.log())), 3)

    def test_without_a_file_it_says_so(self):
        self.start()
        self.assertIn("has no file", self.admin("reload", status=1))


if __name__ == "__main__":
    daemon.main()
