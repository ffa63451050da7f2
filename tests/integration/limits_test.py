#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that are stuck, and how long the server waits for them: while it serves, and when it is asked to stop."""
import os
import random
import socket
import time

import daemon
import peers
from peers import IwarpPeer, TcpPeer, call_message

MIB = 1 << 20


class StuckPeers(daemon.DaemonTest):
    def serve(self, of_daemon="", of_nfs=""):
        """A daemon with these lines in its configuration."""
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(2)}
{of_daemon}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
{of_nfs}
[[nfs.export]]
directory = "{self.data}"
""")
        return self.run_daemon("serve", config)

    def test_crc_that_the_daemon_asks_for(self):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for crc in ("false", "true"):
            d = self.serve(of_nfs=f"iwarp_crc = {crc}")
            url = f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/export?mountport={d.port('tcp')}"
            self.run_tool(client, "ls", url)
            self.assertEqual(d.metric("verbena_iwarp_crc_checked_total") > 0, crc == "true")
            d.stop()

    def test_the_drain_ends_with_a_stuck_peer(self):
        d = self.serve(of_daemon="drain_seconds = 1")
        stuck = IwarpPeer(d.port("iwarp"))
        target = stuck.create(stuck.mount(), "target")
        stuck.begin_write(target, 0, b"", length=MIB)
        stuck.receive_send(answer_reads=False)
        deaf = TcpPeer(d.port("tcp"), receive_buffer=4096)
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(bytes(8 * MIB))
        read = peers.read_arguments(deaf.lookup(deaf.mount(), "file"), 0, MIB)
        for i in range(8):
            deaf.send(call_message(i, peers.READ, read))
        starting = socket.create_connection(("127.0.0.1", d.port("iwarp")))
        self.assertEqual(d.stop(), 0, d.log())
        for peer in (stuck, deaf):
            peer.close()
        starting.close()

    def test_the_drain_waits_for_calls_in_flight(self):
        d = self.start("--shards", "2")
        peer = IwarpPeer(d.port("iwarp"))
        target = peer.create(peer.mount(), "target")
        data = random.Random(2).randbytes(MIB)
        xid = peer.begin_write(target, 0, data)
        peer.receive_send(answer_reads=False)
        d.process.send_signal(daemon.signal.SIGTERM)
        with self.assertRaises(ConnectionRefusedError): # once it listens no more
            while True:
                socket.create_connection(("127.0.0.1", d.port("tcp"))).close()
                time.sleep(0.01)
        peer.answer_reads()
        proc, rest = peer.answer(xid)
        self.assertEqual((proc, peers.Accepted(rest).nfs_status()), (0, 0))
        peer.ended()
        peer.close()
        self.assertEqual(d.stop(), 0, d.log())
        with open(os.path.join(self.data, "target"), "rb") as file:
            self.assertEqual(file.read(), data)


if __name__ == "__main__":
    daemon.main()
