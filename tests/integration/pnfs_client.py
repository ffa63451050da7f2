# SPDX-License-Identifier: Apache-2.0
"""A client of NFSv4.1 with RDMA layouts that is made of Python's sockets alone: it shares no code with the library.

Formats: RFC 8881 (NFSv4.1), RFC 5665 (universal addresses), draft-hellwig-nfsv4-rdma-layout-00 (layouts), RFC 5044,
5041, 5040, 6581 (iWARP), and docs/internals/pnfs.md for the private data of the connection.
"""
import itertools
import queue
import socket
import struct
import threading

import peers
from peers import opaque

LIMIT = peers.LIMIT

OK, NOTSUPP = 0, 10004
DELAY, GRACE, BADIOMODE, BADLAYOUT, LAYOUTTRYLATER, LAYOUTUNAVAILABLE, NOMATCHING_LAYOUT, RECALLCONFLICT = (
    10008, 10013, 10049, 10050, 10058, 10059, 10060, 10061)
(CLOSE, GETATTR, GETFH, LOOKUP, OPEN, PUTFH, PUTROOTFH, READ, SETATTR, WRITE, EXCHANGE_ID, CREATE_SESSION, GETDEVICEINFO,
 LAYOUTCOMMIT, LAYOUTGET, LAYOUTRETURN, SEQUENCE, RECLAIM_COMPLETE) = (
     4, 9, 10, 15, 18, 22, 24, 25, 34, 38, 42, 43, 47, 49, 50, 51, 53, 58)
CB_LAYOUTRECALL, CB_SEQUENCE = 5, 11
CB_PROGRAM = 0x40000000
USE_PNFS_MDS = 0x20000
LAYOUT4_RDMA = 0x80000006
READ_LAYOUT, RW_LAYOUT = 1, 2 # iomode
READ_WRITE_DATA, READ_DATA, INVALID_DATA, NONE_DATA = range(4)
TO_THE_END = 2**64 - 1
SIZE, MODE, FS_LAYOUT_TYPES, LAYOUT_BLKSIZE = 4, 33, 62, 65 # attributes
NO_DELEGATION = 0x400 # OPEN4_SHARE_ACCESS_WANT_NO_DELEG
ANONYMOUS = bytes(16)


def words(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


def bitmap(*bits):
    out = [0] * (max(bits, default=-1) // 32 + 1)
    for bit in bits:
        out[bit // 32] |= 1 << bit % 32
    return words(len(out), *out)


class Reader:
    """XDR."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        assert self.at + size <= len(self.data), "the message is too short"
        self.at += size
        return self.data[self.at - size:self.at]

    def word(self):
        return struct.unpack(">I", self.take(4))[0]

    def hyper(self):
        return struct.unpack(">Q", self.take(8))[0]

    def flag(self):
        value = self.word()
        assert value in (0, 1), value
        return value == 1

    def opaque(self):
        size = self.word()
        data = self.take(size)
        assert self.take(-size % 4) == bytes(-size % 4)
        return data

    def bitmap(self):
        value = 0
        for i in range(self.word()):
            value |= self.word() << 32 * i
        return {bit for bit in range(value.bit_length()) if value >> bit & 1}

    def end(self):
        assert self.at == len(self.data), f"{len(self.data) - self.at} octets more than there should be"


class Refused(Exception):
    """An operation's status."""

    def __init__(self, operation, status):
        self.operation, self.status = operation, status
        super().__init__(f"operation {operation}: {status}")


class Extent:
    """pnfs_rdma_extent4."""

    def __init__(self, reader):
        self.device = reader.take(16)
        self.offset, self.handle, self.length, self.storage, self.state = struct.unpack(">QIQQI", reader.take(32))


class Layout:
    """What LAYOUTGET answered: the stateid, and all extents in their order."""

    def __init__(self, reader):
        self.return_on_close = reader.flag()
        self.stateid = reader.take(16)
        self.extents, self.ranges = [], []
        for _ in range(reader.word()):
            offset, length, iomode = reader.hyper(), reader.hyper(), reader.word()
            assert reader.word() == LAYOUT4_RDMA
            body = Reader(reader.opaque())
            extents = [Extent(body) for _ in range(body.word())]
            body.end()
            self.ranges.append((offset, length, iomode))
            self.extents += extents

    def at(self, offset):
        """The extent that has a byte of the file."""
        return next(e for e in self.extents if e.offset <= offset < e.offset + e.length)


class Recall:
    """CB_LAYOUTRECALL of a file."""

    def __init__(self, reader):
        self.type, self.iomode, self.changed, self.kind = (reader.word(), reader.word(), reader.flag(), reader.word())
        assert self.kind == 1, "a recall of more than a file"
        self.file, self.offset, self.length, self.stateid = (
            reader.opaque(), reader.hyper(), reader.hyper(), reader.take(16))


class Client:
    """One connection by TCP with both channels. `recalls` gets what the server asks back; each is answered at once, by OK,
    or by what `answer` yields for it."""

    xids = itertools.count(0x70000)

    def __init__(self, port, name, host="127.0.0.1", answer=None):
        self.answer = answer or (lambda recall: OK)
        self.recalls = queue.Queue()
        self.replies = queue.Queue()
        self.failure = None
        self.owner = name
        self.socket = socket.create_connection((host, port), timeout=LIMIT)
        self.socket.settimeout(None)
        self.sending = threading.Lock()
        self.sequence = 0
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()
        self.thread.join(LIMIT)

    # --- messages ---

    def send(self, message):
        with self.sending:
            self.socket.sendall(words(0x80000000 | len(message)) + message)

    def record(self):
        message, last = b"", False
        while not last:
            (mark,) = struct.unpack(">I", self.take(4))
            last = mark >= 0x80000000
            message += self.take(mark & 0x7fffffff)
        return message

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def listen(self):
        try:
            while True:
                message = self.record()
                if message[4:8] == words(0):
                    self.called(Reader(message))
                else:
                    self.replies.put(message)
        except OSError:
            self.replies.put(None)
        except Exception as e: # pylint: disable=broad-except
            self.failure = e
            self.replies.put(None)

    def called(self, call):
        """A call of the server's (RFC 8881 20)."""
        xid, _, version, program, _, procedure = struct.unpack(">6I", call.take(24))
        assert (version, program) == (2, CB_PROGRAM)
        for _ in range(2): # credential and verifier
            call.word()
            call.opaque()
        accepted = words(xid, 1, 0, 0, 0, 0)
        if procedure == 0:
            return self.send(accepted)
        tag, minor, _, count = call.opaque(), call.word(), call.word(), call.word()
        assert minor == 1
        results, status, done = b"", OK, 0
        recalled = None
        for _ in range(count):
            operation = call.word()
            if operation == CB_SEQUENCE:
                session, sequence, slot, highest = call.take(16), call.word(), call.word(), call.word()
                assert session == self.session
                call.flag()
                assert call.word() == 0, "referring calls"
                results += words(CB_SEQUENCE, OK) + session + words(sequence, slot, highest, highest)
            else:
                assert operation == CB_LAYOUTRECALL, operation
                recalled = Recall(call)
                status = self.answer(recalled)
                results += words(CB_LAYOUTRECALL, status)
            done += 1
        call.end()
        self.send(accepted + words(status) + opaque(tag) + words(done) + results)
        if recalled:
            self.recalls.put(recalled)

    def recalled(self):
        """Waits for the next recall."""
        return self.recalls.get(timeout=LIMIT)

    def compound(self, *operations):
        """The results behind the tag, of which the caller knows the form."""
        xid = next(self.xids)
        body = opaque(b"") + words(1, len(operations)) + b"".join(operations)
        self.send(peers.call_message(xid, 1, body, version=4))
        message = self.replies.get(timeout=LIMIT)
        if message is None:
            raise AssertionError(f"the connection is gone: {self.failure}")
        reply = peers.Accepted(message)
        assert reply.xid == xid and not reply.denied and reply.status == 0
        results = Reader(reply.results)
        self.status = results.word()
        results.opaque()
        results.word()
        return results

    @staticmethod
    def result(results, operation):
        """The head of an operation's result."""
        got, status = results.word(), results.word()
        assert got == operation, (got, operation)
        if status != OK:
            raise Refused(operation, status)

    def connect(self):
        exchange = words(EXCHANGE_ID) + b"\1" * 8 + opaque(self.owner) + words(USE_PNFS_MDS, 0, 0)
        results = self.compound(exchange)
        self.result(results, EXCHANGE_ID)
        self.id, next_one, self.flags = results.hyper(), results.word(), results.word()
        fore = words(0, 1 << 20, 1 << 20, 4096, 16, 16, 0)
        back = words(0, 4096, 4096, 0, 4, 1, 0)
        results = self.compound(words(CREATE_SESSION) + struct.pack(">QII", self.id, next_one, 2) + fore + back
                                + words(CB_PROGRAM, 1, 0))
        self.result(results, CREATE_SESSION)
        self.session = results.take(16)
        results.word()
        assert results.word() & 2, "the server has no back channel"
        self.call(words(RECLAIM_COMPLETE, 0))
        return self

    def call(self, *operations):
        """In the session; the results behind SEQUENCE's."""
        while True:
            self.sequence += 1
            results = self.compound(words(SEQUENCE) + self.session + words(self.sequence, 0, 0, 0), *operations)
            self.result(results, SEQUENCE)
            results.take(16 + 16)
            self.lease_flags = results.word()
            return results

    # --- files ---

    def look_up(self, *names):
        """A file handle."""
        results = self.call(words(PUTROOTFH), *(words(LOOKUP) + opaque(n) for n in names), words(GETFH))
        self.result(results, PUTROOTFH)
        for _ in names:
            self.result(results, LOOKUP)
        self.result(results, GETFH)
        return results.opaque()

    def open(self, directory, name, access=3, create=True):
        """(handle, stateid)."""
        how = words(1, 0) + bitmap(MODE) + opaque(words(0o644)) if create else words(0)
        results = self.call(words(PUTFH) + opaque(directory),
                            words(OPEN, 0, access | NO_DELEGATION, 0) + struct.pack(">Q", self.id) + opaque(b"owner") + how
                            + words(0) + opaque(name), words(GETFH))
        self.result(results, PUTFH)
        self.result(results, OPEN)
        stateid = results.take(16)
        results.take(20 + 4)
        results.bitmap()
        kind = results.word()
        assert kind in (0, 3), "a delegation that was not wanted"
        if kind == 3 and results.word() in (1, 2): # OPEN_DELEGATE_NONE_EXT; contention, resource
            results.word()
        self.result(results, GETFH)
        return results.opaque(), stateid

    def on(self, handle, operation, arguments):
        """One operation on a file; the results behind its status."""
        results = self.call(words(PUTFH) + opaque(handle), words(operation) + arguments)
        self.result(results, PUTFH)
        self.result(results, operation)
        return results

    def shut(self, handle, stateid):
        self.on(handle, CLOSE, words(0) + stateid)

    def write(self, handle, stateid, offset, data):
        results = self.on(handle, WRITE, stateid + struct.pack(">QI", offset, 2) + opaque(data))
        assert results.word() == len(data)

    def read(self, handle, stateid, offset, count):
        results = self.on(handle, READ, stateid + struct.pack(">QI", offset, count))
        results.flag()
        return results.opaque()

    def set_size(self, handle, size, stateid=ANONYMOUS):
        self.on(handle, SETATTR, stateid + bitmap(SIZE) + opaque(struct.pack(">Q", size)))

    def attribute(self, handle, bit):
        """The octets of one attribute."""
        results = self.on(handle, GETATTR, bitmap(bit))
        assert results.bitmap() == {bit}
        return results.opaque()

    def size(self, handle):
        return struct.unpack(">Q", self.attribute(handle, SIZE))[0]

    # --- layouts ---

    def layout(self, handle, stateid, iomode, offset=0, length=TO_THE_END, least=1):
        results = self.on(handle, LAYOUTGET, words(0, LAYOUT4_RDMA, iomode) + struct.pack(">3Q", offset, length, least)
                          + stateid + words(1 << 16))
        got = Layout(results)
        results.end()
        return got

    def give_back(self, handle, layout_stateid, offset=0, length=TO_THE_END, iomode=3):
        """The next stateid, or None if nothing is left."""
        results = self.on(handle, LAYOUTRETURN, words(0, LAYOUT4_RDMA, iomode, 1) + struct.pack(">2Q", offset, length)
                          + layout_stateid + opaque(b""))
        stateid = results.take(16) if results.flag() else None
        results.end()
        return stateid

    def commit(self, handle, layout_stateid, last, offset=0, length=TO_THE_END, ranges=()):
        """`last`: the offset of the last octet written. Yields the file's size, if it is another one now."""
        body = words(len(ranges)) + b"".join(struct.pack(">2Q", *r) for r in ranges)
        results = self.on(handle, LAYOUTCOMMIT, struct.pack(">2QI", offset, length, 0) + layout_stateid
                          + struct.pack(">IQ", 1, last) + words(0) + words(LAYOUT4_RDMA) + opaque(body))
        size = results.hyper() if results.flag() else None
        results.end()
        return size

    def device(self, device):
        """(netid, universal address)."""
        results = self.call(words(GETDEVICEINFO) + device + words(LAYOUT4_RDMA, 4096) + bitmap())
        self.result(results, GETDEVICEINFO)
        assert results.word() == LAYOUT4_RDMA
        body = Reader(results.opaque())
        netid, address = body.opaque().decode(), body.opaque().decode()
        body.end()
        results.bitmap()
        results.end()
        return netid, address


def endpoint(netid, universal):
    """RFC 5665 5.2.3.3 and 5.2.3.4."""
    assert netid in ("rdma", "rdma6"), netid
    host, high, low = universal.rsplit(".", 2)
    assert (":" in host) == (netid == "rdma6")
    return host, int(high) * 256 + int(low)


class Rejected(Exception):
    """The data server's reason (docs/internals/pnfs.md)."""

    def __init__(self, data):
        assert data[:4] == b"pNFR" and data[4] == 1, data
        self.reason = data[5]
        super().__init__(f"reason {self.reason}")


class DataConnection:
    """A connection to a data server: RDMA Writes and Reads by iWARP, whose side here is the initiator's."""

    SEGMENT = 16384 # of an RDMA Write

    def __init__(self, where, client, device, crc=False, version=1):
        private = b"pNFR" + bytes([version, 0, 0, 0]) + struct.pack(">Q", client.id) + client.session + device + bytes(4)
        assert len(private) == 52
        flags = (peers.FLAG_CRC if crc else 0) | peers.FLAG_ENHANCED
        depths = struct.pack(">2H", 0, 4) # IRD, ORD
        self.socket = socket.create_connection(where, timeout=LIMIT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reads = 0
        self.crc = crc
        try:
            self.begin(flags, depths + private)
        except BaseException:
            self.close()
            raise

    def begin(self, flags, data):
        self.socket.sendall(peers.REQUEST_KEY + struct.pack(">BBH", flags, 2, len(data)) + data)
        head = self.take(20)
        assert head[:16] == peers.REPLY_KEY, head
        flags, revision, length = struct.unpack(">BBH", head[16:])
        assert revision == 2 and flags & peers.FLAG_ENHANCED, head
        data = self.take(length)[4:]
        if flags & 0x20:
            raise Rejected(data)
        self.crc = self.crc or bool(flags & peers.FLAG_CRC)
        assert data[:8] == b"pNFR" + bytes([1, 0, 0, 0]), data

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the data server closed the connection")
            data += more
        return data

    def close(self):
        self.socket.close()

    frame = peers.IwarpPeer.frame

    def write(self, key, at, data):
        """Places nothing for sure until a read() behind it has been answered."""
        for begin in range(0, len(data), self.SEGMENT):
            part = data[begin:begin + self.SEGMENT]
            last = begin + len(part) == len(data)
            self.socket.sendall(peers.fpdu(peers.tagged(peers.OP_WRITE, key, at + begin, part, last), crc=self.crc))

    def read(self, key, at, size):
        self.reads += 1
        sink, sink_at = 0x5100 + self.reads, 0x10000
        request = struct.pack(">IQIIQ", sink, sink_at, size, key, at)
        self.socket.sendall(peers.fpdu(peers.untagged(peers.OP_READ_REQUEST, request, queue=1, sequence=self.reads),
                                       crc=self.crc))
        data = b""
        while True:
            control, header, payload = self.frame()
            if control & 15 == peers.OP_TERMINATE:
                raise peers.Terminated(payload)
            assert control & 15 == peers.OP_READ_RESPONSE, control
            assert struct.unpack(">IQ", header) == (sink, sink_at + len(data))
            data += payload
            if control & 0x4000:
                assert len(data) == size
                return data

    # Of a layout.

    def put(self, layout, offset, data):
        """Writes a range of the file, and waits until it is placed."""
        while data:
            extent = layout.at(offset)
            assert extent.state in (READ_WRITE_DATA, INVALID_DATA), extent.state
            size = min(len(data), extent.offset + extent.length - offset)
            self.write(extent.handle, extent.storage + offset - extent.offset, data[:size])
            data, offset = data[size:], offset + size
        self.read(extent.handle, extent.storage, 1)

    def get(self, layout, offset, size):
        data = b""
        while len(data) < size:
            extent = layout.at(offset + len(data))
            part = min(size - len(data), extent.offset + extent.length - offset - len(data))
            if extent.state == NONE_DATA:
                data += bytes(part)
            else:
                data += self.read(extent.handle, extent.storage + offset + len(data) - extent.offset, part)
        return data
