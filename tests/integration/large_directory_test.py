#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""READDIRPLUS of a large directory whose entries go away between the pages, over a restart of the server.

On the disk that the build is on, since the cookies of tmpfs are made otherwise than those of ext4, xfs and btrfs."""
import os
import random
import struct
import tempfile
import time
import unittest

import daemon
import peers
from peers import TcpPeer, opaque

# 100,000 take a quarter of a minute: VERBENA_TEST_ENTRIES=100000, which ./check --all sets where nothing slows it down.
ENTRIES = int(os.environ.get("VERBENA_TEST_ENTRIES", "20000"))
READDIRPLUS = 17
PAGE = 128 << 10


class Page:
    """A READDIRPLUS3resok (RFC 1813 3.3.17): entries as (name, fileid, cookie, has attributes, handle)."""

    def __init__(self, results):
        self.results = results
        self.at = 4
        self.optional(84)
        self.verifier = self.take(8)
        self.entries = []
        while self.u32():
            fileid, = struct.unpack(">Q", self.take(8))
            name = self.opaque().decode()
            cookie, = struct.unpack(">Q", self.take(8))
            attributes = self.optional(84)
            handle = self.opaque() if self.u32() else None
            self.entries.append((name, fileid, cookie, attributes, handle))
        self.end = self.u32() == 1
        assert self.at == len(results), (self.at, len(results))

    def take(self, size):
        self.at += size
        assert self.at <= len(self.results)
        return self.results[self.at - size:self.at]

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def optional(self, size):
        return self.take(size) if self.u32() else None

    def opaque(self):
        size = self.u32()
        data = self.take(size)
        self.take(-size % 4)
        return data


def kind_of_file_system(path):
    """That of the last mount that `path` lies beneath."""
    path, best = os.path.realpath(path), ("", "")
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            _, mounted, kind, *_ = line.split()
            if (path + "/").startswith(mounted.rstrip("/") + "/") and len(mounted) >= len(best[0]):
                best = (mounted, kind)
    return best[1]


class LargeDirectory(daemon.DaemonTest):
    def setUp(self):
        disk = next((f for f in (os.path.dirname(daemon.BINARY), "/var/tmp")
                     if kind_of_file_system(f) not in ("tmpfs", "ramfs")), None)
        if disk is None:
            self.fail("the build and /var/tmp are in memory: build in a folder on a disk")
        before, tempfile.tempdir = tempfile.tempdir, disk
        try:
            super().setUp()
        finally:
            tempfile.tempdir = before
        self.big = os.path.join(self.data, "big")
        os.mkdir(self.big)
        self.connect()

    def connect(self):
        # The caller stays who it is, as the build may lie where nobody else may look.
        self.daemon = self.start("--shards", "2", export=":/export,root_squash=no")
        self.peer = TcpPeer(self.daemon.port("tcp"))
        self.addCleanup(self.peer.close)
        self.handle = self.peer.lookup(self.peer.mount(), "big")

    def page(self, cookie, verifier):
        reply = self.peer.call(READDIRPLUS, opaque(self.handle) + struct.pack(">Q", cookie) + verifier
                               + struct.pack(">2I", PAGE, PAGE))
        self.assertEqual(reply.nfs_status(), 0)
        self.assertLessEqual(len(reply.results), PAGE + 256)
        return Page(reply.results)

    def names_behind(self, cookie, verifier):
        """All that is listed behind a cookie."""
        while True:
            page = self.page(cookie, verifier)
            yield from (entry[0] for entry in page.entries)
            if page.end:
                return
            cookie = page.entries[-1][2]

    def test_what_stays_is_listed_once(self):
        numbers = random.Random(8)
        folder = os.open(self.big, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, folder)
        there = {f"entry-{i:06}" for i in range(ENTRIES)}
        file = ""
        for i, name in enumerate(there):
            if i % 100 == 0: # making inodes is what takes long
                file = name
                os.mknod(file, dir_fd=folder)
            else:
                os.link(file, name, src_dir_fd=folder, dst_dir_fd=folder)
        all_names, listed, removed, cookies = set(there), [], set(), {}
        cookie, verifier, begun = 0, bytes(8), time.monotonic()
        restarted = False
        while True:
            page = self.page(cookie, verifier)
            self.assertTrue(page.entries or page.end)
            gone = [entry[0] for entry in page.entries if entry[0] in removed]
            self.assertEqual(gone, [], "removed before this page was asked for")
            for name, fileid, cookie, attributes, handle in page.entries:
                listed.append(name)
                cookies.setdefault(cookie, name)
                if name != "..":
                    self.assertIsNotNone(attributes, name)
                    self.assertIsNotNone(handle, name)
            last, verifier = cookies[cookie], page.verifier
            if page.end:
                break
            # One is looked at closely.
            name, fileid, _, _, handle = numbers.choice(page.entries)
            if name not in (".", ".."):
                self.assertEqual(fileid, os.stat(name, dir_fd=folder).st_ino)
                self.assertEqual(handle, self.peer.lookup(self.handle, name))
            # Of those listed just now the last, whose cookie is about to be used, and some more; some still to come.
            going = {last} | set(numbers.sample([entry[0] for entry in page.entries], 5))
            rest = sorted(there.difference(listed))
            going |= set(numbers.sample(rest, min(5, len(rest))))
            going -= removed | {".", ".."}
            for i, name in enumerate(sorted(going)):
                if i == 0: # by the server, too
                    gone = self.peer.call(peers.REMOVE, opaque(self.handle) + opaque(name.encode()))
                    self.assertEqual(gone.nfs_status(), 0)
                else:
                    os.unlink(name, dir_fd=folder)
            removed |= going
            there -= going
            if not restarted and len(listed) > ENTRIES // 2:
                restarted = True
                self.assertEqual(self.daemon.stop(), 0)
                self.connect()
        took = time.monotonic() - begun
        self.assertTrue(restarted)
        self.assertGreater(len(removed), ENTRIES // 200)
        self.assertEqual(len(listed), len(set(listed)), "listed twice")
        self.assertEqual(len(cookies), len(listed), "two entries have one cookie")
        self.assertEqual(there - set(listed), set(), "left out")
        self.assertEqual(set(listed) - all_names, {".", ".."})
        # A cookie from the middle leads to the same place as before, be its entry there or not.
        for place in (len(listed) // 3, len(listed) - 100):
            cookie = next(c for c, name in cookies.items() if name == listed[place])
            self.assertEqual(list(self.names_behind(cookie, verifier)),
                             [name for name in listed[place + 1:] if name in there])
        print(f"{len(listed)} entries listed in {took:.1f} s, {len(removed)} removed meanwhile,", end=" ", flush=True)


if __name__ == "__main__":
    daemon.main()
