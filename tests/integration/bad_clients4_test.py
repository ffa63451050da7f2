#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host that uses up all of version 4.1 that it can get: others go on, new ones come, and memory has an end."""
import os
import struct

import daemon
from peers import MIB, TcpPeer, opaque

OK, NOSPC, DELAY = 0, 28, 10008
PUTROOTFH, OPEN, LOOKUP, EXCHANGE_ID, CREATE_SESSION, SEQUENCE, RECLAIM_COMPLETE = 24, 18, 15, 42, 43, 53, 58
HOSTILE, OTHER = "127.0.0.2", "127.0.0.1"


def words(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


class Client4:
    """A client of version 4.1 over one connection. Calls yield the status of the COMPOUND, or what they ask for."""

    def __init__(self, port, source, name=b"client", verifier=b"\1" * 8):
        self.peer = TcpPeer(port, source=source)
        self.name, self.verifier = name, verifier
        self.sequence = 0

    def compound(self, *operations):
        reply = self.peer.call(1, opaque(b"") + words(1, len(operations)) + b"".join(operations), version=4)
        assert not reply.denied and reply.status == 0, (reply.denied, reply.status)
        self.results = reply.results[12:]
        return struct.unpack(">I", reply.results[:4])[0]

    def exchange(self):
        status = self.compound(words(EXCHANGE_ID) + self.verifier + opaque(self.name) + words(0, 0, 0))
        if status == OK:
            self.id, self.next = struct.unpack(">QI", self.results[8:20])
        return status

    def create_session(self, slots=64):
        fore = words(0, 1 << 20, 1 << 20, 4096, 8, slots, 0)
        status = self.compound(words(CREATE_SESSION) + struct.pack(">QII", self.id, self.next, 0) + fore + words(0, 4096, 4096, 0, 2, 1, 0)
                               + words(0x40000000, 0))
        if status == OK:
            self.session, self.sequence = self.results[8:24], 0
            self.next += 1
        return status

    def call(self, *operations):
        self.sequence += 1
        return self.compound(words(SEQUENCE) + self.session + words(self.sequence, 0, 0, 0), *operations)

    def connect(self):
        return self.exchange() or self.create_session() or self.call(words(RECLAIM_COMPLETE, 0))

    def open(self, owner, name):
        """UNCHECKED, to read and write."""
        return self.call(words(PUTROOTFH), words(LOOKUP) + opaque(b"export"),
                         words(OPEN, 0, 3, 0) + struct.pack(">Q", 0) + opaque(owner) + words(1, 0, 0, 0) + words(0) + opaque(name))


class HostileHost(daemon.DaemonTest):
    CLIENTS, SESSIONS = 1024, 1024 # of a peer: nfs::v4::session_limits

    def client(self, source, name=b"client"):
        made = Client4(self.port, source, name)
        self.addCleanup(made.peer.close)
        return made

    def serve(self):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(2)}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
versions = ["3", "4.1"]
[[nfs.export]]
backend = "memfs"
pseudo = "/export"
""")
        return self.run_daemon("serve", config)

    def test_what_all_share_is_not_used_up(self):
        server = self.serve()
        self.port = server.port("tcp")
        there = self.client(OTHER, b"there")
        self.assertEqual(there.connect(), OK)
        self.assertEqual(there.open(b"owner", b"file"), OK)
        before = server.metric("process_resident_memory_bytes")
        hostile = self.client(HOSTILE)
        # Names without end: each one takes the place of the oldest.
        for i in range(3 * self.CLIENTS):
            hostile.name = b"name %d " % i + b"x" * 900
            self.assertEqual(hostile.exchange(), OK)
        # Clients with sessions: so many and no more.
        refused = set()
        connected = 0
        for i in range(self.CLIENTS + 100):
            hostile.name = b"client %d" % i
            status = hostile.connect()
            connected += status == OK
            refused.add(status)
        self.assertEqual(connected, self.CLIENTS)
        self.assertLessEqual(refused, {OK, DELAY, NOSPC})
        self.assertIn(DELAY, refused)
        # The other one's name, with which it could end what that one has.
        hostile.name, hostile.verifier = b"there", b"\2" * 8
        self.assertEqual(hostile.exchange(), DELAY)
        self.assertEqual(there.open(b"owner", b"file"), OK)
        fresh = self.client(OTHER, b"fresh")
        self.assertEqual(fresh.connect(), OK)
        self.assertEqual(fresh.open(b"owner", b"another"), OK)
        grown = server.metric("process_resident_memory_bytes") - before
        self.assertLessEqual(grown, 64 * MIB * daemon.memory_factor())


if __name__ == "__main__":
    daemon.main()
