#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What verbenad says to a command line or configuration that can't work, and --check."""
import ctypes
import glob
import os
import re
import socket
import sqlite3
import subprocess

import daemon
import peers

PR_CAPBSET_DROP, CAP_SETUID = 24, 7 # linux/prctl.h, linux/capability.h


class CommandLine(daemon.DaemonTest):
    def refuses(self, *arguments, saying, status=2):
        done = self.run_binary(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(saying, done.stderr)
        self.assertNotIn("terminate called", done.stderr)

    def test_help_names_every_option(self):
        done = self.run_binary("nfs", "--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--export", "--listen", "--metrics", "--state", "--shards", "--policy", "--rpcbind",
                       "--allow-public", "--log-level"):
            self.assertIn(option, done.stdout)
        self.assertEqual(self.run_binary("--version").stdout.split()[0], "verbenad")

    def test_block_devices_listen_by_rdma_alone(self):
        self.assertIn("tcp://", self.run_binary("nfs", "--help").stdout)
        self.assertNotIn("tcp://", self.run_binary("block", "--help").stdout)
        self.refuses("block", "--device", "d=1M", "--listen", "tcp://127.0.0.1:0", saying="write iwarp:// or rdma://")
        self.refuses("block", "--device", "d=1M", "--listen", "127.0.0.1", saying="must be a URL, as in iwarp://127.0.0.1:1234")

    def test_output_that_is_lost(self):
        path = self.folder + "/verbenad.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[[nfs.export]]\ndirectory = "{self.data}"\n')
        for arguments in (("--version",), ("nfs", "--help"), ("serve", "--check", path)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([daemon.BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=daemon.START_LIMIT, check=False)
            self.assertEqual(done.returncode, 1, (arguments, done.stderr))
            self.assertIn("the standard output did not take all that was printed", done.stderr)

    def test_a_quiet_check_tells_faults_alone(self):
        path = self.folder + "/verbenad.toml"
        for text, status in (("", 0), ("reed_only = true\n", 2)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'[[nfs.export]]\ndirectory = "{self.data}"\n{text}')
            done = self.run_binary("serve", "--check", "--quiet", path)
            self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
            self.assertEqual("reed_only" in done.stderr, status != 0, done.stderr)
            self.assertEqual(bool(done.stderr), status != 0, done.stderr)
        self.refuses("serve", "--quiet", path, saying="--quiet requires --check")

    def test_every_option_is_documented(self):
        with open(os.path.join(daemon.SOURCES, "docs/reference/cli.md"), encoding="utf-8") as file:
            section = file.read().split("\n## verbenad\n")[1]
        for command in ("nfs", "serve"):
            options = set(re.findall(r"^ *(?:-\w,)?(--[\w-]+)", self.run_binary(command, "--help").stdout, re.M)) - {"--help"}
            self.assertGreaterEqual(len(options), 2)
            for option in options:
                self.assertRegex(section, rf"(?m)^\|[^|\n]*`{option}\b")
        self.assertIn("?device=", self.run_binary("nfs", "--help").stdout)
        self.assertIn("?device=", section)

    def test_one_shard_is_not_many(self):
        d = self.run_daemon(*self.serve_with_state(self.folder + "/state"), "--shards", "1", exactly=True)
        self.assertIn(": 1 shard, policy", d.lines[0])

    def test_bad_command_lines(self):
        self.refuses(saying="subcommand")
        self.refuses("nfs", saying="--export")
        self.refuses("nfs", "--export", "/a", "--exprt", "/b", saying="--exprt")
        self.refuses("nfs", "--export", "/a,rw,raed=1", saying="unknown option raed")
        self.refuses("nfs", "--export", "/a", "--export", "/b", saying="write /b:/b")
        self.refuses("nfs", "--export", "/a", "--listen", "tpc://127.0.0.1:1", saying="did you mean tcp?")
        self.refuses("nfs", "--export", "/a,handles=paht", saying="did you mean path?")
        self.refuses("nfs", "--export", "/a", "--policy", "lazy", saying="busy, adaptive or event")
        self.refuses("nfs", "--export", "/a", "--id-domain", "a b", saying="id_domain: a b is no domain")
        self.refuses("nfs", "--export", "/a", "--shards", "0", saying="--shards 0: must be a number from 1 to 256")
        self.refuses("nfs", "--export", "/a", "--shards", "many", saying="--shards many: must be a number from 1 to 256")
        self.refuses("nfs", "--export", "/a", "/b", saying="/b")
        self.refuses("nfs", "--export", "/a:/m,backend=memfs", saying="the back end memfs takes nothing in front of the pseudo-path")
        self.refuses("bogus", saying="no command bogus; known: block nfs serve")
        self.refuses("nfs", "--export", "/a", "--polcy", "event", saying="no option --polcy; did you mean --policy?")
        self.refuses("nfs", "--export", "/a", "--metrics", "nonsense", saying="must be a numeric address")
        self.refuses("nfs", "--export", "/a", "--metrics", "::1:9464", saying="must be a numeric address with a port, as in 127.0.0.1:9464 or [::1]:9464")
        self.refuses("nfs", "--export", "/a,clients=10.0.0.0/40", saying="export of /a: clients=10.0.0.0/40: ")
        self.refuses("nfs", "--export", self.data, "--state", self.folder + "/state", "--listen",
                     "tcp://no-such-host.invalid:1", "--metrics", "off", saying="an address or a name of this host", status=1)
        self.refuses("serve", "/no/such/file.toml", saying="/no/such/file.toml")
        self.refuses("serve", "/tmp", saying="/tmp: is a directory: name the configuration file in it")
        self.refuses("serve", "/tmp", "--shards", "3", saying="no option --shards of serve, only of block, nfs; known: --help "
                                                              "--check --quiet --log-level; all else stands in the file\n")
        self.refuses("nfs", "--export", "/a", "--zzzzzzzz", "1", saying="no option --zzzzzzzz; known: --help --listen ")

    def serve_with_state(self, state, options=""):
        """The arguments of a daemon with that state directory."""
        return ("nfs", "--export", self.data + options, "--state", state, "--listen", "tcp://127.0.0.1:0", "--metrics",
                "off", "--rpcbind", "no")

    def test_the_state_directory_is_ours_alone(self):
        shared = os.path.join(self.folder, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o1777)
        self.refuses(*self.serve_with_state(shared), saying="others may write there")
        self.assertEqual((os.stat(shared).st_mode & 0o7777, os.listdir(shared)), (0o1777, []))
        made = os.path.join(self.folder, "one", "two", "state")
        self.run_daemon(*self.serve_with_state(made)).stop()
        for level in (made, os.path.dirname(made), os.path.dirname(os.path.dirname(made))):
            self.assertEqual(os.stat(level).st_mode & 0o777, 0o700, level)
        os.chmod(made, 0o755)  # a mode that the owner chose stays
        self.run_daemon(*self.serve_with_state(made)).stop()
        self.assertEqual(os.stat(made).st_mode & 0o777, 0o755)

    def test_state_is_not_kept_where_clients_may_read_it(self):
        inside = os.path.join(self.data, "state")
        self.refuses(*self.serve_with_state(inside, ",root_squash=no"), saying="lies beneath the export /export")
        os.symlink(self.data, os.path.join(self.folder, "other-name"))
        self.refuses(*self.serve_with_state(os.path.join(self.folder, "other-name", "state"), ",root_squash=no"),
                     saying="outside of it with --state DIR")

    def test_the_list_of_clients_that_may_reclaim(self):
        state = os.path.join(self.folder, "state")
        path = os.path.join(state, "nfs-recovery.sqlite")
        arguments = self.serve_with_state(state)
        said = "version 4: clients take back after a restart what they had open; the list is " + path

        def says(*more):
            d = self.run_daemon(*arguments, *more)
            line = next(line for line in d.lines if line.startswith("version 4: "))
            d.stop()
            return line

        def change(statement):
            with sqlite3.connect(path) as database:
                database.execute(statement)
            database.close()

        self.assertEqual(says(), said)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        change("INSERT INTO clients (owner) VALUES (X'61'), (X'62')")
        self.assertEqual(says("--lease", "20"), said + "; 2 clients may now, for 90 s at most, and others wait")
        # That grace period did not end. One that is not wanted ends at once.
        self.assertIn("clients can't take back", says("--grace", "0"))
        self.assertEqual(says(), said)
        first = self.run_daemon(*arguments)
        self.refuses(*arguments, saying=f"{path}: another process has it open, PID {first.process.pid} (verbenad); end that one, or give each verbenad a folder of its own",
                     status=1)
        first.stop()
        change("PRAGMA user_version=7")
        self.refuses(*arguments, saying=f"{path}: it has schema 7, and this verbenad knows 2; start the verbenad that wrote it")
        os.truncate(path, 5000)
        self.refuses(*arguments, saying=path)
        with open(path, "w", encoding="utf-8") as file:
            file.write("no database" * 1000)
        self.refuses(*arguments, saying=f"{path}: it is damaged or no database")
        self.run_daemon(*self.serve_with_state(state), "--versions", "3").stop() # version 3 alone has no use for it
        os.rename(path, path + ".old")
        self.assertEqual(says(), said)

    def test_roots_rights_are_lent_to_nobody_unasked(self):
        def without(capabilities, *more):
            return subprocess.run(["setpriv", f"--bounding-set={capabilities}", daemon.BINARY, *self.serve_with_state(*more)],
                                  capture_output=True, text=True, timeout=daemon.START_LIMIT, check=False)
        state = os.path.join(self.folder, "state")
        for missing in ("-setuid", "-setgid", "-setuid,-setgid"):
            for squash in ("", ",root_squash=no", ",all_squash", ",all_squash,anonuid=0"):
                done = without(missing, state, squash)
                self.assertEqual(done.returncode, 2, done)
                self.assertRegex(done.stderr, "CAP_SETUID and CAP_SETGID(.|\n)*all_squash,anonuid=0,anongid=0")
        drop = ctypes.CDLL(None).prctl
        started = self.run_daemon(*self.serve_with_state(state, ",all_squash,anonuid=0,anongid=0"),
                                  before_start=lambda: drop(PR_CAPBSET_DROP, CAP_SETUID, 0, 0, 0))
        text = "\n".join(started.lines)
        self.assertIn("(rw,all_squash,sync)", text)
        self.assertIn("everything runs as the daemon's user 0", text)
        # Who has asked for it is told of what else is missing.
        done = without("-setuid,-setgid,-dac_read_search", state, ",all_squash,anonuid=0,anongid=0,handles=kernel")
        self.assertIn("CAP_DAC_READ_SEARCH: Operation not permitted; leave out handles=kernel", done.stderr)
        # The state's folder is theirs then.
        done = without("-setuid", os.path.join(self.data, "state"), ",all_squash,anonuid=0,anongid=0")
        self.assertIn("lies beneath the export", done.stderr)

    def test_an_export_that_nobody_can_reach_is_named(self):
        d = self.run_daemon(*self.serve_with_state(self.folder + "/state", ",transport=iwarp"))
        self.assertTrue([line for line in d.lines if "nobody can reach it" in line], d.lines)

    def test_an_export_that_is_not_there(self):
        self.refuses("nfs", "--export", self.folder + "/nothing", "--state", self.folder + "/state",
                     "--listen", "tcp://127.0.0.1:0", "--metrics", "off", status=1,
                     saying=self.folder + "/nothing: the exported directory: No such file or directory; make it, or correct its name")

    def test_handles_have_no_part_in_what_else_an_export_fails_of(self):
        os.symlink("round", os.path.join(self.folder, "round"))
        done = self.run_binary("nfs", "--export", self.folder + "/round,handles=kernel", "--state", self.folder + "/state",
                               "--listen", "tcp://127.0.0.1:0", "--metrics", "off")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("Too many levels of symbolic links", done.stderr)
        self.assertNotIn("handles=kernel", done.stderr)

    def test_an_export_that_is_a_file(self):
        self.refuses("nfs", "--export", __file__, "--state", self.folder + "/state", "--listen", "tcp://127.0.0.1:0",
                     "--metrics", "off", saying="Not a directory; an export is a directory: name the one that holds it")

    def test_public_addresses_are_served_when_insisted(self):
        for clients, saying in (("1.2.3.4", "has clients= with globally routable addresses"),
                                ("*", "would be open to the Internet")):
            # Before anything is bound: no such address is ours.
            self.refuses("nfs", "--export", f"{self.data},clients={clients}", "--state", self.folder + "/state", "--listen",
                         "tcp://8.8.8.8:2049", "--metrics", "off", saying=saying)

    def test_errors_of_a_file_tell_the_line(self):
        path = os.path.join(self.folder, "here.toml")
        for text, saying, status in ((f'[nfs]\nlisten = ["tcp://192.0.2.77:1"]\n[[nfs.export]]\ndirectory = "{self.data}"\n',
                                      f"{path}:2:11: listen tcp://192.0.2.77:1: ", 1),
                                     (f'[nfs]\n[[nfs.export]]\ndirectory = "{__file__}"\n', f"{path}:2:1: export /export: ", 2)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + f'[daemon]\nstate = "{self.folder}/state"\n[metrics]\nlisten = "off"\n')
            self.refuses("serve", path, saying=saying, status=status)

    def test_near_misses_have_their_own_cure(self):
        more = ("--state", self.folder + "/state", "--metrics", "off")
        self.refuses("nfs", "--export", f"{self.data}:data", *more, saying="a pseudo-path behind the : begins with /",
                     status=1)
        self.refuses("nfs", "--export", self.data, "--listen", "tcp://127.0.0.1:2049/data", *more,
                     saying="nothing may follow the address and port")
        path = os.path.join(self.folder, "silent.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[nfs]\nlisten = []\n[[nfs.export]]\ndirectory = "{self.data}"\n')
        self.refuses("serve", "--check", path, saying=f"{path}:2:10: listen is empty: name an address")

    def test_unknown_keys_are_named_with_their_place(self):
        path = os.path.join(self.folder, "bad.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[[nfs.export]]\ndirectory = "/a"\nreed_only = true\n')
        self.refuses("serve", path, "--check", saying=f"{path}:3:1: unknown key nfs.export.reed_only; "
                                                      "did you mean read_only?")

    def test_check_reads_clients(self):
        path = os.path.join(self.folder, "clients.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[[nfs.export]]\ndirectory = "/a"\nclients = ["10.0.0.0/40"]\n')
        self.refuses("serve", path, "--check", saying="export of /a: clients=10.0.0.0/40: ")

    def test_check_prints_a_config_that_reads_back(self):
        examples = glob.glob(os.path.join(daemon.SOURCES, "services/examples/*.toml"))
        self.assertGreaterEqual(len(examples), 3)
        for example in examples:
            with self.subTest(example):
                first = self.run_binary("serve", "--check", example)
                self.assertEqual(first.returncode, 0, first.stderr)
                path = os.path.join(self.folder, "again.toml")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(first.stdout)
                self.assertEqual(self.run_binary("serve", "--check", path).stdout, first.stdout)

    def lines_of(self, *listen, exports, versions=("3",)):
        d = self.run_daemon("nfs", *(word for v in versions for word in ("--versions", v)), *(word for e in exports for word in ("--export", e)), "--state",
                            self.folder + "/state", *(word for url in listen for word in ("--listen", url)),
                            "--metrics", "off", "--rpcbind", "no")
        ports = {}
        for line in d.lines:
            if line.startswith("listening at "):
                ports[line.split()[-1].rsplit(":", 1)[0]] = line.rsplit(":", 1)[1]
        return ports, [line.strip() for line in d.lines if line.startswith(("  ", "nolock"))]

    def test_mount_lines(self):
        ports, lines = self.lines_of("tcp://[::]:0", "tcp://0.0.0.0:0", "iwarp://0.0.0.0:0", "iwarp://[::]:0",
                                     exports=[":/a b,backend=memfs,transport=iwarp", ":/t,backend=memfs"])
        four, six = ports["tcp://0.0.0.0"], ports["tcp://[::]"]
        rdma = ports["iwarp://0.0.0.0"]
        start, host = "mount -t nfs -o vers=3,", socket.gethostname()
        self.assertIn(f"{start}proto=rdma,port={rdma},mountproto=tcp,mountport={four},nolock '{host}:/a b' /mnt", lines)
        rdma = ports["iwarp://[::]"]
        self.assertIn(f"{start}proto=rdma6,port={rdma},mountproto=tcp6,mountport={six},nolock {host}:/t /mnt", lines)
        self.assertIn(f"{start}proto=tcp6,port={six},mountport={six},nolock {host}:/t /mnt", lines)
        self.assertIn(f"{start}proto=tcp,port={four},mountport={four},nolock {host}:/t /mnt", lines)
        self.assertFalse([line for line in lines if "/a b" in line and "rdma" not in line])
        why = "nolock, as there is no lock manager yet: locks of files hold among the processes of one client only"
        self.assertEqual(lines.count(why), 1)

    def test_mount_lines_are_of_the_highest_version(self):
        ports, lines = self.lines_of("tcp://0.0.0.0:0", exports=[":/t,backend=memfs"], versions=("3", "4.1"))
        self.assertIn(f"mount -t nfs -o vers=4.1,proto=tcp,port={ports['tcp://0.0.0.0']} {socket.gethostname()}:/t /mnt", lines)

    def test_mount_lines_of_version_4(self):
        ports, lines = self.lines_of("tcp://0.0.0.0:0", "iwarp://[::]:0", "iwarp://127.0.0.1:0", exports=[":/t,backend=memfs"],
                                     versions=()) # which is the default
        host = socket.gethostname()
        self.assertIn(f"mount -t nfs -o vers=4.2,proto=tcp,port={ports['tcp://0.0.0.0']} {host}:/t /mnt", lines)
        self.assertIn(f"mount -t nfs -o vers=4.2,proto=rdma6,port={ports['iwarp://[::]']} {host}:/t /mnt", lines)
        self.assertFalse([line for line in lines if "nolock" in line], lines)
        self.assertTrue([line for line in lines if "for other hosts add --listen iwarp://*:20049, and clients=" in line], lines)

    def test_names_that_a_terminal_would_obey(self):
        folder = os.path.join(self.data, "\x1b[2J")
        os.mkdir(folder)
        pseudo = b"/\x9b1m'\x07"
        started = self.run_daemon("nfs", "--versions", "3", "--export", os.fsencode(folder) + b":" + pseudo, "--state",
                                  os.path.join(self.folder, "state\x1b"), "--listen", "tcp://127.0.0.1:0", "--metrics", "off",
                                  "--rpcbind", "no", "--shards", "1")
        for line in started.lines:
            self.assertTrue(line.isprintable(), line)
        line = next(line for line in started.lines if line.strip().startswith("mount "))
        word = line.strip().removesuffix(" /mnt").split("nolock ")[1]
        self.assertEqual(subprocess.run(["bash", "-c", "printf %s " + word], capture_output=True, check=True).stdout,
                         b"127.0.0.1:" + pseudo)
        failed = subprocess.run([daemon.BINARY, "nfs", "--export", b"/none\x1b:/x"], capture_output=True, check=False)
        self.assertNotIn(b"\x1b", failed.stderr)

    def test_mount_lines_of_loopback(self):
        ports, lines = self.lines_of("tcp://[::1]:0", "tcp://127.0.0.1:0", "iwarp://127.0.0.1:0", "iwarp://[::1]:0",
                                     exports=[":/a b,backend=memfs,transport=iwarp", ":/t,backend=memfs"])
        four, six = ports["tcp://127.0.0.1"], ports["tcp://[::1]"]
        start = "mount -t nfs -o vers=3,"
        self.assertIn(f"{start}proto=tcp6,port={six},mountport={six},nolock [::1]:/t /mnt", lines)
        self.assertIn(f"{start}proto=tcp,port={four},mountport={four},nolock 127.0.0.1:/t /mnt", lines)
        # Software RDMA devices don't connect over it; our own client does.
        self.assertFalse([line for line in lines if "proto=rdma" in line], lines)
        self.assertTrue([line for line in lines if f"mount /t by TCP, or use nfs+iwarp://[::1]:{ports['iwarp://[::1]']}; for other "
                         "hosts add --listen iwarp://*:20049, --listen tcp://*:2049, and clients=" in line], lines)
        _, lines = self.lines_of("tcp://127.0.0.1:0", "iwarp://0.0.0.0:0", exports=[":/t,backend=memfs"])
        self.assertTrue([line for line in lines if "; for other hosts add --listen tcp://*:2049, and clients=" in line], lines)

    def test_mount_lines_without_tcp(self):
        _, lines = self.lines_of("iwarp://127.0.0.1:0", exports=[":/t,backend=memfs"])
        self.assertFalse([line for line in lines if line.startswith(("mount ", "nolock"))])
        self.assertTrue([line for line in lines if "add --listen tcp://127.0.0.1:2049" in line], lines)
        _, lines = self.lines_of("iwarp://127.0.0.1:0", exports=[":/t,backend=memfs"], versions=("4.2",))
        wanted = "here mount /t by TCP (add --listen tcp://127.0.0.1:2049), or use nfs+iwarp://127.0.0.1:"
        self.assertTrue([line for line in lines if wanted in line], lines)

    def test_clients_that_cannot_come_are_told_of(self):
        _, lines = self.lines_of("tcp://127.0.0.1:0", "iwarp://127.0.0.1:0",
                                 exports=[":/t,backend=memfs,clients=198.51.100.0/24", ":/b,backend=memfs,clients=127.0.0.1"])
        self.assertIn("warning: nobody of clients=198.51.100.0/24 can reach it while its listeners are on loopback, where only "
                      "this host comes: add --listen tcp://*:2049", lines)
        self.assertFalse([line for line in lines if "127.0.0.1:/t" in line], lines)
        self.assertEqual(len([line for line in lines if line.endswith("127.0.0.1:/b /mnt")]), 1, lines)

    def test_a_client_that_may_come_by_another_loopback_address(self):
        ports, lines = self.lines_of("tcp://127.0.0.1:0",
                                     exports=[":/t,backend=memfs,clients=198.51.100.0/24,clients=127.0.0.2"])
        self.assertIn("warning: only programs of this host that bind an address of clients=198.51.100.0/24 127.0.0.2/32 can "
                      "reach it while its listeners are on loopback: add --listen tcp://*:2049", lines)
        self.assertFalse([line for line in lines if line.startswith("mount ")], lines)
        # They do reach it.
        for source, status in (("127.0.0.1", 13), ("127.0.0.2", 0)): # MNT3ERR_ACCES
            peer = peers.TcpPeer(int(ports["tcp://127.0.0.1"]), source=source)
            self.addCleanup(peer.close)
            answer = peer.call(1, peers.opaque(b"/t"), program=peers.MOUNT)
            self.assertEqual(int.from_bytes(answer.results[:4], "big"), status)

    def test_only_the_listener_that_clients_reach_has_a_mount_line(self):
        ports, lines = self.lines_of("tcp://127.0.0.1:0", "tcp://0.0.0.0:0",
                                     exports=[":/t,backend=memfs,clients=198.51.100.0/24"])
        mounts = [line for line in lines if line.startswith("mount ")]
        self.assertEqual(len(mounts), 1, lines)
        self.assertIn(f"proto=tcp,port={ports['tcp://0.0.0.0']},", mounts[0])
        self.assertFalse([line for line in lines if line.startswith("warning")], lines)
        self.assertTrue([line for line in lines if "nobody can mount /t here" in line and "or clients=127.0.0.1" in line],
                        lines)

    def test_clients_of_the_other_family_have_no_mount_line(self):
        ports, lines = self.lines_of("tcp://0.0.0.0:0", "tcp://[::]:0", exports=[":/t,backend=memfs,clients=198.51.100.0/24"])
        mounts = [line for line in lines if line.startswith("mount ")]
        self.assertEqual([f",port={ports['tcp://0.0.0.0']}," in line for line in mounts], [True], lines)
        self.assertIn("nobody can mount /t here, since clients= holds no IPv6 address", lines)
        self.assertFalse([line for line in lines if line.startswith("warning")], lines)

    def test_no_listener_of_the_family_of_clients(self):
        _, lines = self.lines_of("tcp://0.0.0.0:0", exports=[":/t,backend=memfs,clients=fd00::/8"])
        self.assertFalse([line for line in lines if line.startswith("mount ")])
        self.assertTrue([line for line in lines if line.startswith("warning: nobody of clients=fd00::/8") and
                         "IPv4 addresses only" in line], lines)

    def test_secure_leaves_no_mount_line_by_rdma(self):
        _, lines = self.lines_of("tcp://127.0.0.1:0", "iwarp://127.0.0.1:0", exports=[":/t,backend=memfs,secure"])
        self.assertEqual([",proto=tcp," in line for line in lines if line.startswith("mount ")], [True], lines)
        self.assertTrue([line for line in lines if "RDMA clients can't mount /t here, since secure" in line and
                         "leave out secure" in line], lines)

    def test_secure_with_rdma_alone_is_for_nobody(self):
        _, lines = self.lines_of("iwarp://127.0.0.1:0", exports=[":/t,backend=memfs,secure"])
        self.assertFalse([line for line in lines if line.startswith("mount ")])
        self.assertTrue([line for line in lines if line.startswith("warning: nobody can reach it: secure")], lines)


if __name__ == "__main__":
    daemon.main()
