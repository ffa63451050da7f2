#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that break the rules: each costs one connection or gets an error, is counted, takes bounded memory,
and disturbs nobody."""
import os
import random
import resource
import socket
import struct
import time

import daemon
import peers
from bad_peers import MIB, BadPeers
from peers import Terminated, call_message, fpdu, mpa_request, opaque, tagged, untagged


class Silence(BadPeers):
    COUNT = 10_000
    FIRST = 1_000 # what these take once, some 500 KiB, is no connection's
    PER_CONNECTION = 1024

    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(hard, self.FIRST + self.COUNT + 500)
        try: # the server is started with what this process has
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (ValueError, PermissionError) as e:
            self.fail(f"this test needs {wanted} descriptors, and the hard limit is {hard} (ulimit -Hn): {e}")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (min(soft, wanted), wanted))
        super().setUp()

    def test_ten_thousand_connects_that_send_nothing(self):
        open_before = self.value("process_open_fds")
        silent = []
        self.connect(silent, self.FIRST)
        before = self.value("process_resident_memory_bytes")
        self.connect(silent, self.COUNT)
        grown = self.value("process_resident_memory_bytes") - before
        self.assertLessEqual(grown, self.COUNT * self.PER_CONNECTION * daemon.memory_factor())
        self.bystander.check()
        # Each one is closed by the server.
        for s in silent:
            self.assertEqual(peers.until_closed(s), b"")
            s.close()
        self.wait_for("ends", lambda: self.ends("iwarp", "startup_timeout") + self.ends("iwarp", "startup_crowded")
                      >= len(silent))
        self.wait_for("descriptors", lambda: self.value("process_open_fds") <= open_before + 10)
        # And the next one is served.
        self.iwarp().mount()

    def connect(self, silent, count):
        for _ in range(count):
            s = socket.socket()
            silent.append(s)
            s.connect(("127.0.0.1", self.daemon.port("iwarp")))
        accepted = 'verbena_connections_accepted_total{transport="iwarp"}'
        self.wait_for("accepted", lambda: self.value(accepted) >= len(silent))


class Descriptors(BadPeers):
    def test_more_connects_than_descriptors(self):
        pid = self.daemon.process.pid
        in_use = len(os.listdir(f"/proc/{pid}/fd"))
        limit = in_use + 50
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
        many = [self.plain("tcp") for _ in range(100)] # those it can't take wait in the kernel's queue
        until = time.monotonic() + peers.LIMIT
        while len(os.listdir(f"/proc/{pid}/fd")) < limit:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.bystander.check()
        for s in many:
            s.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        # Accepting goes on by itself.
        self.tcp().mount()
        self.assertGreaterEqual(self.value('verbena_listener_failures_total{reason="exhausted"}'), 1)


class TcpRecords(BadPeers):
    def test_records(self):
        self.ends_as("tcp", "record_too_long", lambda: self.hostile(struct.pack(">I", 0xffffffff) + bytes(100)))
        # The sum counts, not one fragment.
        fragment = struct.pack(">I", 600_000) + bytes(600_000)
        self.ends_as("tcp", "record_too_long", lambda: self.hostile(fragment + fragment))
        self.ends_as("tcp", "too_many_fragments", lambda: self.hostile((struct.pack(">I", 1) + b"x") * 100_000))
        # Cut off in the middle.
        def cut():
            s = self.plain("tcp")
            s.sendall(struct.pack(">I", 0x80000000 | 1000) + bytes(10))
            s.shutdown(socket.SHUT_WR)
            peers.until_closed(s)
        self.ends_as("tcp", "closed_by_peer", cut)

    def hostile(self, data):
        s = self.plain("tcp")
        try:
            s.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass # it has seen enough
        peers.until_closed(s)

    def test_calls_cut_short(self):
        peer = self.tcp()
        whole = call_message(5, peers.LOOKUP, opaque(bytes(28)) + opaque(b"name"))
        header = len(call_message(5, peers.LOOKUP))
        unanswered = self.value("verbena_stream_unanswered_total")
        for size in range(0, header, 4):
            peer.send(whole[:size])
        silent = len(range(0, header, 4)) # but for those that are denied
        garbage = len(range(header, len(whole), 4))
        for size in range(header, len(whole), 4):
            peer.send(whole[:size])
        peer.send(call_message(6, peers.GETATTR, opaque(self.tcp().mount())))
        # Calls without a wait are answered in the order of their coming.
        while (reply := peer.receive()).xid != 6:
            self.assertEqual(reply.xid, 5)
            if reply.denied:
                silent -= 1
                self.assertEqual(reply.status, 1) # AUTH_ERROR
            elif reply.status == 4:               # GARBAGE_ARGS
                garbage -= 1
        self.assertEqual((reply.nfs_status(), garbage), (0, 0))
        self.counted("verbena_stream_unanswered_total", unanswered, silent)
        errors = 'verbena_rpc_errors_total{program="nfs",version="3",procedure="LOOKUP",transport="tcp"}'
        self.counted(errors, 0, len(range(header, len(whole), 4)))

    def test_absurd_arguments(self):
        peer = self.tcp()
        root = peer.mount()
        file = peer.lookup(root, "file")
        garbage = 4
        for procedure, arguments in (
                (peers.GETATTR, struct.pack(">I", 65) + bytes(68)),          # a handle has 64 bytes at most
                (peers.GETATTR, struct.pack(">I", 0xffffffff) + bytes(64)),
                (peers.LOOKUP, opaque(root) + struct.pack(">I", 0xfffffffc) + b"name"),
                (peers.WRITE, peers.write_arguments(file, 0, b"data")[:-8]),
                (peers.WRITE, opaque(file) + struct.pack(">Q3I", 0, 4, 7, 4) + b"data")): # no such stable_how
            self.assertEqual(peer.call(procedure, arguments).status, garbage)
        # A credential of 401 bytes: MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
        refused = self.adds_to('verbena_rpc_refusals_total{reason="auth_error"}', lambda: peer.call(
            peers.GETATTR, opaque(root), credential=struct.pack(">I", 1) + opaque(bytes(401))))
        self.assertEqual((refused.denied, refused.status, refused.why), (1, 1, 1))
        errors = 'verbena_nfs_errors_total{version="3",operation="%s",status="NFS3ERR_%s"}'
        forged = bytes([root[0]]) + bytes(b ^ 1 for b in root[1:])
        reply = self.adds_to('verbena_nfs_refusals_total{reason="handle"}',
                             lambda: self.adds_to(errors % ("GETATTR", "BADHANDLE"),
                                                  lambda: peer.call(peers.GETATTR, opaque(forged))))
        self.assertEqual(reply.nfs_status(), 10001)
        reply = self.adds_to(errors % ("WRITE", "FBIG"), lambda: peer.call(
            peers.WRITE, peers.write_arguments(file, (1 << 64) - 2, b"data")))
        self.assertEqual(reply.nfs_status(), 27)
        # Beyond the end there is nothing; a count beyond all limits is cut.
        reply = peer.call(peers.READ, peers.read_arguments(file, (1 << 64) - 1, 0xffffffff))
        self.assertEqual((reply.nfs_status(), peers.read_data(reply.results)), (0, b""))
        reply = peer.call(peers.READ, peers.read_arguments(file, 0, 0xffffffff))
        self.assertEqual(peers.read_data(reply.results), self.content)
        for name, status in ((b"a/b", 22), (b"x" * 256, 63), (b"a\0b", 22), (b"..", 0)):
            reply = peer.call(peers.LOOKUP, opaque(root) + opaque(name))
            self.assertEqual(reply.nfs_status(), status, name)
        with open(os.path.join(self.data, "file"), "rb") as f:
            self.assertEqual(f.read(), self.content)

    def test_a_peer_that_stops_reading(self):
        peer = self.tcp(receive_buffer=4096)
        file = peer.lookup(peer.mount(), "file")
        before = self.value("process_resident_memory_bytes")
        pauses = self.value("verbena_stream_pauses_total")
        peer.socket.setblocking(False)
        call = call_message(1, peers.READ, peers.read_arguments(file, 0, MIB))
        record = struct.pack(">I", 0x80000000 | len(call)) + call
        sent = 0
        # 200 MiB of replies, if anybody took them; or until the server reads no more.
        try:
            while sent < 200 * len(record):
                sent += peer.socket.send(record)
        except BlockingIOError:
            pass
        self.counted_some("verbena_stream_pauses_total", pauses)
        self.bystander.check()
        # A byte now and then changes nothing: the server waits, and holds what it held.
        for _ in range(20):
            peer.socket.settimeout(peers.LIMIT)
            self.assertEqual(len(peer.socket.recv(1)), 1)
        self.bystander.check()
        self.assertLess(self.value("process_resident_memory_bytes") - before, 64 * MIB * daemon.memory_factor())
        peers.reset(peer.socket)
        self.wait_for("calls over", lambda: self.value("verbena_stream_calls_in_flight") <= 1)


class Startup(BadPeers):
    def attempt(self, data, half_close=False):
        s = self.plain("iwarp")
        s.sendall(data)
        if half_close:
            s.shutdown(socket.SHUT_WR)
        self.assertEqual(peers.until_closed(s), b"")

    def test_frames(self):
        for cause, frame in (
                ("bad_startup", mpa_request(key=b"MPA ID Rep Frame")),
                ("bad_startup", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                ("bad_startup", mpa_request(length=0xffff)),
                ("bad_startup", mpa_request(length=513)),
                ("bad_startup", mpa_request(length=3)),
                ("bad_startup", mpa_request(flags=0x30)), # a request that rejects
                ("revision_refused", mpa_request(revision=0)),
                ("revision_refused", mpa_request(revision=1)),
                ("revision_refused", mpa_request(revision=255, flags=0)),
                ("markers_refused", mpa_request(flags=0x90))):
            self.ends_as("iwarp", cause, lambda f=frame: self.attempt(f))
        whole = mpa_request(private_data=bytes(100))
        for size in (0, 1, 19, 20, 21, 24, len(whole) - 1):
            self.ends_as("iwarp", "peer_reset", lambda n=size: self.attempt(whole[:n], half_close=True))

    def test_a_frame_that_never_ends(self):
        began = [self.plain("iwarp") for _ in range(3)]
        began[0].sendall(mpa_request()[:10])
        began[1].sendall(mpa_request(private_data=bytes(100))[:-1])
        began[2].sendall(mpa_request(length=512))
        before = self.ends("iwarp", "startup_timeout")
        for s in began:
            self.assertEqual(peers.until_closed(s), b"")
        self.wait_for("startup_timeout", lambda: self.ends("iwarp", "startup_timeout") >= before + 3)

    def test_private_data_of_strangers(self):
        # The longest there is, and the magic of RFC 8797 with what it does not allow.
        for data in (bytes(508), b"\xff" * 508, bytes.fromhex("f6ab0e18ff"), bytes.fromhex("f6ab0e18ffffffff")):
            peer = self.iwarp(request=mpa_request(private_data=data))
            self.assertTrue(peer.mount())
            peer.close()


class Segments(BadPeers):
    def refused(self, cause, code, *ulpdus, length=None):
        """A connection that sends `ulpdus` is told why in a Terminate, and ends for `cause`."""
        def attack():
            peer = self.iwarp()
            for ulpdu in ulpdus:
                peer.raw(ulpdu, length)
            with self.assertRaises(Terminated) as caught:
                peer.receive_send()
            self.assertEqual(caught.exception.code, code)
            peer.ended()
            peer.close()
        with self.subTest(cause=cause, code=code):
            self.ends_as("iwarp", cause, attack)

    def test_headers(self):
        null = call_message(1, 0)
        good = struct.pack(">4I", 1, 1, 1, 0) + bytes(12) + null
        refused = self.refused
        refused("protocol_error", (2, 0, 3), tagged(0, 1, 0, bytes(16)), length=3)      # shorter than its header
        for size in (0, 1, 2, 13): # and nothing after it
            refused("protocol_error", (2, 0, 3), tagged(0, 1, 0, b"")[:size])
        for size in (14, 17):
            refused("protocol_error", (2, 0, 3), untagged(3, b"")[:size])
        refused("protocol_error", (2, 0, 3), untagged(peers.OP_READ_REQUEST, bytes(10), queue=1))
        refused("protocol_error", (1, 2, 6), untagged(3, good, control=0x4040))         # DDP version 0
        refused("protocol_error", (1, 1, 4), struct.pack(">HIQ", 0xc240, 1, 0))         # of a tagged message: 2
        refused("protocol_error", (0, 2, 5), untagged(3, good, control=0x4180))         # RDMAP version 2
        for op in (0, 2, 10, 15):
            refused("protocol_error", (0, 2, 6), untagged(op, good))
        for op in (8, 9): # immediate data (RFC 7306), which has 8 octets
            refused("protocol_error", (1, 2, 5), untagged(op, good))
            refused("protocol_error", (1, 2, 1), untagged(op, bytes(8), queue=1))
            refused("protocol_error", (1, 2, 3), untagged(op, bytes(8), sequence=2))
        for op in (1, 3, 7, 15):
            refused("protocol_error", (0, 2, 6), tagged(op, 1, 0, b"data"))
        refused("protocol_error", (1, 2, 1), untagged(3, good, queue=1))
        refused("protocol_error", (1, 2, 1), untagged(3, good, queue=0xffffffff))
        refused("protocol_error", (1, 2, 3), untagged(3, good, sequence=2))
        refused("protocol_error", (1, 2, 4), untagged(3, good, offset=4))
        refused("no_receive", (1, 2, 2), untagged(3, bytes(5000)))                      # longer than any receive
        refused("no_receive", (1, 2, 2), *(untagged(3, bytes(1000), offset=1000 * i, control=0x0140)
                                           for i in range(6)))

    def test_memory_of_others(self):
        # Nothing here may be touched by a peer: each key is forged, stale or another's.
        other = self.iwarp()
        other.mount()
        refused = self.refused
        for key in (0, 1, 0xffffffff, random.getrandbits(32)):
            refused("access_error", (1, 1, 0), tagged(peers.OP_WRITE, key, 0, b"data"))
            refused("access_error", (0, 1, 9),
                    untagged(peers.OP_SEND_INVALIDATE, call_message(1, 0), key=key))
        # IRD is 0: a requester has nothing to read.
        request = struct.pack(">IQIIQ", 1, 0, 100, 2, 0)
        refused("protocol_error", (1, 2, 2), untagged(peers.OP_READ_REQUEST, request, queue=1))
        refused("protocol_error", (0, 2, 6), tagged(peers.OP_READ_RESPONSE, 1, 0, b"data"))
        self.assertTrue(other.mount())

    def test_answers_to_a_read_that_do_not_match(self):
        size = 100_000
        for code, cause, answer in (
                ((1, 1, 0), "access_error", lambda sink, at: tagged(2, sink ^ 1, at, bytes(100), False)),
                ((1, 1, 0), "access_error", lambda sink, at: tagged(2, sink, at + 4, bytes(100), False)),
                ((1, 1, 0), "access_error", lambda sink, at: tagged(peers.OP_WRITE, sink, at, bytes(100))),
                ((1, 1, 1), "protocol_error", lambda sink, at: tagged(2, sink, at, bytes(100), True))):
            def attack():
                peer = self.iwarp()
                file = peer.create(peer.mount(), "target")
                peer.begin_write(file, 0, bytes(size))
                peer.receive_send(answer_reads=False)
                sink, at, _, _, _ = peer.reads[0]
                peer.raw(answer(sink, at)) # pylint: disable=cell-var-from-loop
                with self.assertRaises(Terminated) as caught:
                    peer.receive_send()
                self.assertEqual(caught.exception.code, code) # pylint: disable=cell-var-from-loop
                peer.ended()
                peer.close()
            self.ends_as("iwarp", cause, attack)
        # Longer than what was asked for.
        def too_long():
            peer = self.iwarp()
            file = peer.create(peer.mount(), "target")
            peer.begin_write(file, 0, bytes(size))
            peer.receive_send(answer_reads=False)
            sink, at, _, _, _ = peer.reads[0]
            for begin in range(0, size + 20_000, 20_000):
                peer.raw(tagged(2, sink, at + begin, bytes(20_000), False))
            with self.assertRaises(Terminated) as caught:
                peer.receive_send()
            self.assertEqual(caught.exception.code[:2], (1, 1))
            peer.ended()
            peer.close()
        before = self.ends("iwarp", "access_error") + self.ends("iwarp", "protocol_error")
        too_long()
        self.wait_for("end", lambda: self.ends("iwarp", "access_error") + self.ends("iwarp", "protocol_error")
                      > before)
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)

    def test_cut_anywhere(self):
        whole = fpdu(untagged(3, struct.pack(">4I", 1, 1, 1, 0) + bytes(12) + call_message(1, 0)))
        for size in (1, 2, 10, 19, 20, 21, len(whole) - 5, len(whole) - 1):
            def attack():
                peer = self.iwarp()
                peer.socket.sendall(whole[:size]) # pylint: disable=cell-var-from-loop
                peer.socket.shutdown(socket.SHUT_WR)
                peer.ended()
            self.ends_as("iwarp", "peer_reset", attack)


class Headers(BadPeers):
    """RPC over RDMA (RFC 8166 4.5)."""

    def setUp(self):
        super().setUp()
        self.peer = self.iwarp()
        self.root = self.peer.mount()
        self.file = self.peer.lookup(self.root, "file")

    def errors(self, kind):
        return f'verbena_rpcrdma_errors_total{{kind="{kind}"}}'

    def chunk_error(self, message, xid=77):
        before = self.value(self.errors("chunk"))
        self.peer.send(message)
        self.assertEqual(self.peer.answer(xid), (4, struct.pack(">I", 2)))
        self.counted(self.errors("chunk"), before)

    def test_headers(self):
        peer, null = self.peer, call_message(77, 0)
        good = peer.message(77, null)
        dropped = self.value(self.errors("dropped"))
        for size in (0, 1, 4, 16, 27):
            peer.send(good[:size])
        self.counted(self.errors("dropped"), dropped, 5)
        for version in (0, 2, 0xffffffff):
            before = self.value(self.errors("version"))
            peer.send(peer.message(77, null, version=version))
            self.assertEqual(peer.answer(77), (4, struct.pack(">3I", 1, 1, 1)))
            self.counted(self.errors("version"), before)
        for proc in (2, 5, 0xffffffff): # RDMA_MSGP and what does not exist
            self.chunk_error(peer.message(77, null, proc=proc))
        self.chunk_error(peer.message(77, b"", proc=1))   # RDMA_NOMSG without a chunk
        self.chunk_error(peer.message(77, null[:2]))      # no RPC message
        self.chunk_error(peer.message(77, call_message(78, 0)))
        # RDMA_DONE and RDMA_ERROR are not for us.
        peer.send(peer.message(77, b"", proc=3))
        peer.send(struct.pack(">5I", 77, 1, 1, 4, 2))
        self.counted(self.errors("dropped"), dropped, 7)
        self.assertEqual(peer.mount(), self.root)

    def test_chunk_lists(self):
        peer = self.peer
        rpc = call_message(77, peers.GETATTR, opaque(self.root))
        start = struct.pack(">4I", 77, 1, 32, 0)
        everything = 0xffffffff
        many_reads = b"".join(struct.pack(">4IQ", 1, 4 * i, 1, 100, 0) for i in range(150))
        for lists in (
                struct.pack(">I", 2) + bytes(20),                             # neither true nor false
                struct.pack(">I", 1) + bytes(8),                              # cut short
                struct.pack(">4IQ", 1, 2, 1, 4, 0) + bytes(12),               # at no XDR item
                many_reads + bytes(12),
                bytes(4) + struct.pack(">2I", 1, everything),                 # a Write chunk of 2^32 segments
                bytes(4) + struct.pack(">2I", 1, 100) + bytes(16 * 100) + bytes(8),
                bytes(4) + struct.pack(">2I", 1, 0) * 20 + bytes(8),          # 20 Write chunks
                bytes(8) + struct.pack(">2I", 1, everything),                 # a Reply chunk
                bytes(8) + struct.pack(">2I", 1, 200) + bytes(16 * 200)):
            self.chunk_error(start + lists + rpc)
        for reads in ([(len(rpc), 1, everything)] * 64, [(40, 1, everything)],    # more than any call
                      [(0, 1, 200), (400, 1, 100)],                              # RDMA_MSG with Position Zero
                      [(1 << 31, 1, 4), (1 << 30, 1, 4)],                        # behind the end
                      [(0xfffffffc, 1, 0), (0, 1, 0)]):
            self.chunk_error(peer.message(77, rpc, reads=reads))
        # Segments that wrap round at the end of memory, without length, or in a Read list for no argument:
        # nothing of them is touched.
        peer.send(peer.message(77, rpc, writes=[[(1, everything)] * 60], reply=[(1, everything)] * 60))
        # The header that says so takes the room of the reply, which goes into the Reply chunk.
        peer.memory[1] = bytearray(200)
        self.assertEqual(peer.answer(77), (1, b""))
        self.assertEqual(peers.Accepted(bytes(peer.memory[1])).nfs_status(), 0)
        # A READ whose Write chunk is too small, and has no Reply chunk.
        read = call_message(77, peers.READ, peers.read_arguments(self.file, 0, MIB))
        self.chunk_error(peer.message(77, read, writes=[[(1, 100)]]))
        self.chunk_error(peer.message(77, read))
        self.assertEqual(peer.mount(), self.root)

    def test_a_read_chunk_of_a_client_with_ird_0(self):
        peer = self.iwarp(request=mpa_request(ird=0))
        target = peer.create(peer.mount(), "target")
        before = self.value(self.errors("chunk"))
        xid = peer.begin_write(target, 0, bytes(100_000))
        self.assertEqual(peer.answer(xid), (4, struct.pack(">I", 2))) # ERR_CHUNK
        self.counted(self.errors("chunk"), before)
        self.assertEqual(peer.mount(), self.root)
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)

    def test_a_client_killed_in_the_middle_of_a_read(self):
        target = self.peer.create(self.root, "target")
        self.assertEqual(self.peer.write(target, 0, b"before").nfs_status(), 0)
        held = self.value("verbena_memory_registered_bytes")
        size = MIB
        for placed in (0, 1, 30_000, size - 1):
            def attack():
                peer = self.iwarp()
                peer.begin_write(target, 0, b"\xee" * size)
                peer.receive_send(answer_reads=False)
                sink, at, _, _, _ = peer.reads[0]
                for begin in range(0, placed, 32768): # pylint: disable=cell-var-from-loop
                    part = bytes(min(32768, placed - begin)) # pylint: disable=cell-var-from-loop
                    peer.raw(tagged(2, sink, at + begin, part, False))
                peers.reset(peer.socket)
            failed = self.value(self.errors("read"))
            self.ends_as("iwarp", "peer_reset", attack)
            self.counted(self.errors("read"), failed)
        with open(os.path.join(self.data, "target"), "rb") as f:
            self.assertEqual(f.read(), b"before")
        # What was held for them is free again: no more than the pools keep for reuse.
        self.wait_for("memory", lambda: self.value("verbena_memory_registered_bytes") <= held + 8 * MIB)

    def test_credits(self):
        target = self.peer.create(self.root, "target")
        calls = "verbena_rpcrdma_calls_total"
        # Calls that wait for their RDMA Reads, which are never answered: one connection may have 128 of
        # them, and 8 messages that need no credit. Nobody else's are counted here.
        self.bystander.stop()
        peer = self.iwarp()
        peer.use_credits()
        before = self.value(self.errors("credits"))
        begun = self.value(calls)
        for _ in range(130):
            peer.begin_write(target, 0, bytes(32), length=4096)
        self.counted(calls, begun, 130)
        self.assertEqual(self.value(self.errors("credits")), before)
        for _ in range(7):
            peer.begin_write(target, 0, bytes(32), length=4096)
        peer.ended()
        self.counted(self.errors("credits"), before)
        self.bystander = self.begin_bystander()
        # All at once they may find no receive, which ends the connection too.
        before = self.value(self.errors("credits")) + self.ends("iwarp", "no_receive")
        peer = self.iwarp()
        peer.use_credits()
        with self.assertRaises((ConnectionError, Terminated)):
            for _ in range(1000):
                peer.begin_write(target, 0, bytes(32), length=4096)
            while True:
                peer.receive_send(answer_reads=False)
        peer.close()
        self.wait_for("end", lambda: self.value(self.errors("credits")) + self.ends("iwarp", "no_receive") > before)
        self.bystander.check()
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)

    def test_chunks_of_one_connection_take_a_bounded_share(self):
        target = self.peer.create(self.root, "target")
        held = self.value("verbena_memory_registered_bytes")
        waits = self.value("verbena_rpcrdma_chunk_waits_total")
        peer = self.iwarp()
        peer.use_credits()
        for _ in range(100): # 100 MiB, none of which comes
            peer.begin_write(target, 0, b"", length=MIB)
        self.counted_some("verbena_rpcrdma_chunk_waits_total", waits)
        self.bystander.check()
        self.assertLess(self.value("verbena_memory_registered_bytes") - held, 80 * MIB)
        peers.reset(peer.socket)
        self.wait_for("memory", lambda: self.value("verbena_memory_registered_bytes") <= held + 40 * MIB)

    def test_all_connections_of_one_address_take_a_bounded_share(self):
        target = self.peer.create(self.root, "target")
        held = self.value("verbena_memory_registered_bytes")
        budget = self.value("verbena_memory_budget_bytes")
        waits = self.value("verbena_rpcrdma_chunk_waits_total")
        many = [self.iwarp(source="127.0.0.2") for _ in range(24)] # 8 for each shard: together all of the budget
        for peer in many:
            peer.call(0)
            for _ in range(peer.credits + 8): # as many as it may send, and there is room for
                peer.begin_write(target, 0, b"", length=MIB)
        self.counted_some("verbena_rpcrdma_chunk_waits_total", waits, least=24)
        self.bystander.check()
        taken = self.value("verbena_memory_registered_bytes") - held
        receives = 24 * 136 * 4096
        self.assertGreater(taken, budget / 16)
        self.assertLess(taken, budget / 8 + receives + 3 * 8 * MIB)
        # A host that holds nothing is served at once.
        other = self.iwarp(source="127.0.0.3")
        self.assertEqual(other.write(target, 0, bytes(MIB)).nfs_status(), 0)
        for peer in many:
            peers.reset(peer.socket)
        # What they held is free again for their address too.
        self.assertEqual(self.iwarp(source="127.0.0.2").write(target, 0, bytes(MIB)).nfs_status(), 0)

    def test_a_peer_that_stops_reading(self):
        held = self.value("verbena_memory_registered_bytes")
        waits = self.value("verbena_rpcrdma_chunk_waits_total")
        peer = self.iwarp(receive_buffer=4096)
        root = peer.mount()
        file = peer.lookup(root, "file")
        peer.use_credits()
        for i in range(100):
            read = call_message(i, peers.READ, peers.read_arguments(file, 0, MIB))
            peer.send(peer.message(i, read, writes=[[(1, MIB)]]))
        self.counted_some("verbena_rpcrdma_chunk_waits_total", waits)
        for _ in range(20):
            self.assertEqual(len(peer.socket.recv(1)), 1)
        self.bystander.check()
        self.assertLess(self.value("verbena_memory_registered_bytes") - held, 80 * MIB)
        before = self.ends("iwarp", "peer_reset")
        peers.reset(peer.socket)
        self.wait_for("end", lambda: self.ends("iwarp", "peer_reset") > before)

    def test_an_orderly_end_is_no_reset(self):
        peer = self.iwarp()
        peer.mount()
        self.ends_as("iwarp", "orderly", peer.close)
        # One that is reset is news, and told after it.
        broken = self.iwarp()
        broken.mount()
        peers.reset(broken.socket)
        self.wait_for("log", lambda: "connection ended" in self.daemon.log())
        self.assertEqual(self.daemon.log().count("connection ended"), 1)


if __name__ == "__main__":
    daemon.main()
