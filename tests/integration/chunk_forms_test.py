#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every form in which a call and its reply may travel over RDMA (RFC 8166 sections 3.4 to 4.6)."""
import os
import random
import struct
import time

import daemon
import peers
from peers import IwarpPeer, call_message, opaque

MSG, NOMSG, MSGP, DONE, ERROR = range(5)
READLINK, SYMLINK, READDIR = 5, 10, 16
UNTOUCHED = 0xa5


class ChunkForms(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.content = random.Random(3).randbytes(50_001)
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(self.content)
        self.daemon = self.start("--shards", "1")
        self.peer = IwarpPeer(self.daemon.port("iwarp"))
        self.addCleanup(self.peer.close)
        self.root = self.peer.mount()
        self.file = self.peer.lookup(self.root, "file")

    def tearDown(self):
        # Whatever a test sent, the connection goes on.
        self.assertEqual(self.peer.mount(), self.root)
        super().tearDown()

    # --- memory for the responder, and what it made of it ---

    def space(self, *lengths):
        """A chunk of segments, each in memory of its own with 8 octets to spare on both sides."""
        return [(self.peer.grant(bytes([UNTOUCHED]) * (length + 16)), length, 8) for length in lengths]

    def taken(self, chunk, returned):
        """The octets written to a chunk; fails if anything else of it was written or returned."""
        self.assertEqual([(key, offset) for key, _, offset in returned],
                         [(key, offset) for key, _, offset in chunk])
        data = b""
        for (key, room, offset), (_, length, _) in zip(chunk, returned):
            self.assertLessEqual(length, room)
            memory = bytes(self.peer.memory[key])
            data += memory[offset:offset + length]
            self.assertEqual(len(memory), room + 16)
            self.assertEqual(set(memory[:offset] + memory[offset + length:]), {UNTOUCHED})
        return data

    @staticmethod
    def lengths(chunk):
        return [length for _, length, _ in chunk]

    def granted(self, position, *pieces):
        """Read segments that hold `pieces`, one in the middle of its memory each."""
        return [(position, self.peer.grant(b"\xee" * 12 + piece + b"\xee" * 12), len(piece), 12) for piece in pieces]

    def ask(self, rpc, **lists):
        xid, = struct.unpack(">I", rpc[:4])
        self.peer.send(self.peer.message(xid, rpc, **lists))
        answer = self.peer.answer_with_lists(xid)
        self.assertGreaterEqual(self.peer.credits, 1)
        return answer

    # --- calls ---

    def rpc(self, procedure, arguments):
        return call_message(next(self.peer.xids), procedure, arguments)

    def read_call(self, offset, count, handle=None):
        return self.rpc(peers.READ, peers.read_arguments(handle or self.file, offset, count))

    def write_call(self, handle, size, offset=0):
        """A WRITE up to the count of its data: what follows is the data item."""
        return self.rpc(peers.WRITE, opaque(handle) + struct.pack(">Q3I", offset, size, 0, size))

    def reads(self, rpc, body, size):
        """A READ's reply whose data item lies elsewhere: all that comes with it."""
        reply = peers.Accepted(body)
        self.assertEqual(reply.xid, struct.unpack(">I", rpc[:4])[0])
        self.assertEqual(reply.nfs_status(), 0)
        # status, attributes, count, eof, and the count word that stays (RFC 8166 3.4.3); no pad (3.4.4.4).
        self.assertEqual(len(reply.results), 4 + 88 + 4 + 4 + 4)
        count, _, length = struct.unpack(">3I", reply.results[92:])
        self.assertEqual((count, length), (size, size))

    def written(self, answer, size, name, data):
        proc, writes, reply, body = answer
        self.assertEqual((proc, writes, reply), (MSG, [], None))
        done = peers.Accepted(body)
        self.assertEqual(done.nfs_status(), 0)
        self.assertEqual(struct.unpack(">I", done.results[-16:-12])[0], size)
        with open(os.path.join(self.data, name), "rb") as file:
            self.assertEqual(file.read(), data)

    # --- Read lists ---

    def new(self, name="target"):
        return self.peer.create(self.root, name)

    def write_forms(self, make, size=20_003):
        """`make(call, data)` gives message()'s arguments for a WRITE of `data`."""
        data = random.Random(size).randbytes(size)
        rpc = self.write_call(self.new(), size)
        rest, lists = make(rpc, data)
        xid, = struct.unpack(">I", rpc[:4])
        self.peer.send(self.peer.message(xid, rest, **lists))
        self.written(self.peer.answer_with_lists(xid), size, "target", data)
        os.unlink(os.path.join(self.data, "target")) # the next form begins with an empty one

    def copied(self):
        return self.daemon.metric('verbena_payload_copied_bytes_total{transport="rpcrdma"}')

    def test_argument_inline(self):
        self.write_forms(lambda rpc, data: (rpc + data + bytes(-len(data) % 4), {}), 301)

    def test_argument_in_one_read_chunk(self):
        self.write_forms(lambda rpc, data: (rpc, {"reads": self.granted(len(rpc), data)}))
        self.assertEqual(self.copied(), 0)

    def test_argument_in_many_segments(self):
        def make(rpc, data):
            cuts = [0, 1, 1, 4099, 9000, 9003, 16_000, len(data)] # an empty one, too, and odd lengths
            pieces = [data[a:b] for a, b in zip(cuts, cuts[1:])]
            return rpc, {"reads": self.granted(len(rpc), *pieces)}
        self.write_forms(make)

    def test_argument_whose_pad_is_in_the_chunk(self): # 3.4.5.2: receivers take both forms
        for pad_apart in (False, True):
            with self.subTest(pad_apart=pad_apart):
                pad = b"\x77" # whatever it holds
                self.write_forms(lambda rpc, data: (rpc, {"reads": self.granted(
                    len(rpc), *((data, pad) if pad_apart else (data + pad,)))})) # pylint: disable=cell-var-from-loop

    def test_call_in_a_position_zero_chunk(self):
        def make(rpc, data):
            whole = rpc + data + bytes(-len(data) % 4)
            return b"", {"proc": NOMSG, "reads": self.granted(0, whole)}
        self.write_forms(make)

    def test_call_in_a_position_zero_chunk_of_many_segments(self):
        def make(rpc, data):
            whole = rpc + data + bytes(-len(data) % 4)
            return b"", {"proc": NOMSG, "reads": self.granted(0, whole[:1], whole[1:30], whole[30:7001], whole[7001:])}
        self.write_forms(make)

    def test_position_zero_chunk_and_a_normal_one(self):
        for pieces in (1, 3):
            with self.subTest(pieces=pieces):
                def make(rpc, data):
                    part = -(-len(data) // pieces) # pylint: disable=cell-var-from-loop
                    cut = [data[i:i + part] for i in range(0, len(data), part)]
                    return b"", {"proc": NOMSG, "reads": self.granted(0, rpc[:64], rpc[64:])
                                 + self.granted(len(rpc), *cut)}
                self.write_forms(make)

    def several(self, data, long_call):
        """SYMLINK with its name and its path in chunks of their own. A name is no data item (RFC 8267 4.1), and what is none can't be decoded."""
        name = b"link7"
        head = self.rpc(SYMLINK, opaque(self.root) + struct.pack(">I", len(name)))
        between = bytes(4 * 6) + struct.pack(">I", len(data)) # no attributes; the count of the path
        # Positions count the stream as if nothing were taken out, pads included (3.4.5).
        first = len(head)
        second = first + len(name) + 3 + len(between)
        reads = self.granted(first, name[:2], name[2:]) + self.granted(second, data[:10], data[10:])
        inline = head + between # the pads are gone with their items (3.4.4.4)
        if long_call:
            reads = self.granted(0, inline) + reads
        xid, = struct.unpack(">I", head[:4])
        self.peer.send(self.peer.message(xid, b"" if long_call else inline, reads=reads,
                                         proc=NOMSG if long_call else MSG))
        proc, body = self.peer.answer(xid)
        answer = peers.Accepted(body)
        self.assertEqual((proc, bool(answer.denied), answer.status), (MSG, False, 4)) # GARBAGE_ARGS
        self.assertFalse(os.path.lexists(os.path.join(self.data, name.decode())))

    def test_several_read_chunks(self):
        self.several(b"there/" * 100 + b"x", False)

    def test_several_read_chunks_and_position_zero(self):
        self.several(b"there/" * 100 + b"x", True)

    def test_a_read_chunk_behind_the_arguments_is_not_fetched(self):
        rpc = self.rpc(peers.GETATTR, opaque(self.root))
        self.assertEqual(self.daemon.metric('verbena_rpcrdma_chunk_bytes_total{direction="read"}'), 0)
        _, _, _, body = self.ask(rpc, reads=self.granted(len(rpc), b"more"))
        self.assertEqual(peers.Accepted(body).nfs_status(), 0)
        self.assertEqual(self.daemon.metric('verbena_rpcrdma_chunk_bytes_total{direction="read"}'), 0)

    # --- Write lists ---

    def test_result_in_one_write_chunk(self):
        for offset, size in ((0, 1), (5, 4096), (1, 40_002), (0, 50_001)):
            with self.subTest(size=size):
                rpc, chunk = self.read_call(offset, size), self.space(size)
                proc, writes, reply, body = self.ask(rpc, writes=[chunk])
                self.assertEqual((proc, len(writes), reply), (MSG, 1, None))
                self.reads(rpc, body, size)
                self.assertEqual(self.taken(chunk, writes[0]), self.content[offset:offset + size])

    def test_segments_are_filled_in_order(self): # 3.4.6: unused ones return with length 0
        rpc, chunk = self.read_call(0, 20_000), self.space(1, 4096, 0, 7, 15_000, 3000, 4)
        proc, writes, _, body = self.ask(rpc, writes=[chunk])
        self.assertEqual((proc, len(writes)), (MSG, 1))
        self.reads(rpc, body, 20_000)
        self.assertEqual(self.lengths(writes[0]), [1, 4096, 0, 7, 15_000, 896, 0])
        self.assertEqual(self.taken(chunk, writes[0]), self.content[:20_000])

    def test_a_short_result_and_room_for_a_pad(self): # 3.4.6.2: no pad is written
        rpc, chunk = self.read_call(50_000 - 4094, 8192), self.space(8192, 4)
        proc, writes, _, body = self.ask(rpc, writes=[chunk])
        self.assertEqual(proc, MSG)
        self.reads(rpc, body, 4095)
        self.assertEqual(self.lengths(writes[0]), [4095, 0])
        self.assertEqual(self.taken(chunk, writes[0]), self.content[-4095:])

    def test_several_write_chunks(self): # 4.3.2: the first takes the item, the others return unused
        rpc, chunks = self.read_call(0, 9001), [self.space(5000, 5000), self.space(9001), self.space(1, 1)]
        proc, writes, _, body = self.ask(rpc, writes=chunks)
        self.assertEqual(proc, MSG)
        self.reads(rpc, body, 9001)
        self.assertEqual([self.lengths(w) for w in writes], [[5000, 4001], [0], [0, 0]])
        self.assertEqual([self.taken(*pair) for pair in zip(chunks, writes)], [self.content[:9001], b"", b""])

    def test_an_empty_write_chunk(self): # 4.3.2.3: its item comes inline
        for behind in ([], [self.space(301)]):
            with self.subTest(behind=len(behind)):
                rpc = self.read_call(2, 301)
                proc, writes, _, body = self.ask(rpc, writes=[[], *behind])
                self.assertEqual((proc, len(writes), writes[0]), (MSG, 1 + len(behind), []))
                done = peers.Accepted(body)
                self.assertEqual(peers.read_data(done.results), self.content[2:303])
                self.assertEqual(len(done.results), 104 + 304)
                for chunk, returned in zip(behind, writes[1:]):
                    self.assertEqual(self.taken(chunk, returned), b"")
                    self.assertEqual(self.lengths(returned), [0])

    def test_an_empty_write_chunk_behind_one_in_use(self):
        rpc, chunk = self.read_call(0, 2000), self.space(2000)
        proc, writes, _, body = self.ask(rpc, writes=[chunk, []])
        self.assertEqual((proc, writes[1]), (MSG, []))
        self.reads(rpc, body, 2000)
        self.assertEqual(self.taken(chunk, writes[0]), self.content[:2000])

    def test_write_chunks_without_a_result(self): # 4.3.2.2: they return unused
        missing = bytes(len(self.file) - 1) + b"\1"
        for rpc, good in ((self.read_call(100_000, 1000), True),              # behind the end: no octet
                          (self.read_call(0, 1000, handle=missing), False),   # an error: no data item
                          (self.rpc(peers.GETATTR, opaque(self.file)), True)): # no such item
            chunks = [self.space(500, 500), self.space(1000)]
            proc, writes, _, body = self.ask(rpc, writes=chunks)
            self.assertEqual((proc, peers.Accepted(body).nfs_status() == 0), (MSG, good))
            self.assertEqual([self.lengths(w) for w in writes], [[0, 0], [0]])
            self.assertEqual([self.taken(*pair) for pair in zip(chunks, writes)], [b"", b""])

    def test_link_text_in_a_write_chunk(self):
        os.symlink("over/there", os.path.join(self.data, "link"))
        link = self.peer.lookup(self.root, "link")
        rpc, chunk = self.rpc(READLINK, opaque(link)), self.space(3, 1024)
        proc, writes, _, body = self.ask(rpc, writes=[chunk])
        self.assertEqual((proc, peers.Accepted(body).nfs_status()), (MSG, 0))
        self.assertEqual(len(peers.Accepted(body).results), 4 + 88 + 4)
        self.assertEqual(self.lengths(writes[0]), [3, 7])
        self.assertEqual(self.taken(chunk, writes[0]), b"over/there")

    # --- Reply chunks ---

    def whole_read(self, rpc, stream, size):
        """A READ's whole reply in one piece, pad included (3.5.3)."""
        done = peers.Accepted(stream)
        self.assertEqual(done.xid, struct.unpack(">I", rpc[:4])[0])
        self.assertEqual(done.nfs_status(), 0)
        self.assertEqual(peers.read_data(done.results), self.content[:size])
        self.assertEqual(done.results[104 + size:], bytes(-size % 4))

    def test_reply_in_a_reply_chunk(self):
        for segments in ([12_000], [1, 27, 9000, 0, 1500, 4]):
            with self.subTest(segments=len(segments)):
                rpc, chunk = self.read_call(0, 9001), self.space(*segments)
                proc, writes, reply, body = self.ask(rpc, reply=chunk)
                self.assertEqual((proc, writes, body), (NOMSG, [], b""))
                self.whole_read(rpc, self.taken(chunk, reply), 9001)

    def test_reply_inline_beside_a_reply_chunk(self): # 4.3.3: then its lengths are 0
        rpc, chunk = self.rpc(peers.GETATTR, opaque(self.file)), self.space(400, 400)
        proc, writes, reply, body = self.ask(rpc, reply=chunk)
        self.assertEqual((proc, writes), (MSG, []))
        self.assertEqual(peers.Accepted(body).nfs_status(), 0)
        self.assertEqual(self.lengths(reply), [0, 0])
        self.assertEqual(self.taken(chunk, reply), b"")

    def test_a_long_listing_in_a_reply_chunk(self):
        names = {f"entry-{i:03}" for i in range(100)}
        for name in names:
            os.mkdir(os.path.join(self.data, name))
        rpc, chunk = self.rpc(READDIR, opaque(self.root) + bytes(16) + struct.pack(">I", 8192)), self.space(3000, 6000)
        proc, _, reply, body = self.ask(rpc, reply=chunk)
        self.assertEqual((proc, body), (NOMSG, b""))
        stream = self.taken(chunk, reply)
        self.assertEqual(peers.Accepted(stream).nfs_status(), 0)
        self.assertEqual({name for name in names if name.encode() in stream}, names)

    # --- lists together ---

    def test_write_list_and_reply_chunk_with_a_short_reply(self):
        rpc, chunk, spare = self.read_call(0, 9001), self.space(9001), self.space(2000)
        proc, writes, reply, body = self.ask(rpc, writes=[chunk], reply=spare)
        self.assertEqual(proc, MSG)
        self.reads(rpc, body, 9001)
        self.assertEqual(self.taken(chunk, writes[0]), self.content[:9001])
        self.assertEqual((self.lengths(reply), self.taken(spare, reply)), ([0], b""))

    def test_write_list_and_reply_chunk_with_a_long_reply(self):
        # So many segments that the header which returns them leaves no room for a reply.
        rpc, chunk, spare = self.read_call(0, 9001), self.space(*[160] * 58), self.space(100, 500)
        proc, writes, reply, body = self.ask(rpc, writes=[chunk], reply=spare)
        self.assertEqual((proc, body), (NOMSG, b""))
        self.assertEqual(self.lengths(writes[0]), [160] * 56 + [41, 0])
        self.assertEqual(self.taken(chunk, writes[0]), self.content[:9001])
        self.reads(rpc, self.taken(spare, reply), 9001)

    def test_an_empty_write_chunk_and_a_reply_chunk(self): # the item goes where the reply goes
        rpc, spare = self.read_call(0, 9001), self.space(12_000)
        proc, writes, reply, body = self.ask(rpc, writes=[[]], reply=spare)
        self.assertEqual((proc, writes, body), (NOMSG, [[]], b""))
        self.whole_read(rpc, self.taken(spare, reply), 9001)

    def test_position_zero_chunk_and_a_write_chunk(self):
        rpc, chunk = self.read_call(0, 9001), self.space(9001)
        xid, = struct.unpack(">I", rpc[:4])
        self.peer.send(self.peer.message(xid, b"", proc=NOMSG, reads=self.granted(0, rpc), writes=[chunk]))
        proc, writes, _, body = self.peer.answer_with_lists(xid)
        self.assertEqual(proc, MSG)
        self.reads(rpc, body, 9001)
        self.assertEqual(self.taken(chunk, writes[0]), self.content[:9001])

    def test_position_zero_chunk_and_a_reply_chunk(self):
        rpc, chunk = self.read_call(0, 9001), self.space(12_000)
        xid, = struct.unpack(">I", rpc[:4])
        self.peer.send(self.peer.message(xid, b"", proc=NOMSG, reads=self.granted(0, rpc), reply=chunk))
        proc, _, reply, body = self.peer.answer_with_lists(xid)
        self.assertEqual((proc, body), (NOMSG, b""))
        self.whole_read(rpc, self.taken(chunk, reply), 9001)

    def test_all_three_lists(self):
        data = random.Random(9).randbytes(7001)
        rpc = self.write_call(self.new(), len(data))
        chunk, spare = self.space(100), self.space(400)
        proc, writes, reply, body = self.ask(rpc, reads=self.granted(len(rpc), data[:5000], data[5000:]),
                                             writes=[chunk], reply=spare)
        self.assertEqual((self.lengths(writes[0]), self.lengths(reply)), ([0], [0]))
        self.assertEqual((self.taken(chunk, writes[0]), self.taken(spare, reply)), (b"", b""))
        self.written((proc, [], None, body), 7001, "target", data)

    # --- what nobody may send any more (4.6) ---

    def test_rdma_msgp_is_refused(self):
        rpc = self.rpc(peers.GETATTR, opaque(self.file))
        xid, = struct.unpack(">I", rpc[:4])
        for padding in (b"", struct.pack(">2I", 4, 1024)): # with rdma_align and rdma_thresh, and without
            message = self.peer.message(xid, b"", proc=MSGP)
            self.peer.send(message[:16] + padding + message[16:] + rpc)
            self.assertEqual(self.peer.answer(xid), (ERROR, struct.pack(">I", 2)))

    def test_rdma_done_is_dropped(self):
        series = 'verbena_rpcrdma_errors_total{kind="dropped"}'
        before = self.daemon.metric(series) or 0
        for body in (b"", self.rpc(peers.GETATTR, opaque(self.file))):
            self.peer.send(self.peer.message(5, body, proc=DONE))
        limit = time.monotonic() + peers.LIMIT
        while (self.daemon.metric(series) or 0) < before + 2:
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)
        # tearDown() sees that the next answer is that to the next call.


if __name__ == "__main__":
    daemon.main()
