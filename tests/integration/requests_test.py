#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena admin requests` and a real verbenad: calls and block operations that hang, with who waits for what; the slow ones in the log
and in the metrics, and the slowest that ended."""
import json
import os
import re
import subprocess
import time

import daemon
import hung_disk
import peers
from peers import IwarpPeer, TcpPeer, call_message

GETATTR, READ = 1, 6
HOUR = 3600 * 1000 # milliseconds
LIMIT = 60 * daemon.SLOW


class Requests(daemon.DaemonTest):
    def serve(self, served, slow=1):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nstate = "{self.folder}/state"\nshards = 2\ndrain_seconds = 0\nslow_seconds = {slow}\n'
                       f'control = "{self.folder}/control"\n[metrics]\nlisten = "127.0.0.1:0"\n{served}')
        return self.run_daemon("serve", config, exactly=True)

    def serve_files(self, delay, **more):
        return self.serve('[nfs]\nlisten = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]\nrpcbind = "no"\n'
                          f'[[nfs.export]]\ndirectory = "{self.data}"\npseudo = "/export"\n[[nfs.export.filter]]\nname = "delay"\n'
                          f'{delay}\n', **more)

    def admin(self, *words):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "admin", "--socket", self.folder + "/control", *words], capture_output=True, text=True,
                              timeout=2 * LIMIT, check=False)
        self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
        return done.stdout

    def rows(self, *words):
        told = json.loads(self.admin("--json", *words))
        self.assertEqual((told["shards_silent"], told["shards_failed"]), ([], []))
        return told["rows"]

    def requests_of(self, d, count, operation=""):
        """Once there are so many, and all of them do this."""
        end = time.monotonic() + LIMIT
        while (len(rows := self.rows("requests")) != count
               or not all((row["operation"] or "").startswith(operation) for row in rows)):
            self.assertLess(time.monotonic(), end, rows)
            self.assertIsNone(d.process.poll(), d.log())
        return rows

    def make_file(self):
        """What is told of it."""
        path = os.path.join(self.data, "file")
        with open(path, "wb") as file:
            file.write(b"text")
        # Where a file system shows no inode in its handles (overlayfs), the handle stands there.
        return rf"/export (inode {os.stat(path).st_ino}|handle [0-9a-f]+)"

    def run_client(self, *words):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        process = subprocess.Popen([client, "-q", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        def end():
            process.kill()
            process.wait()
        self.addCleanup(end)
        return process

    def test_calls_of_version_3_that_hang(self):
        told = self.make_file()
        d = self.serve_files(f"read_milliseconds = {HOUR}")
        self.assertEqual(self.rows("requests"), [])
        self.assertEqual(d.metric('verbena_slow_requests_total{protocol="nfs"}'), 0)
        over_tcp, over_iwarp = TcpPeer(d.port("tcp")), IwarpPeer(d.port("iwarp"))
        handle = over_tcp.lookup(over_tcp.mount(), "file")
        over_iwarp.nfs(0)
        over_tcp.send(call_message(0x3fa0c11d, READ, peers.read_arguments(handle, 0, 4)))
        first, = self.requests_of(d, 1)
        over_iwarp.send(over_iwarp.message(7, call_message(7, READ, peers.read_arguments(handle, 0, 4)),
                                           writes=[[(over_iwarp.grant(bytes(4)), 4)]]))
        rows = self.requests_of(d, 2)
        numbers = {row["peer"]: row["connection"] for row in self.rows("connections")}
        for row, caller, transport, xid in zip(rows, (over_tcp, over_iwarp), ("tcp", "iwarp"), ("3fa0c11d", "00000007")):
            peer = "127.0.0.1:%d" % caller.socket.getsockname()[1]
            self.assertEqual((row["peer"], row["transport"], row["call"]), (peer, transport, f"{numbers[peer]}.{xid}"), rows)
            self.assertEqual((row["protocol"], row["operation"]), ("nfs 3", "READ"), row)
            self.assertRegex(row["object"], f"^{told}$")
            self.assertRegex(row["waits_for"], r"^a sleep, \d+\.\d\d\d s left$")
            self.assertEqual((row["status"], row["ended_seconds"]), (None, None), row)
        self.assertGreaterEqual(rows[0]["age_ms"], rows[1]["age_ms"]) # the oldest first, from two shards or one
        self.assertGreaterEqual(rows[0]["age_ms"], first["age_ms"])
        table = self.admin("requests")
        self.assertRegex(table, r"^CALL +PEER +PROTOCOL +TRANSPORT +SHARD +OPERATION +OBJECT +AGE MS +WAITS FOR ")
        self.assertRegex(table, rf"\n{re.escape(first['call'])} +{first['peer']} +nfs 3 +tcp +[01] +READ +{told} ")
        # In the log by the same number.
        for row in rows:
            d.log_with(rf"warning requests: a request has not been answered for long call={row['call']} peer={row['peer']} "
                       rf"protocol=nfs version=3 transport={row['transport']} operation=READ object=\"{told}\" "
                       r"waits_for=\"a sleep, \d+\.\d+ s left\" seconds=")
        self.assertEqual(d.metric('verbena_slow_requests_total{protocol="nfs"}'), 2)
        # Each goes with its connection.
        over_tcp.close()
        self.assertEqual(self.requests_of(d, 1)[0]["transport"], "iwarp")
        over_iwarp.close()
        self.requests_of(d, 0)

    def test_calls_of_version_4_that_hang(self):
        told = self.make_file()
        d = self.serve_files(f"read_milliseconds = {HOUR}")
        self.run_client("cat", f"nfs://127.0.0.1:{d.port('tcp')}/export/file?vers=4.2")
        self.requests_of(d, 1, "READ")
        self.run_client("cat", "--layout", "no", f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/export/file?vers=4.2")
        rows = self.requests_of(d, 2, "READ")
        self.assertEqual([row["transport"] for row in rows], ["tcp", "iwarp"])
        for row in rows:
            self.assertEqual(row["protocol"], "nfs 4.2", row)
            self.assertRegex(row["object"], f"^{told}$")
            self.assertRegex(row["operation"], r"^READ, \d of \d$")
            self.assertRegex(row["waits_for"], r"^a sleep, \d+\.\d\d\d s left$")
            d.log_with(rf"a request has not been answered for long call={row['call']} .*operation=\"READ, ")

    def test_block_operations_that_hang(self):
        d = self.serve('[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "disk"\nsize = "4M"\n'
                       f'[[block.device.filter]]\nname = "delay"\nread_milliseconds = {HOUR}\n')
        self.assertEqual(d.metric('verbena_slow_requests_total{protocol="block"}'), 0)
        self.run_client("block", "read", "--length", "4K", f"rnbd+iwarp://127.0.0.1:{d.port('iwarp')}/disk")
        row, = self.requests_of(d, 1, "read")
        self.assertEqual((row["protocol"], row["transport"], row["operation"], row["object"]),
                         ("block", "iwarp", "read 4096 at sector 0", "disk"), row)
        self.assertRegex(row["peer"], r"^127\.0\.0\.1")
        self.assertRegex(row["call"], r"^\d+\.[0-9a-f]{8}$")
        self.assertRegex(row["waits_for"], r"^a sleep, \d+\.\d\d\d s left$")
        d.log_with(rf"a request has not been answered for long call={row['call']} .*protocol=block .*object=disk ")
        self.assertEqual(d.metric('verbena_slow_requests_total{protocol="block"}'), 1)

    def test_the_slowest_that_ended(self):
        told = self.make_file()
        d = self.serve_files("read_milliseconds = 50", slow=0)
        caller = TcpPeer(d.port("tcp"))
        handle = caller.lookup(caller.mount(), "file")
        self.assertEqual(caller.nfs(READ, peers.read_arguments(handle, 0, 4)).nfs_status(), 0)
        self.run_client("cat", f"nfs://127.0.0.1:{d.port('tcp')}/export/file?vers=4.2").wait(LIMIT)
        rows = [row for row in self.rows("requests", "slowest") if row["operation"].startswith("READ")]
        self.assertEqual({row["protocol"] for row in rows}, {"nfs 3", "nfs 4.2"}, rows)
        for row in rows:
            self.assertRegex(row["object"], f"^{told}$")
            self.assertIsNone(row["waits_for"], row)
            self.assertGreaterEqual(row["age_ms"], 45, row)
            self.assertRegex(row["status"], "^NFS[34]_OK$")
            self.assertGreaterEqual(row["ended_seconds"], 0)
        ages = [row["age_ms"] for row in self.rows("requests", "slowest")]
        self.assertEqual(ages, sorted(ages, reverse=True))
        self.assertNotIn("has not been answered", d.log())
        caller.close()

    def test_what_a_call_to_a_disk_that_hangs_waits_for(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        d = self.serve('[nfs]\nlisten = ["tcp://127.0.0.1:0"]\nrpcbind = "no"\n'
                       f'[[nfs.export]]\ndirectory = "{folder}"\npseudo = "/hung"\n', slow=3600)
        caller = TcpPeer(d.port("tcp"))
        root = caller.mount("/hung")
        disk.hang()
        caller.send(call_message(1, GETATTR, peers.opaque(root)))
        disk.wait_for(1)
        row, = self.requests_of(d, 1)
        self.assertEqual((row["operation"], row["object"]), ("GETATTR", "/hung"), row)
        self.assertRegex(row["waits_for"], "^a blocking call in lane .*hung")
        caller.close()
        disk.close()
        self.requests_of(d, 0)


if __name__ == "__main__":
    daemon.main()
