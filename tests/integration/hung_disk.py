# SPDX-License-Identifier: Apache-2.0
"""A file system that can stop to answer, as a disk does whose controller hangs: a small FUSE server with an empty root."""
import ctypes
import os
import struct
import threading

LOOKUP, FORGET, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET, READDIRPLUS = 1, 2, 3, 17, 26, 27, 28, 29, 42, 44
ENOENT, ENOSYS = 2, 38
HEADER = struct.Struct("<IIQQIIII")
LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1")) # seconds
LIBC = ctypes.CDLL(None, use_errno=True)


class HungDisk:
    """Mounted on FOLDER until close(); needs root. From hang() on nothing is answered."""

    def __init__(self, folder):
        self.folder = folder
        self.hangs, self.ready = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.held = [] # what is not answered
        self.unanswered = threading.Semaphore(0)
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if LIBC.mount(b"hung", folder.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), f"mount of FUSE on {folder}: {os.strerror(ctypes.get_errno())}")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def hang(self):
        if not self.ready.wait(LIMIT):
            raise AssertionError("the kernel does not begin with the file system")
        self.hangs.set()

    def go_on(self):
        """Answers again, and what came meanwhile first."""
        self.hangs.clear()
        with self.lock:
            held, self.held = self.held, []
        for opcode, unique in held:
            self.reply(opcode, unique)

    def wait_for(self, calls):
        """Until that many are being kept waiting."""
        for _ in range(calls):
            if not self.unanswered.acquire(timeout=LIMIT):
                raise AssertionError("nobody asks the file system that hangs")

    def break_off(self):
        """As a forced unmount of what is in use: all calls fail from now on, and the mount stays."""
        LIBC.umount2(self.folder.encode(), 1) # MNT_FORCE

    def close(self):
        if self.device >= 0:
            LIBC.umount2(self.folder.encode(), 3) # MNT_FORCE | MNT_DETACH: who waits gets an error
            os.close(self.device)
            self.device = -1

    def serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 17)
            except OSError:
                return
            _, opcode, unique, *_ = HEADER.unpack_from(request)
            if opcode in (FORGET, BATCH_FORGET):
                continue
            if self.hangs.is_set():
                with self.lock:
                    self.held.append((opcode, unique))
                self.unanswered.release()
                continue
            if not self.reply(opcode, unique):
                return
            if opcode == INIT:
                self.ready.set()

    def reply(self, opcode, unique):
        error, body = self.answer(opcode)
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            return False
        return True

    @staticmethod
    def answer(opcode):
        if opcode == INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 16, 0, 0)
        if opcode == GETATTR: # valid for no time, so that each caller asks again
            return 0, struct.pack("<QII6Q3I7I", 0, 0, 0, 1, 4096, 8, 1, 1, 1, 0, 0, 0, 0o40777, 2, 0, 0, 0, 4096, 0)
        if opcode == STATFS:
            return 0, struct.pack("<5Q4I24x", 1000, 900, 900, 100, 90, 4096, 255, 4096, 0)
        if opcode == OPENDIR:
            return 0, struct.pack("<QII", 1, 0, 0)
        if opcode in (READDIR, READDIRPLUS, RELEASEDIR):
            return 0, b""
        return (ENOENT if opcode == LOOKUP else ENOSYS), b""
