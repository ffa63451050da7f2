#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that move a byte a second: a test of its own, as it waits for a minute and others can run meanwhile."""
import os
import struct
import threading
import time

import daemon
import peers
from bad_peers import MIB, Ends
from peers import call_message


class Slowness(Ends):
    """Peers that move a byte a second, all at the same time, until the server has waited a minute for each."""
    MOST = 100 # seconds
    READERS = 4 # by each transport: together they hold more than the slack

    def setUp(self):
        super().setUp()
        self.over = threading.Event()
        self.addCleanup(self.over.set)

    def every_second(self, act):
        def run():
            while not self.over.wait(1):
                try:
                    act()
                except OSError:
                    return
        threading.Thread(target=run, daemon=True).start()

    def test_a_byte_a_second(self):
        counts = lambda: {c: self.ends(*c) for c in ( # pylint: disable=unnecessary-lambda-assignment
            ("tcp", "slow_record"), ("tcp", "output_not_taken"), ("iwarp", "peer_reset"), ("tcp", "lost"))}
        before = counts()
        writer = self.tcp()
        root = writer.mount()
        call = call_message(1, peers.WRITE, peers.write_arguments(writer.create(root, "target"), 0, bytes(1000)))
        rest = iter(struct.pack(">I", 0x80000000 | len(call)) + call)
        self.every_second(lambda: writer.socket.send(bytes([next(rest)])))

        file = self.tcp().lookup(root, "file")
        for i in range(self.READERS):
            reader = self.tcp(receive_buffer=4096, source=f"127.0.1.{i + 1}")
            for xid in range(8):
                reader.send(call_message(xid, peers.READ, peers.read_arguments(file, 0, MIB)))
            self.every_second(lambda reader=reader: reader.socket.recv(1))

            chunks = self.iwarp(receive_buffer=4096, source=f"127.0.2.{i + 1}")
            chunks.ask_for(file, 8)
            self.every_second(lambda chunks=chunks: chunks.socket.recv(1))

        limit = time.monotonic() + self.MOST
        def ended():
            now = counts()
            # Who sees first that the peer takes nothing, the server or TCP, depends on the kernel.
            took_nothing = sum(now[c] - before[c] for c in (("tcp", "output_not_taken"), ("tcp", "lost")))
            return (now["tcp", "slow_record"] - before["tcp", "slow_record"], took_nothing,
                    now["iwarp", "peer_reset"] - before["iwarp", "peer_reset"])
        while ended() != (1, self.READERS, self.READERS):
            self.assertLess(time.monotonic(), limit, f"{ended()} of each have ended")
            self.bystander.check()
            time.sleep(1)
        self.memory_is_back()
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)


if __name__ == "__main__":
    daemon.main()
