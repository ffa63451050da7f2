#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGUSR1: each shard says what its tasks wait for, and goes on."""
import fcntl
import os
import re
import signal
import time

import daemon
import peers
from peers import TcpPeer, call_message

GETATTR = 1
LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1"))


class TaskDump(daemon.DaemonTest):
    def serve(self, delay_milliseconds):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = 2
drain_seconds = 0
[metrics]
listen = "off"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
[[nfs.export.filter]]
name = "delay"
metadata_milliseconds = {delay_milliseconds}
""")
        return self.run_daemon("serve", config, exactly=True)

    def dump(self, d, complete=r"^shard 1: .*\n"):
        """What it says at the signal, until all of it is there."""
        before = len(d.log())
        d.process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + LIMIT
        while not re.search(complete, d.log()[before:], re.M):
            self.assertLess(time.monotonic(), end, d.log())
            self.assertIsNone(d.process.poll(), d.log())
            time.sleep(0.01)
        return d.log()[before:]

    def test_a_call_in_flight_is_there_with_what_it_waits_for(self):
        d = self.serve(0)
        with_none = self.dump(d)
        self.assertIn("shard 0: ", with_none)
        self.assertNotIn("calls that came over streams", with_none)
        caller = TcpPeer(d.port("tcp"))
        root = caller.mount()
        caller.close()
        d.stop()

        d = self.serve(3600 * 1000)
        caller = TcpPeer(d.port("tcp"))
        caller.send(call_message(1, GETATTR, peers.opaque(root)))
        end = time.monotonic() + LIMIT
        while "calls that came over streams" not in (text := self.dump(d)): # until the call has come
            self.assertLess(time.monotonic(), end, text)
        # From the call down to the filter, each below the one that awaits it.
        chain = re.search(r'^  scope "calls that came over streams" 0x[0-9a-f]+: 1 child\n(    .*\n)+', text, re.M)
        self.assertIsNotNone(chain, text)
        lines = chain[0].splitlines()[1:]
        self.assertRegex(lines[0], r"^    verbena::rpc::service_dispatcher::dispatch, trace \d+\.00000001$", text)
        for above, below in zip(lines, lines[1:]):
            self.assertEqual(len(above) - len(above.lstrip()) + 2, len(below) - len(below.lstrip()), text)
        self.assertIn("verbena::nfs::v3::server::getattr", chain[0], text)
        self.assertIn("delayer::wait", lines[-1], text)
        self.assertRegex(lines[-1], r" waits for a sleep, 3\d\d\d\.\d\d\d s left$", text)
        # It serves on, on both shards.
        others = [TcpPeer(d.port("tcp")) for _ in range(4)]
        for other in others:
            self.assertEqual(other.nfs(0).status, 0)
            other.close()
        caller.close()

    def test_a_standard_error_that_nobody_reads_keeps_it_from_no_end(self):
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
        d = self.run_daemon("nfs", "--export", self.data, "--listen", "tcp://127.0.0.1:0", "--rpcbind", "no", "--shards", "8",
                            "--state", self.folder, "--metrics", "off", exactly=True, before_start=lambda: os.dup2(writes, 2))
        os.close(writes)
        for _ in range(50):
            d.process.send_signal(signal.SIGUSR1)
            time.sleep(0.02) # several are one while it writes
        self.assertEqual(d.stop(), 0)


if __name__ == "__main__":
    daemon.main()
