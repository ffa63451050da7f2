#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena admin` and a real verbenad: each command for people and for programs, with clients, with a disk that hangs, at the end."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tarfile
import threading
import time

import daemon
import hung_disk
import peers
from peers import TcpPeer, call_message

GETATTR = 1


class Admin(daemon.DaemonTest):
    def admin(self, *words, path=None, status=0):
        """What it prints, or complains of."""
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "admin", "--socket", path or self.path(), *words], capture_output=True, text=True,
                              timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done.stderr if status else done.stdout

    def rows(self, *words, status=0):
        told = json.loads(self.admin("--json", *words, status=status))
        self.assertEqual((told["command"], told["shards_silent"], told["shards_failed"]), (words[0], [], []))
        return told["rows"]

    def unwritten(self, d, kept):
        """Those of `kept` that the log does not have. The daemon keeps a line before it is written, so the last one may be late."""
        return set(kept) - set(d.log_with(re.escape(kept[-1]) + "\n").split("\n"))

    def path(self):
        return os.path.join(self.folder, "state", "control")

    def connect(self):
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.settimeout(60 * daemon.SLOW)
        peer.connect(self.path())
        return peer

    def test_commands_of_an_nfs_server(self):
        d = self.start("--shards", "2", export=":/export,clients=127.0.0.0/8")
        self.assertIn(f"control at {self.path()}", d.lines)
        self.assertEqual(stat.S_IMODE(os.stat(self.path()).st_mode), 0o600)
        caller = TcpPeer(d.port("tcp"))
        caller.mount()
        status, = self.rows("status")
        self.assertEqual((status["program"], status["pid"], status["log_level"]), ("verbenad", d.process.pid, "info"))
        self.assertEqual(status["state"], os.path.join(self.folder, "state"))
        self.assertEqual(status["metrics"], d.metrics_url())
        self.assertEqual(status["serves"], [f"nfs at {kind}://127.0.0.1:{d.port(kind)}" for kind in ("tcp", "iwarp")])
        self.assertGreater(status["memory_used"], 0)
        self.assertRegex(self.admin("status"), rf"(?m)^pid +{d.process.pid}$")
        export, = self.rows("exports")
        self.assertEqual((export["path"], export["source"], export["backend"], export["clients"], export["transports"]),
                         ("/export", self.data, "posixfs", "127.0.0.0/8", []))
        self.assertIn("root_squash", export["options"])
        self.assertRegex(self.admin("exports"), r"^PATH +SOURCE +BACKEND .*\n/export +" + re.escape(self.data) + " +posixfs .*\n$")
        modules = {row["name"]: row for row in self.rows("modules")}
        self.assertEqual((modules["nfs"]["in_use"], modules["nfs"]["from"]), (True, "built in"))
        self.assertFalse(modules["block"]["in_use"])
        self.assertRegex(self.admin("modules"), r"(?m)^nfs +\S+ +\S.* +yes +built in ")
        commands = {row["command"] for row in self.rows("help")}
        self.assertLessEqual({"status", "exports", "modules", "loglevel", "drain", "help"}, commands)
        self.assertNotIn("devices", commands)
        self.assertEqual(self.rows("loglevel"), [{"log_level": "info"}])
        self.assertEqual(self.admin("loglevel", "trace"), "log_level  trace\n")
        self.assertEqual(caller.nfs(0).status, 0)
        d.log_with(r"(?m)^\S+ trace ")
        self.assertIn("no level loud; ", self.admin("loglevel", "loud", status=1))
        kept = [row["line"] for row in self.rows("log")]
        self.assertEqual(self.unwritten(d, kept), set())
        self.assertTrue(any(" trace " in line for line in kept), kept[-3:])
        for _ in range(3):
            self.assertEqual(caller.nfs(0).status, 0)
        d.log_with(r"(?s) trace .*\n\S+ trace .*\n\S+ trace ")
        self.assertEqual(len(self.rows("log", "2")), 2)
        self.assertGreater(len(self.rows("log")), 2)
        for wrong in ("0", "2x", "-1"):
            self.assertIn("is no number of lines", self.admin("log", wrong, status=1))
        self.assertIn("no command statsu; did you mean status?", self.admin("statsu", status=1))
        caller.close()

    def test_clients_and_their_connections(self):
        d = self.start("--shards", "2")
        self.assertEqual((self.rows("connections"), self.rows("clients")), ([], []))
        callers = [TcpPeer(d.port("tcp")) for _ in range(3)]
        for caller in callers:
            caller.mount()
        rows = self.rows("connections")
        self.assertEqual(sorted(row["peer"] for row in rows), sorted("127.0.0.1:%d" % c.socket.getsockname()[1] for c in callers))
        self.assertEqual({(row["protocol"], row["transport"], row["calls"]) for row in rows}, {("nfs", "tcp", 0)})
        self.assertGreater(len({row["shard"] for row in rows}), 1)
        self.assertTrue(all(0 <= row["idle_seconds"] <= row["age_seconds"] for row in rows), rows)
        for caller in callers:
            caller.close()
        # Another one stays as long as nobody takes what it reads.
        with open(os.path.join(self.data, "large"), "wb") as file:
            file.truncate(32 << 20)
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        with subprocess.Popen([client, "-q", "cat", "--layout", "no",
                               f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/export/large?vers=4.2"], stdout=subprocess.PIPE) as reader:
            self.assertEqual(reader.stdout.read(1), b"\0")
            rows = [row for row in self.rows("connections") if row["transport"] == "iwarp"]
            self.assertTrue(rows)
            self.assertRegex(self.admin("connections"), r"(?m)^\d+ +127\.0\.0\.1:\d+ +nfs +iwarp +[01] +\d")
            row, = self.rows("clients")
            self.assertEqual((row["address"], row["confirmed"], row["sessions"], row["lease"], row["in_use"]),
                             ("127.0.0.1", True, 1, "active", True), row)
            self.assertRegex(row["client_id"], "^[0-9a-f]{16}$")
            self.assertIn(row["client_id"], self.admin("clients"))
            reader.stdout.close()
        self.assertEqual(self.rows("clients"), [])

    def test_sessions_of_block_clients(self):
        self.run_daemon("block", "--shards", "2", "--metrics", "off", "--listen", "iwarp://127.0.0.1:0", "--device", "disk=8M",
                        "--control", self.folder + "/control", exactly=True)
        path = self.folder + "/control"
        def rows():
            return json.loads(self.admin("--json", "sessions", path=path))["rows"]
        self.assertEqual(rows(), [])
        status = json.loads(self.admin("--json", "status", path=path))["rows"][0]
        port = status["serves"][0].rsplit(":", 1)[1]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        with subprocess.Popen([client, "-q", "block", "write", "--session", "one\x1b[2J", "--connections", "2",
                               f"rnbd+iwarp://127.0.0.1:{port}/disk"], stdin=subprocess.PIPE) as writer:
            end = time.monotonic() + daemon.START_LIMIT
            while not [row for row in rows() if row["state"] == "connected"]: # until it is there
                self.assertLess(time.monotonic(), end)
                self.assertIsNone(writer.poll())
            row, = rows()
            self.assertEqual((row["session"], row["connections"]), ("one\x1b[2J", 3), row)
            self.assertRegex(row["peer"], r"^127\.0\.0\.1")
            self.assertIn("one\\033[2J", self.admin("sessions", path=path)) # harmless to a terminal
            writer.stdin.close()
        while rows(): # until its end is there
            self.assertLess(time.monotonic(), end)

    def test_a_device_of_another_size(self):
        disk, path = (os.path.join(self.folder, name) for name in ("disk.img", "control"))
        with open(disk, "wb") as file:
            file.truncate(8 << 20)
        self.run_daemon("block", "--shards", "2", "--metrics", "off", "--listen", "iwarp://127.0.0.1:0", "--device",
                        f"disk={disk}", "--device", "memory=1M", "--control", path, exactly=True)

        def resize(*words, status=0):
            told = self.admin(*(() if status else ("--json",)), "resize", *words, path=path, status=status)
            return told if status else json.loads(told)["rows"][0]
        self.assertIn("no device none; there are disk, memory", resize("none", status=1))
        self.assertIn("has the size that its configuration says", resize("memory", status=1))
        os.truncate(disk, (16 << 20) + 100)
        self.assertEqual(resize("disk"), {"device": "disk", "size": 16 << 20, "size_before": 8 << 20, "open_by": 0})
        status = json.loads(self.admin("--json", "status", path=path))["rows"][0]
        url = f"rnbd+iwarp://127.0.0.1:{status['serves'][0].rsplit(':', 1)[1]}/disk"
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        told = subprocess.run([client, "--json", "block", "info", url], capture_output=True, text=True, check=True,
                              timeout=60 * daemon.SLOW)
        self.assertEqual(json.loads(told.stdout)["size"], 16 << 20, told.stdout)
        with subprocess.Popen([client, "-q", "block", "write", url], stdin=subprocess.PIPE) as writer:
            end = time.monotonic() + daemon.START_LIMIT
            os.truncate(disk, 4 << 20)
            while resize("disk", "shrink")["open_by"] == 0: # until it is open
                os.truncate(disk, 16 << 20)
                resize("disk")
                self.assertLess(time.monotonic(), end)
                self.assertIsNone(writer.poll())
                os.truncate(disk, 4 << 20)
            os.truncate(disk, 2 << 20)
            self.assertIn("clients have it open (1): have them close it, or insist with `resize disk shrink`",
                          resize("disk", status=1))
            self.assertEqual(resize("disk", "shrink")["size"], 2 << 20)
            writer.stdin.close()

    def test_one_archive_for_a_report(self):
        state = self.start("--shards", "2")
        caller = TcpPeer(state.port("tcp"))
        self.addCleanup(caller.close)
        caller.mount()
        secret = b"what a file holds"
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(secret)
        made = os.path.join(self.folder, "bundle.tar.gz")
        client = os.path.join(os.path.dirname(os.path.abspath(daemon.BINARY)), "verbena")

        def bundle(file, *more):
            return subprocess.run([client, *more, "admin", "--socket", self.path(), "bundle", file], capture_output=True,
                                  text=True, timeout=120 * daemon.SLOW, check=False, cwd=self.folder)
        done = bundle(made)
        self.assertIn(done.returncode, (0, 1), done) # 1: this host has no journal
        self.assertEqual(stat.S_IMODE(os.stat(made).st_mode), 0o600)
        with tarfile.open(made) as archive:
            files = {member.name: archive.extractfile(member).read() for member in archive}
        inside = {name.removeprefix("verbena-bundle/"): text for name, text in files.items()}
        self.assertLessEqual({"CONTENTS.txt", "host.txt", "config.toml", "metrics.txt", "log.txt", "commands/status.json",
                              "commands/exports.json", "commands/clients.json", "limits.txt"}, set(inside))
        # All that tell and need no argument: whoever adds a command says here or in bundle.cpp which it is.
        commands = {row["command"] for row in json.loads(inside["commands/help.json"])["rows"]}
        acting = {"check", "drain", "evict", "log", "reload", "resume", "suspend"}
        gathered = {name.removeprefix("commands/").removesuffix(".json") for name in inside if name.startswith("commands/")}
        self.assertEqual(gathered | {"config"}, commands - acting)
        self.assertEqual(json.loads(inside["commands/status.json"])["rows"][0]["pid"], state.process.pid)
        self.assertIn(b"verbena_export_up", inside["metrics.txt"])
        self.assertIn(self.data.encode(), inside["config.toml"])
        self.assertIn(os.uname().release.encode(), inside["host.txt"])
        self.assertFalse([name for name, text in files.items() if secret in text])
        # No journal has it: this daemon writes to a file.
        lines = inside["log.txt"].decode().splitlines()
        self.assertTrue(lines)
        self.assertEqual(self.unwritten(state, lines), set())
        for name in inside:
            if name != "CONTENTS.txt":
                self.assertIn(name, done.stdout)
                self.assertIn(name.encode(), inside["CONTENTS.txt"])
        self.assertIsNone(state.process.poll())
        # Never over what is there, be it a link to nowhere.
        before = os.stat(made).st_mtime_ns
        self.assertIn("none is overwritten", bundle(made).stderr)
        self.assertEqual(os.stat(made).st_mtime_ns, before)
        os.symlink(os.path.join(self.folder, "elsewhere"), os.path.join(self.folder, "link"))
        self.assertEqual(bundle("link").returncode, 1)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "elsewhere")))
        # Without a daemon each part says why it is not there.
        state.stop()
        alone = bundle("alone.tar.gz")
        self.assertEqual(alone.returncode, 1)
        with tarfile.open(os.path.join(self.folder, "alone.tar.gz")) as archive:
            told = archive.extractfile("verbena-bundle/commands/help.json").read().decode()
            self.assertIn("control socket", told)
            self.assertTrue(archive.extractfile("verbena-bundle/host.txt").read())

    def test_commands_of_a_block_server(self):
        folder = os.path.join(self.folder, "run")
        os.mkdir(folder)
        path = os.path.join(folder, "control")
        d = self.run_daemon("block", "--shards", "2", "--metrics", "off", "--listen", "iwarp://127.0.0.1:0", "--device",
                            "disk=8M,clients=127.0.0.0/8", "--device", "tape=1M,ro", exactly=True,
                            environment={"RUNTIME_DIRECTORY": folder})
        self.assertIn(f"control at {path}", d.lines)
        rows = json.loads(self.admin("--json", "devices", path=path))["rows"]
        self.assertEqual([(row["name"], row["size"], row["read_only"], row["clients"]) for row in rows],
                         [("disk", 8 << 20, False, ["127.0.0.0/8"]), ("tape", 1 << 20, True, ["this host only"])])
        self.assertRegex(self.admin("devices", path=path), r"(?m)^disk +\S.* +8388608 +512 +no +- +127\.0\.0\.0/8 +- ")
        # Found by systemd's variable, without --socket.
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        found = subprocess.run([client, "admin", "--json", "status"], capture_output=True, text=True, check=True,
                               timeout=60 * daemon.SLOW, env={**os.environ, "RUNTIME_DIRECTORY": folder})
        self.assertEqual(json.loads(found.stdout)["rows"][0]["pid"], d.process.pid)

    def test_off_means_none(self):
        d = self.start("--control", "off")
        self.assertIn("no control socket", d.lines)
        self.assertFalse(os.path.exists(self.path()))
        self.assertRegex(self.admin("status", status=3), r"control: No such file.*no daemon has its control socket there")

    def test_a_socket_that_somebody_removed(self):
        d = self.start()
        os.unlink(self.path())
        self.assertIn(f"process {d.process.pid} had its control socket there, and somebody has removed that", self.admin("status", status=3))
        self.assertEqual(d.stop(), 0, d.log())
        self.assertIn("no daemon has its control socket there", self.admin("status", status=3))

    def test_a_second_daemon_and_one_after_a_dead_one(self):
        first = self.start("--versions", "3", "--control", self.folder + "/c")
        done = self.run_binary("nfs", "--versions", "3", "--export", self.data, "--state", self.folder + "/other", "--listen",
                               "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no", "--control", self.folder + "/c")
        self.assertEqual(done.returncode, 1, done.stderr) # it may end: the service manager tries again
        self.assertIn(f"control socket {self.folder}/c: it is that of another daemon that is running; choose another path",
                      done.stderr)
        # Where nobody asked for it, one that shares the state folder does without.
        both = [self.start("--versions", "3") for _ in range(2)]
        self.assertIn(f"control at {self.path()}", both[0].lines)
        self.assertTrue([line for line in both[1].lines if line.startswith("no control socket: ")], both[1].lines)
        self.assertEqual(self.rows("status")[0]["pid"], both[0].process.pid)
        first.process.kill()
        first.process.wait()
        self.assertRegex(self.admin("status", path=self.folder + "/c", status=3), "the daemon that made it is gone")
        second = self.start("--versions", "3", "--control", self.folder + "/c")
        told = json.loads(self.admin("--json", "status", path=self.folder + "/c"))
        self.assertEqual(told["rows"][0]["pid"], second.process.pid)

    def test_a_daemon_that_goes_or_is_none(self):
        path = os.path.join(self.folder, "fake")
        for answer, told in ((b"", "closed the connection before its answer was whole"),
                             (b'{"version":1,"columns":["a"],"more":true}\n', "closed the connection before its answer was whole"),
                             (b"HTTP/1.1 400 Bad Request", "closed the connection"),
                             (b"220 hello\n", "is no verbena daemon"),
                             (b'{"columns":7,"more":false}\n', "no daemon of this version")):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                def serve(answer=answer, listener=listener):
                    with listener.accept()[0] as peer:
                        peer.recv(4096)
                        peer.sendall(answer)
                server = threading.Thread(target=serve)
                server.start()
                self.assertIn(told, self.admin("status", path=path, status=3))
                server.join()
            os.unlink(path)

    def test_drain_stops_it_as_sigterm_does(self):
        d = self.start("--drain-seconds", "3")
        self.assertEqual(self.rows("drain"), [{"draining": True, "drain_seconds": 3}])
        self.assertEqual(d.process.wait(daemon.STOP_LIMIT), 0, d.log())
        self.assertRegex(d.log(), "service: draining ")
        self.assertFalse(os.path.exists(self.path()))

    def test_it_stops_in_its_time_with_peers_that_wait_and_peers_that_do_not_read(self):
        d = self.start("--drain-seconds", "0")
        idle, greedy = self.connect(), self.connect()
        idle.sendall(b'{"version":1,"command":"status"}\n')
        self.assertIn(b'"more":true', idle.recv(4096))
        greedy.setblocking(False)
        try: # until the daemon takes no more, as its answers are not taken
            while True:
                greedy.send(b'{"version":1,"command":"help"}\n' * 100)
        except BlockingIOError:
            pass
        self.assertEqual(len(self.rows("status")), 1) # others are answered meanwhile
        self.assertEqual(d.stop(), 0, d.log())
        while idle.recv(4096):
            pass

    def test_it_answers_while_a_disk_hangs(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        d = daemon.Daemon("nfs", "--export", self.data, "--export", folder + ":/hung", "--state", self.folder + "/state",
                          "--listen", "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no", "--drain-seconds", "0",
                          folder=self.folder)
        try:
            caller = TcpPeer(d.port("tcp"))
            hung = caller.mount("/hung")
            disk.hang()
            for xid in range(16):
                caller.send(call_message(1000 + xid, GETATTR, peers.opaque(hung)))
            disk.wait_for(1)
            for command in ("status", "exports", "modules", "help"):
                self.assertTrue(self.rows(command))
            def states():
                return {row["path"]: (row["state"], row["why_down"]) for row in self.rows("exports")}
            end = time.monotonic() + daemon.STOP_LIMIT
            while (now := states())["/hung"][0] == "up":
                self.assertLess(time.monotonic(), end, d.log())
                time.sleep(0.05)
            self.assertEqual(now[next(path for path in now if path != "/hung")], ("up", None))
            self.assertEqual(now["/hung"], ("down", f"{folder} does not answer: look at what is beneath; when it answers it is served"))
            self.assertRegex(d.log(), rf"the root of an export does not answer; look at what is beneath export=/hung directory={folder}\n")
            # One that waits while it stops is told by the end of its connection.
            waiting = self.connect()
            self.assertEqual(self.rows("drain"), [{"draining": True, "drain_seconds": 0}])
            while waiting.recv(4096):
                pass
            caller.close()
            end = time.monotonic() + daemon.STOP_LIMIT
            while "not stopped in time" not in d.log() and time.monotonic() < end:
                time.sleep(0.05)
            disk.close()
            self.assertEqual(d.stop(), 1, d.log())
        finally:
            disk.close()
            d.stop(signal.SIGKILL)


if __name__ == "__main__":
    daemon.main()
