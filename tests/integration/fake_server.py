# SPDX-License-Identifier: Apache-2.0
"""A server of NFS version 3 and MOUNT over TCP that says what a test wants it to, right or wrong.

A tree of Nodes is served as RFC 1813 has it. `answers` replaces the reply of a procedure: a function that gets the server and
the arguments, and returns the results, SILENCE, or None for what would have been answered without it.
"""
import socket
import struct
import threading

from peers import NFS, MOUNT, opaque

NULL, GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK = range(11)
REMOVE, RMDIR, RENAME, READDIR, READDIRPLUS, FSSTAT, FSINFO, COMMIT = 12, 13, 14, 16, 17, 18, 19, 21
MNT, DUMP, UMNT, EXPORT = 1, 2, 3, 5 # of MOUNT
FILE, DIRECTORY, LINK = 1, 2, 5
OK, EPERM, ENOENT, EIO, EACCES, NOTEMPTY, STALE, NOTSUPP, JUKEBOX = 0, 1, 2, 5, 13, 66, 70, 10004, 10008
PROG_MISMATCH = 2
OPAQUE_VERIFIER = bytes(8)
SILENCE = object() # no reply comes


class Node:
    numbers = iter(range(100, 1 << 32))

    def __init__(self, kind=FILE, data=b"", **more):
        self.id = next(self.numbers)
        self.kind = kind
        self.data = data # of a file, or where a link leads
        self.names = {} # of a directory: bytes -> Node
        self.handle = struct.pack(">Q", self.id)
        self.size = more.get("size") # what is told instead of the true one
        self.mtime = more.get("mtime", (1_000_000_000, 0))
        self.refused = more.get("refused", 0) # what LOOKUP answers instead

    def attributes(self):
        size = len(self.data) if self.size is None else self.size
        return (struct.pack(">5I4Q", self.kind, 0o755, 1, 0, 0, size, size, 0, 7) + struct.pack(">Q", self.id)
                + struct.pack(">2I", *self.mtime) * 3)


def directory(**names):
    return filled({name.encode(): node for name, node in names.items()})


def filled(names):
    made = Node(DIRECTORY)
    made.names = names
    return made


def refusal(status):
    """Of every procedure but GETATTR: no attributes where some might stand."""
    return struct.pack(">I", status) + bytes(8)


def post(node):
    return struct.pack(">I", 1) + node.attributes()


class Arguments:
    def __init__(self, data):
        self.data, self.at = data, 0

    def u32(self):
        return self.take(4, ">I")

    def u64(self):
        return self.take(8, ">Q")

    def take(self, size, form):
        value, = struct.unpack(form, self.data[self.at:self.at + size])
        self.at += size
        return value

    def opaque(self):
        size = self.u32()
        value = self.data[self.at:self.at + size]
        self.at += size + -size % 4
        return value


class FakeServer:
    def __init__(self, root):
        self.root = root
        self.answers = {} # (program, procedure) -> function
        self.nodes = {}
        self.plus = True # with what READDIRPLUS adds
        self.calls = [] # procedures of NFS, as they came
        self.exports = [(b"/export", [])]
        self.mounts = []
        self.fsinfo = (1 << 20, 1 << 20) # rtmax, wtmax
        self.fsstat = (1 << 40, 1 << 39, 1 << 39, 1000, 500, 500)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nfs+tcp://127.0.0.1:{self.listener.getsockname()[1]}/export"
        self.failure = None
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream = connection.makefile("rb")
        with connection, stream:
            while len(mark := stream.read(4)) == 4:
                call = stream.read(struct.unpack(">I", mark)[0] & 0x7fffffff)
                try:
                    reply = self.answer(call)
                    if reply is SILENCE:
                        continue
                    connection.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)
                except OSError:
                    return
                except Exception as e: # pylint: disable=broad-except
                    self.failure = repr(e)
                    raise

    def answer(self, call):
        xid, _, _, program, version, procedure = struct.unpack(">6I", call[:24])
        if program == NFS and version != 3:
            return struct.pack(">8I", xid, 1, 0, 0, 0, PROG_MISMATCH, 3, 3)
        arguments = Arguments(call)
        arguments.at = 24
        for _ in range(2): # credential and verifier
            arguments.u32()
            arguments.opaque()
        head = struct.pack(">6I", xid, 1, 0, 0, 0, 0)
        if program == NFS:
            self.calls.append(procedure)
        begin = arguments.at
        results = self.answers[program, procedure](self, arguments) if (program, procedure) in self.answers else None
        if results is None:
            arguments.at = begin
            results = (self.of_nfs if program == NFS else self.of_mount)(procedure, arguments)
        return results if results is SILENCE else head + results

    def of_mount(self, procedure, arguments):
        if procedure == MNT:
            return struct.pack(">I", 0) + opaque(self.known(self.root)) + struct.pack(">2I", 1, 1)
        if procedure == EXPORT:
            return b"".join(struct.pack(">I", 1) + opaque(path)
                            + b"".join(struct.pack(">I", 1) + opaque(group) for group in groups) + bytes(4)
                            for path, groups in self.exports) + bytes(4)
        if procedure == DUMP:
            return b"".join(struct.pack(">I", 1) + opaque(host) + opaque(path) for host, path in self.mounts) + bytes(4)
        return b""

    def known(self, node):
        self.nodes[node.handle] = node
        return node.handle

    def of_nfs(self, procedure, arguments):
        if procedure == NULL:
            return b""
        node = self.nodes.get(arguments.opaque())
        if node is None:
            return struct.pack(">I", STALE) + (b"" if procedure == GETATTR else bytes(8))
        if procedure == GETATTR:
            return struct.pack(">I", 0) + node.attributes()
        if procedure == FSINFO:
            read, write = self.fsinfo
            return struct.pack(">2I", 0, 0) + struct.pack(">7I", read, read, 1, write, write, 1, 65536) + struct.pack(
                ">QQII", 1 << 62, 0, 1, 27)
        if procedure == FSSTAT:
            return struct.pack(">2I", 0, 0) + struct.pack(">6QI", *self.fsstat, 0)
        if procedure == LOOKUP:
            found = node.names.get(arguments.opaque())
            if found is None or found.refused:
                return struct.pack(">2I", found.refused if found else ENOENT, 0)
            return struct.pack(">I", 0) + opaque(self.known(found)) + post(found) + bytes(4)
        if procedure == READLINK:
            return struct.pack(">2I", 0, 0) + opaque(node.data)
        if procedure == READ:
            offset, count = arguments.u64(), arguments.u32()
            part = node.data[offset:offset + count]
            return read_results(node, part, offset + len(part) >= len(node.data))
        if procedure in (READDIR, READDIRPLUS):
            return self.page(node, procedure == READDIRPLUS, arguments.u64())
        return self.change(procedure, node, arguments)

    def change(self, procedure, node, arguments):
        if procedure == WRITE:
            offset, count, _ = arguments.u64(), arguments.u32(), arguments.u32()
            data = arguments.opaque()
            node.data = node.data[:offset].ljust(offset, b"\0") + data + node.data[offset + count:]
            return struct.pack(">5I", 0, 0, 0, count, 2) + OPAQUE_VERIFIER
        if procedure == COMMIT:
            return struct.pack(">3I", 0, 0, 0) + OPAQUE_VERIFIER
        if procedure in (CREATE, MKDIR, SYMLINK):
            name = arguments.opaque()
            made = node.names.setdefault(name, Node({CREATE: FILE, MKDIR: DIRECTORY, SYMLINK: LINK}[procedure]))
            return struct.pack(">2I", 0, 1) + opaque(self.known(made)) + post(made) + bytes(8)
        if procedure in (REMOVE, RMDIR):
            name = arguments.opaque()
            found = node.names.get(name)
            if found is None or found.refused or found.names:
                return refusal(NOTEMPTY if found and found.names else found.refused if found else ENOENT)
            del node.names[name]
        return struct.pack(">I", 0) + bytes(8 if procedure != RENAME else 16)

    def page(self, node, plus, cookie):
        """All entries in one page; cookies are places."""
        text = struct.pack(">2I", 0, 0) + OPAQUE_VERIFIER
        for place, (name, found) in enumerate(node.names.items(), 1):
            if place > cookie:
                text += self.entry(name, found, place, plus)
        return text + struct.pack(">2I", 0, 1)

    def entry(self, name, found, cookie, plus):
        text = struct.pack(">IQ", 1, found.id) + opaque(name) + struct.pack(">Q", cookie)
        if plus and self.plus and not found.refused:
            return text + post(found) + struct.pack(">I", 1) + opaque(self.known(found))
        return text + (bytes(8) if plus else b"")


def read_results(node, data, eof, count=None):
    return (struct.pack(">I", 0) + post(node) + struct.pack(">2I", len(data) if count is None else count, eof)
            + opaque(data))
