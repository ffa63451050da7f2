#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A log that nobody reads keeps no call, no client and no stop; and a log that the journal reads has priorities."""
import os
import re
import signal
import subprocess
import threading
import time

import daemon
import peers
from peers import TcpPeer, call_message

GETATTR = 1
CALLS = 7_000 # of some 180 bytes each at trace, where a pipe takes 64 KiB and the queue 1 MiB
AT_ONCE = 100
DROPPED = "verbena_log_dropped_lines_total"


class UnreadLog(daemon.DaemonTest):
    def serve(self, **options):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = 2
log_level = "trace"
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
[block]
listen = ["iwarp://127.0.0.1:0"]
[[block.device]]
name = "disk"
backend = "nullblk"
""")
        return self.run_daemon("serve", config, exactly=True, **options)

    def serve_unread(self):
        """A daemon whose standard error is a pipe that nobody reads, and the end to read from."""
        reads, writes = os.pipe()
        d = self.serve(before_start=lambda: os.dup2(writes, 2))
        os.close(writes)
        return d, open(reads, "rb") # pylint: disable=consider-using-with

    def call(self, caller, root, calls):
        """Each is answered."""
        for begin in range(0, calls, AT_ONCE):
            for xid in range(begin, begin + AT_ONCE):
                caller.send(call_message(xid, GETATTR, peers.opaque(root)))
            answered = [caller.receive() for _ in range(AT_ONCE)]
            self.assertEqual({reply.xid for reply in answered}, set(range(begin, begin + AT_ONCE)))
            self.assertEqual({reply.nfs_status() for reply in answered}, {0})

    def use_block(self, d):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        self.run_tool(client, "-q", "block", "read", "--length", "4K", f"rnbd+iwarp://127.0.0.1:{d.port('iwarp')}/disk")

    def fill(self, d):
        caller = TcpPeer(d.port("tcp"))
        root = caller.mount()
        self.call(caller, root, CALLS)
        self.assertGreater(d.metric(DROPPED), 0)
        return caller, root

    def test_nobody_waits_for_a_reader(self):
        d, unread = self.serve_unread()
        caller, root = self.fill(d)
        # New clients are served as well, and the tasks are written to nobody.
        for _ in range(3):
            self.use_block(d)
            d.process.send_signal(signal.SIGUSR1)
            d.process.send_signal(signal.SIGHUP)
        other = TcpPeer(d.port("tcp"))
        self.assertEqual(other.mount(), root)
        before = d.metric(DROPPED)
        self.call(caller, root, AT_ONCE)
        self.assertGreaterEqual(d.metric(DROPPED), before + AT_ONCE)
        caller.close()
        other.close()
        self.assertEqual(d.stop(), 0)
        said = unread.read()
        unread.close()
        self.assertRegex(said.splitlines()[0], rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \w+ \w+: ")

    def test_a_reader_that_comes_back_hears_what_it_missed(self):
        d, unread = self.serve_unread()
        caller, root = self.fill(d)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(unread), daemon=True)
        reader.start()
        end = time.monotonic() + peers.LIMIT
        dropped = d.metric(DROPPED)
        while sum(told := [int(number) for line in list(lines) for number in re.findall(rb" warning log: lines were dropped.* lines=(\d+)\n", line)]) < dropped:
            self.assertLess(time.monotonic(), end, told)
            time.sleep(0.01)
        self.assertEqual(sum(told), dropped)
        before = len(lines)
        self.call(caller, root, AT_ONCE)
        caller.close()
        self.assertEqual(d.stop(), 0)
        reader.join()
        unread.close()
        self.assertEqual(sum(b"rpc: call served" in line for line in lines[before:]), AT_ONCE)
        self.assertTrue(lines[-1].endswith(b" info service: stopped\n"), lines[-1])

    def journal(self):
        """The file that becomes the standard error, as systemd tells of its journal's stream."""
        path = os.path.join(self.folder, "stderr")
        with open(path, "wb") as file:
            status = os.fstat(file.fileno())
        return path, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

    def test_the_journal_hears_priorities(self):
        _, environment = self.journal()
        d = self.serve(environment=environment)
        caller = TcpPeer(d.port("tcp"))
        caller.mount()
        caller.close()
        config = os.path.join(self.folder, "config.toml")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace("shards = 2", "shards = 3"))
        d.process.send_signal(signal.SIGHUP)
        d.log_with("the configuration was reloaded")
        d.process.send_signal(signal.SIGUSR1)
        self.assertEqual(d.stop(), 0)
        lines = d.log().splitlines()
        for line in lines:
            self.assertRegex(line, r"^<[3467]>")
            self.assertNotRegex(line, r"^<.>\d{4}-")
        self.assertTrue([line for line in lines if line.startswith("<4>warning service: a change of the configuration needs a restart")], lines)
        self.assertTrue([line for line in lines if line.startswith("<7>trace rpc: call served")], lines)
        self.assertTrue([line for line in lines if line.startswith("<6>shard 0: ")], lines)

    def test_the_journal_hears_of_an_export_that_nobody_reaches(self):
        _, environment = self.journal()
        d = self.start(export=",clients=198.51.100.0/24", environment=environment)
        self.assertEqual(d.stop(), 0)
        self.assertRegex(d.log(), r'(?m)^<4>warning nfs: an export can.t be reached by those whom it is for '
                                  r'export=\S+ why="nobody of clients=198\.51\.100\.0/24')

    def test_the_journal_hears_why_nothing_starts(self):
        for words, says in ((["serve", "/no/such/file.toml"], r"<3>verbenad: /no/such/file\.toml.*\n"),
                            (["serve", "--quiet", "file.toml"], r"<3>verbenad: --quiet requires --check\n"
                                                                r"<3>Run with --help for more information\.\n")):
            path, environment = self.journal()
            with open(path, "ab") as errors:
                done = subprocess.run([daemon.BINARY, *words], stderr=errors, check=False,
                                      timeout=daemon.START_LIMIT, env={**os.environ, **environment})
            self.assertEqual(done.returncode, 2)
            with open(path, encoding="utf-8") as said:
                self.assertRegex(said.read(), rf"\A{says}\Z")


if __name__ == "__main__":
    daemon.main()
