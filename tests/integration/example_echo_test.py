#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module of examples/echo, loaded by verbenad: messages there and back, and who is rejected."""
import contextlib
import ctypes
import os
import time

import daemon
import peers

MOST = 64 # connections of a peer, unless the command line says another number
REJECTED = 0x20 # flag R of MPA's reply
NEW_NETWORK = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def into_a_network():
    """One of its own, of one host with two addresses."""
    if libc.unshare(NEW_NETWORK) != 0:
        os._exit(1)
    os.system("ip link set lo up && ip address add 192.0.2.1/32 dev lo")


class Echo(daemon.DaemonTest):
    def serve(self, *settings, host="127.0.0.1", **more):
        module = os.path.join(os.path.dirname(daemon.BINARY), "../examples/echo/echo.so")
        self.daemon = self.run_daemon("--module", module, "echo", "--shards", "2", "--listen", f"iwarp://{host}:0", "--metrics", "off",
                                      "--state", os.path.join(self.folder, "state"), *settings, exactly=True, **more)

    def connect(self, host="127.0.0.1"):
        peer = peers.IwarpPeer(self.daemon.port("iwarp"), host=host)
        self.addCleanup(peer.close)
        return peer

    def comes_back(self, peer, message):
        peer.send(message)
        self.assertEqual(peer.receive_send(), message)

    @contextlib.contextmanager
    def network_of_the_daemon(self):
        """Sockets that are made meanwhile are there."""
        with open("/proc/self/ns/net", "rb") as own, open(f"/proc/{self.daemon.process.pid}/ns/net", "rb") as other:
            self.assertEqual(libc.setns(other.fileno(), NEW_NETWORK), 0)
            try:
                yield
            finally:
                self.assertEqual(libc.setns(own.fileno(), NEW_NETWORK), 0)

    def test_messages_come_back_as_they_are(self):
        self.serve()
        one, two = self.connect(), self.connect()
        for size in (1, 4096, 10, 0, 3):
            self.comes_back(one, os.urandom(size))
            self.comes_back(two, os.urandom(size))

    def test_the_client_of_the_example(self):
        self.serve()
        client = os.path.join(os.path.dirname(daemon.BINARY), "../examples/echo/echo_client")
        said = self.run_tool(client, f"127.0.0.1:{self.daemon.port('iwarp')}", "one", "two words")
        self.assertEqual(said, b"one\ntwo words\n")

    def test_one_host_has_so_many_connections(self):
        self.serve()
        all_of_it = [self.connect() for _ in range(MOST)]
        for peer in all_of_it:
            self.assertFalse(peer.flags & REJECTED)
        self.assertTrue(self.connect().flags & REJECTED)
        self.comes_back(all_of_it[-1], b"still there")
        all_of_it[0].close()
        limit = time.monotonic() + peers.LIMIT
        while (peer := self.connect()).flags & REJECTED:
            self.assertLess(time.monotonic(), limit, "the place of a connection that ended is free")
        self.comes_back(peer, b"as good as the others")

    def test_the_command_line_says_how_many(self):
        self.serve("--connections-per-peer", "1")
        self.comes_back(self.connect(), b"one")
        self.assertTrue(self.connect().flags & REJECTED)

    def test_a_stranger_is_rejected(self):
        self.serve(host="0.0.0.0", before_start=into_a_network)
        with self.network_of_the_daemon():
            stranger, friend = self.connect("192.0.2.1"), self.connect()
        self.assertTrue(stranger.flags & REJECTED)
        self.comes_back(friend, b"here")
        self.daemon.log_with(r"turned away peer=192\.0\.2\.1 connection=iwarp reason=address")


if __name__ == "__main__":
    daemon.main()
