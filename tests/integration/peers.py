# SPDX-License-Identifier: Apache-2.0
"""Clients that speak byte by byte: NFS over TCP and over iWARP, right or wrong as a test wants it.

Formats: RFC 5531 (RPC), 1813 (NFS, MOUNT), 5044, 5041, 5040, 6581 (iWARP), 8166 (RPC over RDMA).
"""
import itertools
import os
import socket
import struct
import time
import threading

LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1")) # seconds for anything that must come
TCP_REPAIR = 19 # linux/tcp.h
MIB = 1 << 20

NFS, MOUNT = 100003, 100005
GETATTR, LOOKUP, READ, WRITE, CREATE, MKDIR, REMOVE, RENAME, COMMIT = 1, 3, 6, 7, 8, 9, 12, 14, 21


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def auth_sys(uid=0, gid=0):
    return struct.pack(">I", 1) + opaque(struct.pack(">I", 1) + opaque(b"peer") + struct.pack(">3I", uid, gid, 0))


def call_message(xid, procedure, arguments=b"", program=NFS, version=3, credential=None):
    return (struct.pack(">6I", xid, 0, 2, program, version, procedure) + (credential or auth_sys())
            + struct.pack(">2I", 0, 0) + arguments)


class Accepted:
    """A reply: accept status and results."""

    def __init__(self, message):
        self.xid, kind, self.denied = struct.unpack(">3I", message[:12])
        assert kind == 1
        if self.denied:
            self.status, self.why = struct.unpack(">2I", message[12:20])
            return
        (verifier,) = struct.unpack(">I", message[16:20])
        begin = 20 + verifier
        (self.status,) = struct.unpack(">I", message[begin:begin + 4])
        self.results = message[begin + 4:]

    def nfs_status(self):
        assert not self.denied and self.status == 0, (self.denied, self.status)
        return struct.unpack(">I", self.results[:4])[0]


def handle_behind(results, at):
    (size,) = struct.unpack(">I", results[at:at + 4])
    return results[at + 4:at + 4 + size]


def read_data(results):
    """Of a READ3resok."""
    at = 4 + 4 + (84 if results[4:8] == b"\0\0\0\1" else 0) + 8
    return handle_behind(results, at)


def read_arguments(handle, offset, count):
    return opaque(handle) + struct.pack(">QI", offset, count)


def write_arguments(handle, offset, data, stable=0, count=None):
    return (opaque(handle) + struct.pack(">Q2I", offset, len(data) if count is None else count, stable)
            + opaque(data))


class Calls:
    """What can be asked once call() sends a procedure and returns what was answered."""

    xids = itertools.count(0x10000)

    def nfs(self, procedure, arguments=b""):
        return self.call(procedure, arguments)

    def mount(self, path="/export"):
        reply = self.call(1, opaque(path.encode()), program=MOUNT)
        assert reply.nfs_status() == 0, reply.nfs_status()
        return handle_behind(reply.results, 4)

    def lookup(self, directory, name):
        reply = self.call(LOOKUP, opaque(directory) + opaque(name.encode()))
        assert reply.nfs_status() == 0, reply.nfs_status()
        return handle_behind(reply.results, 4)

    def create(self, directory, name):
        # UNCHECKED, mode 0644 and no other attribute.
        how = struct.pack(">3I", 0, 1, 0o644) + bytes(4 * 5)
        reply = self.call(CREATE, opaque(directory) + opaque(name.encode()) + how)
        assert reply.nfs_status() == 0, reply.nfs_status()
        return handle_behind(reply.results, 8)


class TcpPeer(Calls):
    def __init__(self, port, receive_buffer=0, source=None):
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(LIMIT)
        self.socket.connect(("127.0.0.1", port))

    def send(self, message):
        self.socket.sendall(struct.pack(">I", 0x80000000 | len(message)) + message)

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the server closed the connection")
            data += more
        return data

    def receive(self):
        message, last = b"", False
        while not last:
            (mark,) = struct.unpack(">I", self.take(4))
            last = mark >= 0x80000000
            message += self.take(mark & 0x7fffffff)
        return Accepted(message)

    def call(self, procedure, arguments=b"", **more):
        xid = next(self.xids)
        self.send(call_message(xid, procedure, arguments, **more))
        reply = self.receive()
        assert reply.xid == xid
        return reply

    def ended(self):
        """Waits for the server to close; what came before it."""
        return until_closed(self.socket)

    def close(self):
        self.socket.close()


def until_closed(s):
    s.settimeout(LIMIT)
    seen = b""
    try:
        while more := s.recv(65536):
            seen = (seen + more)[-65536:]
    except ConnectionResetError:
        pass
    return seen


def reset(s):
    """Ends a connection as a process that is killed does with bytes unread."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def vanish(s):
    """The connection is gone here, and the other end is told nothing: as if the host had lost its power and come back. What
    the other end sends is answered with a reset."""
    try:
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError as e:
        raise AssertionError("a connection that vanishes needs CAP_NET_ADMIN: run this as root") from e
    s.close()


# --- iWARP ---

REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
FLAG_CRC, FLAG_ENHANCED = 0x40, 0x10
# Layer 0 (RDMAP), type 2 (remote operation), code 0xff: unspecified, nothing of the header that failed.
TERMINATE = struct.pack(">I", 0x02ff0000)
CRC_TABLE = []
for entry in range(256):
    for _ in range(8):
        entry = entry >> 1 ^ (0x82f63b78 if entry & 1 else 0)
    CRC_TABLE.append(entry)
OP_WRITE, OP_READ_REQUEST, OP_READ_RESPONSE, OP_SEND, OP_SEND_INVALIDATE, OP_TERMINATE = 0, 1, 2, 3, 4, 7


def mpa_request(key=REQUEST_KEY, flags=FLAG_ENHANCED, revision=2, ird=16, ord_=16, private_data=b"", length=None):
    data = struct.pack(">2H", ird, ord_) + private_data
    return key + struct.pack(">BBH", flags, revision, len(data) if length is None else length) + data


def crc32c(data):
    crc = 0xffffffff
    for octet in data:
        crc = CRC_TABLE[(crc ^ octet) & 0xff] ^ crc >> 8
    return struct.pack("<I", crc ^ 0xffffffff)


def fpdu(ulpdu, length=None, crc=False):
    size = len(ulpdu) if length is None else length
    frame = struct.pack(">H", size) + ulpdu + bytes(-(len(ulpdu) + 2) % 4)
    return frame + (crc32c(frame) if crc else bytes(4))


def untagged(op, payload, queue=0, sequence=1, offset=0, key=0, control=0x4140):
    return struct.pack(">H4I", control | op, key, queue, sequence, offset) + payload


def tagged(op, key, offset, payload, last=True):
    return struct.pack(">HIQ", (0xc140 if last else 0x8140) | op, key, offset) + payload


class Terminated(Exception):
    """The server's Terminate: layer, type and code of RFC 5040 4.8."""

    def __init__(self, payload):
        self.code = (payload[0] >> 4, payload[0] & 15, payload[1])
        super().__init__(str(self.code))


class IwarpPeer(Calls):
    """Memory that the server may touch lies in self.memory: key -> bytearray."""

    def __init__(self, port, request=None, receive_buffer=0, source=None, host="127.0.0.1"):
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(LIMIT)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = mpa_request() if request is None else request
        self.socket.sendall(request)
        reply = self.take(20)
        assert reply[:16] == REPLY_KEY
        self.flags = reply[16]
        self.crc = bool((request[16] | self.flags) & FLAG_CRC)
        self.take(struct.unpack(">H", reply[18:20])[0])
        self.sequence = 0
        self.memory = {}
        self.keys = itertools.count(0x1001)
        self.reads = [] # Read Requests that wait for answer_reads()
        self.credits = 1

    take = TcpPeer.take
    ended = TcpPeer.ended
    close = TcpPeer.close

    def raw(self, ulpdu, length=None):
        self.socket.sendall(fpdu(ulpdu, length, self.crc))

    def send(self, message):
        self.sequence += 1
        self.raw(untagged(OP_SEND, message, sequence=self.sequence))

    def grant(self, data):
        key = next(self.keys)
        self.memory[key] = bytearray(data)
        return key

    def frame(self):
        """The next FPDU: (control, header, payload)."""
        length = self.take(2)
        (size,) = struct.unpack(">H", length)
        ulpdu = self.take(size)
        trailer = self.take(-(size + 2) % 4 + 4)
        assert not self.crc or crc32c(length + ulpdu + trailer[:-4]) == trailer[-4:]
        (control,) = struct.unpack(">H", ulpdu[:2])
        cut = 14 if control & 0x8000 else 18
        return control, ulpdu[2:cut], ulpdu[cut:]

    def receive_send(self, answer_reads=True):
        """The next whole Send; Writes are placed, Read Requests answered unless told otherwise."""
        message = b""
        while True:
            control, header, payload = self.frame()
            op = control & 15
            if op == OP_WRITE:
                key, offset = struct.unpack(">IQ", header)
                self.memory[key][offset:offset + len(payload)] = payload
            elif op in (OP_SEND, OP_SEND_INVALIDATE):
                message += payload
                if control & 0x4000:
                    return message
            elif op == OP_READ_REQUEST:
                self.reads.append(struct.unpack(">IQIIQ", payload))
                if not answer_reads:
                    return None
                self.answer_reads()
            elif op == OP_TERMINATE:
                raise Terminated(payload)
            else:
                raise AssertionError(f"opcode {op}")

    def answer_reads(self):
        for sink, at, size, key, offset in self.reads:
            data = self.memory[key][offset:offset + size]
            for begin in range(0, size, 32768):
                part = bytes(data[begin:begin + 32768])
                self.raw(tagged(OP_READ_RESPONSE, sink, at + begin, part, begin + len(part) == size))
        self.reads.clear()

    def message(self, xid, rpc, reads=(), writes=(), reply=None, proc=0, version=1, credits=1000):
        """RFC 8166 4.1; reads: (position, segment), writes: lists of segments, reply: such a list.
        A segment is (key, length) or (key, length, offset)."""
        def segment(key, length, offset=0):
            return struct.pack(">2IQ", key, length, offset)
        def segments(of):
            return struct.pack(">I", len(of)) + b"".join(segment(*s) for s in of)
        text = struct.pack(">4I", xid, version, credits, proc)
        text += b"".join(struct.pack(">2I", 1, p) + segment(*s) for p, *s in reads) + bytes(4)
        text += b"".join(struct.pack(">I", 1) + segments(w) for w in writes) + bytes(4)
        text += bytes(4) if reply is None else struct.pack(">I", 1) + segments(reply)
        return text + rpc

    def answer(self, xid):
        """The reply to `xid`: (proc, what follows the lists); for RDMA_ERROR what follows proc."""
        proc, _, _, rest = self.answer_with_lists(xid)
        return proc, rest

    def answer_with_lists(self, xid):
        """(proc, Write list, Reply chunk or None, what follows); both as message() takes them, with offsets."""
        message = self.receive_send()
        got, _, self.credits, proc = struct.unpack(">4I", message[:16])
        assert got == xid, (got, xid)
        if proc == 4:
            return proc, [], None, message[16:]
        assert message[16:20] == bytes(4), "a reply has no Read list"
        at = 20
        def chunk():
            """The next one, or None at the end of a list."""
            nonlocal at
            present, = struct.unpack(">I", message[at:at + 4])
            at += 4
            if not present:
                return None
            count, = struct.unpack(">I", message[at:at + 4])
            found = list(struct.iter_unpack(">2IQ", message[at + 4:at + 4 + 16 * count]))
            assert len(found) == count
            at += 4 + 16 * count
            return found
        writes = list(iter(chunk, None))
        reply = chunk()
        return proc, writes, reply, message[at:]

    def call(self, procedure, arguments=b"", **more):
        xid = next(self.xids)
        self.send(self.message(xid, call_message(xid, procedure, arguments, **more)))
        proc, rest = self.answer(xid)
        assert proc == 0, proc
        return Accepted(rest)

    def use_credits(self, wanted=128):
        """Makes as many calls at once as it may, until the server grants `wanted` credits for it."""
        deadline = time.monotonic() + LIMIT
        while self.credits < wanted:
            assert time.monotonic() < deadline, f"{self.credits} credits are all that the server grants"
            xids = [next(self.xids) for _ in range(self.credits)]
            for xid in xids:
                self.send(self.message(xid, call_message(xid, 0)))
            for xid in xids:
                self.answer(xid)

    def read(self, handle, offset, count):
        """READ with a Write chunk for the data."""
        xid = next(self.xids)
        key = self.grant(bytes(count))
        self.send(self.message(xid, call_message(xid, READ, read_arguments(handle, offset, count)),
                               writes=[[(key, count)]]))
        proc, rest = self.answer(xid)
        assert proc == 0, proc
        status = Accepted(rest).nfs_status()
        assert status == 0, status
        return bytes(self.memory.pop(key))

    def begin_write(self, handle, offset, data, length=None):
        """WRITE with a Read chunk for the data; the XID."""
        xid = next(self.xids)
        size = len(data) if length is None else length
        rpc = call_message(xid, WRITE, opaque(handle) + struct.pack(">Q3I", offset, size, 0, size))
        key = self.grant(data)
        self.send(self.message(xid, rpc, reads=[(len(rpc), key, size)]))
        return xid

    def write(self, handle, offset, data):
        xid = self.begin_write(handle, offset, data)
        proc, rest = self.answer(xid)
        assert proc == 0, proc
        return Accepted(rest)

    def ask_for(self, handle, count):
        """So many READs of 1 MiB, whose answers nobody takes."""
        for xid in range(count):
            read = call_message(xid, READ, read_arguments(handle, 0, MIB))
            self.send(self.message(xid, read, writes=[[(1, MIB)]]))

    def terminate(self, payload=TERMINATE):
        self.raw(untagged(OP_TERMINATE, payload, queue=2))


# --- how far calls of a client have come when it goes wrong; `target` is empty, `file` holds 1 MiB ---

IN_FLIGHT = 8 # calls of 1 MiB


def in_an_rdma_read(peer, target, _):
    for _ in range(IN_FLIGHT):
        peer.begin_write(target, 0, b"", length=MIB)
    peer.receive_send(answer_reads=False)


def in_a_response(peer, target, file):
    in_an_rdma_read(peer, target, file)
    sink, at, _, _, _ = peer.reads[0]
    peer.raw(tagged(OP_READ_RESPONSE, sink, at, bytes(30_000), False))


def before_its_replies(peer, _, file):
    peer.ask_for(file, IN_FLIGHT)


def inside_a_message(peer, *_):
    peer.sequence += 1
    peer.raw(untagged(OP_SEND, bytes(1000), sequence=peer.sequence, control=0x0140)) # not its last segment


BESIDE_CALLS = (in_an_rdma_read, in_a_response, before_its_replies, inside_a_message)


class Bystander:
    """Two clients, one over each transport, that read a file and compare it all the time. How long they may wait for others is
    said on a virtual clock, by rpcrdma_bystander_test and nfs3_streams_test."""

    def __init__(self, daemon, path, data, export="/export"):
        self.data = data
        self.failure = None
        self.done = {"tcp": 0, "iwarp": 0}
        self.moved = threading.Condition()
        self.stopping = False
        self.threads = []
        for transport, made in (("tcp", TcpPeer), ("iwarp", IwarpPeer)):
            peer = made(daemon.port(transport))
            handle = peer.lookup(peer.mount(export), path)
            thread = threading.Thread(target=self.run, args=(transport, peer, handle), daemon=True)
            thread.start()
            self.threads.append(thread)

    def run(self, transport, peer, handle):
        count = 32768
        try:
            while not self.stopping:
                for offset in range(0, len(self.data), count):
                    if transport == "tcp":
                        reply = peer.call(READ, read_arguments(handle, offset, count))
                        assert reply.nfs_status() == 0, reply.nfs_status()
                        got = read_data(reply.results)
                    else:
                        got = peer.read(handle, offset, count)
                    if got != self.data[offset:offset + count]:
                        raise AssertionError(f"{transport}: wrong data at {offset}")
                    with self.moved:
                        self.done[transport] += 1
                        self.moved.notify_all()
                    if self.stopping:
                        break
                    self.pause.wait(0.01) # leaves the machine to the test
        except Exception as e: # pylint: disable=broad-except
            with self.moved:
                self.failure = f"{transport}: {e!r}"
                self.moved.notify_all()
        finally:
            peer.close()

    pause = threading.Event()

    def check(self):
        """Both have gone on undisturbed, and go on now."""
        with self.moved:
            aim = {transport: n + 3 for transport, n in self.done.items()}
            reached = self.moved.wait_for(
                lambda: self.failure or all(self.done[t] >= n for t, n in aim.items()), LIMIT)
            if self.failure:
                raise AssertionError(f"another client was disturbed: {self.failure}")
            if not reached:
                raise AssertionError(f"another client stands still: {self.done}")

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(LIMIT)
        if self.failure:
            raise AssertionError(f"another client was disturbed: {self.failure}")
