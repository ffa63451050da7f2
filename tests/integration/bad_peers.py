# SPDX-License-Identifier: Apache-2.0
"""What tests with hostile peers have in common: a server, clients that must not notice anything, and what is counted."""
import os
import random
import socket
import time

import daemon
import peers
from peers import IwarpPeer, TcpPeer

MIB = 1 << 20


class BadPeers(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.content = random.Random(1).randbytes(MIB)
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(self.content)
        self.daemon = self.start("--shards", "3")
        self.bystander = self.begin_bystander()

    def begin_bystander(self):
        bystander = peers.Bystander(self.daemon, "file", self.content)
        self.addCleanup(bystander.stop)
        bystander.check()
        return bystander

    def tearDown(self):
        self.bystander.check()
        super().tearDown()

    # --- what is counted ---

    def value(self, series):
        return self.daemon.metric(series) or 0

    def ends(self, transport, causes):
        """By any of these: words."""
        return sum(self.daemon.metrics(f'verbena_connection_ends_total{{transport="{transport}",cause="{cause}"}}'
                                       for cause in causes.split()))

    def wait_for(self, what, done):
        limit = time.monotonic() + peers.LIMIT
        while not done():
            self.assertLess(time.monotonic(), limit, f"{what}: {self.daemon.scrape()}")
            time.sleep(0.05)

    def counted(self, series, before, times=1):
        """So many more, and no more than that."""
        self.wait_for(series, lambda: self.value(series) >= before + times)
        self.assertEqual(self.value(series), before + times, series)

    def counted_some(self, series, before, least=1):
        """At least so many more, of what comes as often as the machine has it."""
        self.wait_for(series, lambda: self.value(series) >= before + least)

    def ends_as(self, transport, causes, attack, times=1, repeated=1):
        """`attack` ends `times` connections for these causes, and none more. So too if it is repeated."""
        before = self.ends(transport, causes)
        for done in range(1, repeated + 1):
            attack()
            self.wait_for(causes, lambda done=done: self.ends(transport, causes) >= before + times * done)
        self.bystander.check()
        self.assertEqual(self.ends(transport, causes), before + times * repeated, causes)

    def adds_to(self, series, attack, times=1):
        before = self.value(series)
        result = attack()
        self.counted(series, before, times)
        return result

    def tcp(self, **more):
        peer = TcpPeer(self.daemon.port("tcp"), **more)
        self.addCleanup(peer.close)
        return peer

    def iwarp(self, **more):
        peer = IwarpPeer(self.daemon.port("iwarp"), **more)
        self.addCleanup(peer.close)
        return peer

    def plain(self, transport):
        s = socket.create_connection(("127.0.0.1", self.daemon.port(transport)), timeout=peers.LIMIT)
        self.addCleanup(s.close)
        return s


class Ends(BadPeers):
    """Little memory, so that what an ended connection leaves behind shows."""

    MEMORY = 64 # MiB: the least, since the pools keep a quarter of it for reuse
    OF_NFS = "" # lines of the configuration

    def start(self, *_, **__):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(3)}
memory_mib = {self.MEMORY}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
{self.OF_NFS}
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
""")
        return self.run_daemon("serve", config)

    def setUp(self):
        super().setUp()
        # What a first connection makes grow stays; what follows must leave no trace.
        self.iwarp().mount()
        self.held = self.value("verbena_memory_registered_bytes")
        self.slack = self.MEMORY * MIB // 4 + 8 * MIB # and slabs that are partly in use

    def memory_is_back(self):
        self.wait_for("memory", lambda: self.value("verbena_memory_registered_bytes") <= self.held + self.slack)

    def leaves_nothing(self, transport, causes, holds, attack):
        """`attack` ends one connection, which held so many bytes. Often enough for more than the slack."""
        self.ends_as(transport, causes, attack, repeated=self.slack // holds + 1)
        self.memory_is_back()

    def target(self):
        peer = self.iwarp()
        return peer, peer.create(peer.mount(), "target")
