#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that end their connection, or should: by Terminate at any moment, without a word, by the hundred. Each is
counted, what it held is free again, and nobody else notices."""
import os
import random
import socket
import struct

import daemon
import peers
from bad_peers import MIB, Ends
from peers import Terminated, call_message, fpdu, mpa_request, tagged, untagged, vanish

FLAG_REJECT = 0x20
ELSEWHERE = "127.0.0.2" # memory is shared out by address, and the bystander's is another
HOLDS = 4 * MIB # what calls of 1 MiB of one connection get at once of the little memory that there is
RECEIVES = MIB // 2 # of a connection that has used all its credits
FIRST_RECEIVES = 3 * 4096 # that count for one that has not


class Terminates(Ends):
    def ends_by_terminate(self, begin, payload=peers.TERMINATE, holds=RECEIVES):
        def attack():
            peer = self.iwarp(source=ELSEWHERE)
            if holds == RECEIVES:
                peer.use_credits()
            begin(peer)
            peer.terminate(payload)
            peer.ended()
            peer.close()
        self.leaves_nothing("iwarp", "peer_terminate", holds, attack)

    def terminate_at_once(self):
        """The first thing after start-up."""
        peer = self.iwarp(source=ELSEWHERE)
        peer.terminate(peers.TERMINATE)
        peer.ended()
        peer.close()

    def test_between_calls(self):
        self.ends_as("iwarp", "peer_terminate", self.terminate_at_once)
        self.ends_by_terminate(lambda peer: None)
        self.ends_by_terminate(lambda peer: peer.mount())

    def test_beside_calls_in_flight(self):
        other, file = self.target()
        self.assertEqual(other.write(file, 0, b"before").nfs_status(), 0)
        data = other.lookup(other.mount(), "file")
        for begin in peers.BESIDE_CALLS:
            with self.subTest(begin=begin.__name__):
                self.ends_by_terminate(lambda peer, begin=begin: begin(peer, file, data),
                                       holds=RECEIVES if begin is peers.inside_a_message else HOLDS)
        with open(os.path.join(self.data, "target"), "rb") as f:
            self.assertEqual(f.read(), b"before")

    def test_one_that_makes_no_sense_is_fatal_too(self):
        for payload in (bytes(4), b"\xff" * 4, b"\xff" * 60):
            self.ends_by_terminate(lambda peer: None, payload)
        before = self.ends("iwarp", "protocol_error") + self.ends("iwarp", "peer_terminate")
        peer = self.iwarp()
        peer.terminate(b"") # no room for what it must say
        peer.ended()
        self.wait_for("end", lambda: self.ends("iwarp", "protocol_error") + self.ends("iwarp", "peer_terminate") > before)

    def test_instead_of_a_start_up_frame(self):
        def attack():
            s = self.plain("iwarp")
            s.sendall(fpdu(untagged(peers.OP_TERMINATE, peers.TERMINATE, queue=2)))
            self.assertEqual(peers.until_closed(s), b"")
        self.ends_as("iwarp", "bad_startup", attack)


class Breaches(Ends):
    """A connection that asks for what it may not have."""

    def refused(self, code, breach):
        """`breach` sends what ends a new connection by a Terminate that tells why."""
        def attack():
            peer = self.iwarp(source=ELSEWHERE)
            peer.use_credits()
            breach(peer)
            with self.assertRaises(Terminated) as caught:
                peer.receive_send()
            self.assertEqual(caught.exception.code, code)
            peer.ended()
            peer.close()
        self.leaves_nothing("iwarp", "access_error protocol_error", RECEIVES, attack)

    def test_the_sink_of_a_read_that_is_over(self):
        """The server's own keys are good for one RDMA Read: afterwards neither a Write nor an answer may use them."""
        _, file = self.target()

        def stale(use):
            def breach(peer):
                xid = peer.begin_write(file, 0, b"good data!")
                peer.receive_send(answer_reads=False)
                sink, at, _, _, _ = peer.reads[0]
                peer.answer_reads()
                proc, rest = peer.answer(xid)
                self.assertEqual((proc, peers.Accepted(rest).nfs_status()), (0, 0))
                peer.raw(use(sink, at, peer.sequence + 1))
            return breach
        self.refused((1, 1, 0), stale(lambda sink, at, _: tagged(peers.OP_WRITE, sink, at, b"stale data")))
        self.refused((0, 2, 6), stale(lambda sink, at, _: tagged(peers.OP_READ_RESPONSE, sink, at, b"stale data")))
        self.refused((0, 1, 9), stale(lambda sink, _, sequence: untagged(peers.OP_SEND_INVALIDATE, call_message(1, 0),
                                                                         sequence=sequence, key=sink)))
        with open(os.path.join(self.data, "target"), "rb") as f:
            self.assertEqual(f.read(), b"good data!")

    def test_keys_that_were_never_given(self):
        key = random.getrandbits(32)
        self.refused((1, 1, 0), lambda peer: peer.raw(tagged(peers.OP_WRITE, key, 0, b"data")))
        self.refused((0, 1, 9), lambda peer: peer.raw(untagged(peers.OP_SEND_INVALIDATE, call_message(1, 0),
                                                                           sequence=peer.sequence + 1, key=key)))

    def test_more_calls_than_credits(self):
        _, file = self.target()

        def attack():
            peer = self.iwarp(source=ELSEWHERE)
            peer.use_credits()
            with self.assertRaises((ConnectionError, Terminated)):
                for _ in range(300):
                    peer.begin_write(file, 0, bytes(32), length=MIB)
                while True:
                    peer.receive_send(answer_reads=False)
            peer.close()
        # At once they may find no receive, which ends the connection too.
        self.leaves_nothing("iwarp", "local no_receive", RECEIVES, attack)

    def test_private_data_of_strangers(self):
        def attack():
            peer = self.iwarp(source=ELSEWHERE, request=mpa_request(private_data=os.urandom(508)))
            self.assertTrue(peer.mount())
            peer.use_credits()
            peer.close()
        self.leaves_nothing("iwarp", "orderly", RECEIVES, attack)


class Vanishing(Ends):
    """Half-open connections: the peer's host knows nothing of them any more, and says so when it is sent something."""
    OF_NFS = "rdma_read_seconds = 1"

    def test_with_replies_on_their_way(self):
        def over_tcp():
            peer = self.tcp(receive_buffer=4096, source=ELSEWHERE)
            file = peer.lookup(peer.mount(), "file")
            for xid in range(8):
                peer.send(call_message(xid, peers.READ, peers.read_arguments(file, 0, MIB)))
            vanish(peer.socket)
        self.leaves_nothing("tcp", "lost", HOLDS, over_tcp)
        def over_iwarp():
            peer = self.iwarp(receive_buffer=4096, source=ELSEWHERE)
            peer.ask_for(peer.lookup(peer.mount(), "file"), peers.IN_FLIGHT)
            vanish(peer.socket)
        self.leaves_nothing("iwarp", "peer_reset", HOLDS, over_iwarp)

    def test_before_an_rdma_read_is_answered(self):
        _, file = self.target()
        def attack():
            peer = self.iwarp(source=ELSEWHERE)
            peers.in_an_rdma_read(peer, file, None)
            vanish(peer.socket) # the next Read Request meets a host that knows nothing of the connection, if there is one
        self.leaves_nothing("iwarp", "peer_reset local", HOLDS, attack)
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)


class UnansweredReads(Ends):
    OF_NFS = "rdma_read_seconds = 1"

    def test_they_end_the_connection(self):
        peer, file = self.target()
        stalled = 'verbena_rpcrdma_errors_total{kind="read_stalled"}'
        def attack():
            stuck = self.iwarp(source=ELSEWHERE)
            peers.in_an_rdma_read(stuck, file, None)
            stuck.ended()
            stuck.close()
        self.leaves_nothing("iwarp", "local", HOLDS, attack)
        self.assertEqual(self.value(stalled), self.ends("iwarp", "local"))
        self.assertEqual(peer.write(file, 0, b"data").nfs_status(), 0)


class Avalanche(Ends):
    PEERS = 600 # a quarter of the memory is for the first receives of all, and a quarter of that for those of one host

    def test_more_connections_than_there_is_memory_for(self):
        rejected = "verbena_rpcrdma_rejected_connections_total"
        before = self.value(rejected)
        sockets = []
        for _ in range(self.PEERS):
            s = self.plain("iwarp")
            s.sendall(mpa_request())
            sockets.append(s)
        taken = []
        for s in sockets:
            reply = s.recv(20, socket.MSG_WAITALL)
            self.assertEqual((len(reply), reply[:16]), (20, peers.REPLY_KEY))
            if reply[16] & FLAG_REJECT:
                peers.until_closed(s)
            else:
                taken.append(s)
        self.assertGreater(len(taken), 10)
        self.assertLessEqual(len(taken), self.MEMORY * MIB // 4 // FIRST_RECEIVES // 4)
        self.counted(rejected, before, self.PEERS - len(taken))
        self.wait_for("ends", lambda: self.ends("iwarp", "rejected") >= self.PEERS - len(taken))
        self.assertLess(self.value("verbena_memory_registered_bytes"), self.MEMORY * MIB)
        self.bystander.check()
        # Whatever one host takes, there is room for others, on each shard.
        others = [self.iwarp(source="127.0.0.3") for _ in range(6)]
        for peer in others:
            self.assertTrue(peer.mount())
            peer.close()
        # They go all at once, in the middle of whatever; the next ones are served.
        orderly = self.ends("iwarp", "orderly") + self.ends("iwarp", "peer_reset")
        for s in taken:
            peers.reset(s)
        self.wait_for("ends", lambda: self.ends("iwarp", "orderly") + self.ends("iwarp", "peer_reset")
                      >= orderly + len(taken))
        self.memory_is_back()
        for _ in range(4):
            self.assertTrue(self.iwarp().mount())

    def test_connects_that_come_and_go(self):
        accepted = 'verbena_connections_accepted_total{transport="iwarp"}'
        before, open_before = self.value(accepted), self.value("process_open_fds")
        for i in range(self.PEERS):
            s = self.plain("iwarp")
            s.sendall(mpa_request()[:i % 25])
            (peers.reset if i % 2 else socket.socket.close)(s)
        self.counted(accepted, before, self.PEERS)
        self.wait_for("descriptors", lambda: self.value("process_open_fds") <= open_before + 10)
        self.bystander.check()
        self.memory_is_back()


class Announced(Ends):
    """Messages of a megabyte that are announced, begun and never finished."""
    PEERS = 400
    BEGUN = 20_000
    MEMORY = 512

    def test_one_host_holds_a_bounded_share(self):
        good = self.tcp(source="127.0.0.3")
        file = good.create(good.mount(), "target")
        call = call_message(1, peers.WRITE, peers.write_arguments(file, 0, bytes(MIB)))
        begin = (struct.pack(">I", 0x80000000 | len(call)) + call)[:self.BEGUN]
        budget = self.value("verbena_memory_budget_bytes")
        waits = self.value("verbena_stream_share_waits_total")
        many = []
        for _ in range(self.PEERS):
            s = socket.socket()
            self.addCleanup(s.close)
            s.bind(("127.0.0.2", 0))
            s.connect(("127.0.0.1", self.daemon.port("tcp")))
            s.sendall(begin)
            many.append(s)
        self.counted_some("verbena_stream_share_waits_total", waits)
        taken = lambda: self.value("verbena_memory_registered_bytes") - self.held # pylint: disable=unnecessary-lambda-assignment
        self.wait_for("memory", lambda: taken() > budget / 16) # each shard comes to its share by itself
        taken = taken()
        self.assertLess(taken, budget / 8 + self.PEERS * 65536 + 40 * MIB)
        # Others write a megabyte at once; this host's small calls are answered too.
        data = random.Random(3).randbytes(MIB)
        self.assertEqual(good.call(peers.WRITE, peers.write_arguments(file, 0, data)).nfs_status(), 0)
        self.assertTrue(self.tcp(source="127.0.0.2").mount())
        self.bystander.check()
        for s in many:
            peers.reset(s)
        self.memory_is_back()
        # What they held is free again for their host too.
        again = self.tcp(source="127.0.0.2")
        self.assertEqual(again.call(peers.WRITE, peers.write_arguments(file, 0, data)).nfs_status(), 0)
        with open(os.path.join(self.data, "target"), "rb") as f:
            self.assertEqual(f.read(), data)


if __name__ == "__main__":
    daemon.main()
