# SPDX-License-Identifier: Apache-2.0
"""A disk with a volatile write cache, which a guest sees by the NBD protocol.

qemu's own `cache=` modes lose nothing when qemu is killed: what the guest wrote is in this machine's page cache then.
Here a write stays in memory until the guest flushes (or wrote it with FUA), as a disk's own cache would keep it, and a
loss of power takes what was not flushed: all of it, or any of its blocks, for disks write their cache in any order.
"""
import os
import socket
import struct
import tempfile
import threading

BLOCK = 4096
# https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
OPTION_MAGIC = 0x49484156454f5054
OPTION_REPLY_MAGIC = 0x3e889045565a9
REQUEST_MAGIC = 0x25609513
REPLY_MAGIC = 0x67446698
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
EXPORT_NAME, ABORT, INFO, GO = 1, 2, 6, 7
ACKNOWLEDGED, REPLY_INFO, UNSUPPORTED = 1, 3, 0x80000001
READ, WRITE, DISCONNECT, FLUSH = range(4)
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
FUA = 1
EINVAL = 22


class Disk:
    """The file `path` behind the cache. One guest at a time."""

    def __init__(self, path, size):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.file, size)
        self.size = size
        self.cache = {}  # block number -> data that was not flushed
        self.flushes = 0
        # Not beside the file: the path of a socket has room for a hundred octets.
        self.folder = tempfile.TemporaryDirectory(prefix="verbena-disk-")
        self.address = f"{self.folder.name}/nbd"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen()
        self.idle = threading.Event()
        self.idle.set()
        self.served = threading.Thread(target=self.serve, daemon=True)
        self.served.start()

    def lose_power(self, numbers, some_survive):
        """After the guest was killed: returns how many blocks were lost."""
        self.idle.wait()
        lost = 0
        for number, data in self.cache.items():
            if some_survive and numbers.random() < 0.5:
                os.pwrite(self.file, data, number * BLOCK)
            else:
                lost += 1
        self.cache.clear()
        return lost

    def close(self):
        """What is in the cache is lost."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.served.join()
        self.listener.close()
        os.close(self.file)
        self.folder.cleanup()

    def serve(self):
        while True:
            try:
                guest, _ = self.listener.accept()
            except OSError:
                return
            self.idle.clear()
            try:
                with guest:
                    if self.negotiate(guest):
                        while self.answer(guest):
                            pass
            except (ConnectionError, EOFError):
                pass  # it was killed
            finally:
                self.idle.set()

    def negotiate(self, guest):
        guest.sendall(struct.pack(">8sQH", b"NBDMAGIC", OPTION_MAGIC, FIXED_NEWSTYLE | NO_ZEROES))
        receive(guest, 4)
        flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA
        while True:
            _, option, length = struct.unpack(">QII", receive(guest, 16))
            receive(guest, length)
            if option == EXPORT_NAME:
                guest.sendall(struct.pack(">QH", self.size, flags))
                return True
            if option in (INFO, GO):
                # Information of type 0: the export.
                reply(guest, option, REPLY_INFO, struct.pack(">HQH", 0, self.size, flags))
                reply(guest, option, ACKNOWLEDGED)
                if option == GO:
                    return True
            elif option == ABORT:
                reply(guest, option, ACKNOWLEDGED)
                return False
            else:
                reply(guest, option, UNSUPPORTED)

    def answer(self, guest):
        magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", receive(guest, 28))
        if magic != REQUEST_MAGIC or kind == DISCONNECT:
            return False
        data, error = b"", 0
        if kind == WRITE:
            data = receive(guest, length)
        if offset + length > self.size:
            error = EINVAL
        elif kind == READ:
            data = self.read(offset, length)
        elif kind == WRITE:
            self.write(offset, data)
            data = b""
            if flags & FUA:
                self.flush()
        elif kind == FLUSH:
            self.flush()
        else:
            error = EINVAL
        guest.sendall(struct.pack(">IIQ", REPLY_MAGIC, error, cookie) + data)
        return True

    def read(self, offset, length):
        first, last = offset // BLOCK, -(-(offset + length) // BLOCK)
        data = bytearray(os.pread(self.file, (last - first) * BLOCK, first * BLOCK))
        for number in range(first, last):
            if number in self.cache:
                data[(number - first) * BLOCK:(number - first + 1) * BLOCK] = self.cache[number]
        return bytes(data[offset - first * BLOCK:offset - first * BLOCK + length])

    def write(self, offset, data):
        first, last = offset // BLOCK, -(-(offset + len(data)) // BLOCK)
        if offset % BLOCK or len(data) % BLOCK:
            whole = bytearray(self.read(first * BLOCK, (last - first) * BLOCK))
            whole[offset - first * BLOCK:offset - first * BLOCK + len(data)] = data
            data = bytes(whole)
        for number in range(first, last):
            self.cache[number] = data[(number - first) * BLOCK:(number - first + 1) * BLOCK]

    def flush(self):
        self.flushes += 1
        for number, data in self.cache.items():
            os.pwrite(self.file, data, number * BLOCK)
        self.cache.clear()


def receive(connection, length):
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def reply(guest, option, kind, data=b""):
    guest.sendall(struct.pack(">QIII", OPTION_REPLY_MAGIC, option, kind, len(data)) + data)
