#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, read-only or changed behind the server's back: the right status, counted, and a client of
another export isn't disturbed. Mounts a tmpfs in a mount namespace of its own, which needs root."""
import ctypes
import os
import random
import shutil
import struct
import subprocess
import time

import daemon
import peers
from peers import IwarpPeer, TcpPeer, opaque

MIB = 1 << 20
CLONE_NEWNS = 0x00020000
NOENT, NOSPC, ROFS, STALE = 2, 28, 30, 70


def own_mounts():
    """Keeps what is mounted here from the rest of the machine, and lets it go with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise AssertionError(f"a mount namespace of its own needs root: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


class BadDisks(daemon.DaemonTest):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise AssertionError("these tests mount file systems: run them as root")
        own_mounts()

    def setUp(self):
        super().setUp()
        content = random.Random(1).randbytes(MIB)
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(content)
        self.disk = os.path.join(self.folder, "disk")
        os.mkdir(self.disk)
        self.run_tool("mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "none", self.disk)
        self.addCleanup(self.run_tool, "umount", "-l", self.disk)
        self.daemon = self.start("--shards", "2", "--export", self.disk + ":/disk")
        self.bystander = peers.Bystander(self.daemon, "file", content)
        self.addCleanup(self.bystander.stop)
        self.peers = [made(self.daemon.port(transport))
                      for transport, made in (("tcp", TcpPeer), ("iwarp", IwarpPeer))]
        for peer in self.peers:
            self.addCleanup(peer.close)
        self.root = self.peers[0].mount("/disk")

    def tearDown(self):
        self.bystander.check()
        super().tearDown()

    def errors(self, status):
        """Of all procedures of version 3."""
        return sum(float(line.split()[-1]) for line in self.daemon.scrape().splitlines()
                   if line.startswith("verbena_nfs_errors_total{") and f'status="NFS3ERR_{status}"' in line)

    def path(self, *names):
        return os.path.join(self.disk, *names)

    def write(self, peer, file, offset, data):
        if isinstance(peer, IwarpPeer):
            return peer.write(file, offset, data).nfs_status()
        return peer.call(peers.WRITE, peers.write_arguments(file, offset, data)).nfs_status()

    def test_a_full_disk(self):
        for n, peer in enumerate(self.peers):
            name = f"grows{n}"
            before = self.errors("NOSPC")
            file = peer.create(self.root, name)
            written = 0
            while (status := self.write(peer, file, written, bytes([n + 1]) * 65536)) == 0:
                written += 65536
                self.assertLess(written, 8 * MIB)
            self.assertEqual(status, NOSPC)
            self.assertGreater(self.errors("NOSPC"), before)
            # What it took is there, and can be read and committed.
            self.assertEqual(peer.call(peers.COMMIT, opaque(file) + struct.pack(">QI", 0, 0)).nfs_status(), 0)
            with open(self.path(name), "rb") as f:
                self.assertEqual(f.read(written), bytes([n + 1]) * written)
            self.bystander.check()
            # Room again: it goes on.
            self.assertEqual(peer.call(peers.REMOVE, opaque(self.root) + opaque(name.encode())).nfs_status(), 0)
            again = peer.create(self.root, "again")
            self.assertEqual(self.write(peer, again, 0, bytes(65536)), 0)

    def test_a_read_only_file_system(self):
        peer = self.peers[0]
        file = peer.create(self.root, "kept")
        self.assertEqual(self.write(peer, file, 0, b"before"), 0)
        self.bystander.stop()
        self.daemon.stop() # which may keep the file open for writing
        self.run_tool("mount", "-o", "remount,ro", self.disk)
        self.start_again()
        for peer in self.peers:
            before = self.errors("ROFS")
            self.assertEqual(self.write(peer, file, 0, b"after!"), ROFS)
            how = struct.pack(">3I", 0, 1, 0o644) + bytes(20)
            self.assertEqual(peer.call(peers.CREATE, opaque(self.root) + opaque(b"new") + how).nfs_status(), ROFS)
            self.assertEqual(peer.call(peers.REMOVE, opaque(self.root) + opaque(b"kept")).nfs_status(), ROFS)
            self.assertGreaterEqual(self.errors("ROFS"), before + 3)
            reply = peer.call(peers.READ, peers.read_arguments(file, 0, 100))
            self.assertEqual(peers.read_data(reply.results), b"before")

    def start_again(self):
        self.daemon = self.start("--shards", "2", "--export", self.disk + ":/disk")
        with open(os.path.join(self.data, "file"), "rb") as file:
            self.bystander = peers.Bystander(self.daemon, "file", file.read())
        self.addCleanup(self.bystander.stop)
        self.peers = [TcpPeer(self.daemon.port("tcp")), IwarpPeer(self.daemon.port("iwarp"))]
        for peer in self.peers:
            self.addCleanup(peer.close)

    def test_files_removed_and_changed_under_the_server(self):
        for n, peer in enumerate(self.peers):
            names = [f"{what}{n}" for what in ("unlinked", "cut", "replaced", "never_read")]
            files = {}
            for name in names:
                files[name] = peer.create(self.root, name)
                self.assertEqual(self.write(peer, files[name], 0, bytes(range(250)) * 40), 0)
            unlinked, cut, replaced, never_read = names
            read = peer.call(peers.READ, peers.read_arguments(files[unlinked], 0, 10))
            self.assertEqual(peers.read_data(read.results), bytes(range(10)))
            os.truncate(self.path(cut), 100)
            read = peer.call(peers.READ, peers.read_arguments(files[cut], 90, 1000))
            self.assertEqual(peers.read_data(read.results), bytes(range(90, 100)))
            with open(self.path("other"), "wb") as f:
                f.write(b"other")
            os.rename(self.path("other"), self.path(replaced))
            for name in (unlinked, never_read):
                os.unlink(self.path(name))
            before = self.errors("STALE")
            stale = 0
            for name in (unlinked, replaced, never_read):
                for procedure, arguments in ((peers.GETATTR, opaque(files[name])),
                                             (peers.READ, peers.read_arguments(files[name], 0, 10)),
                                             (peers.WRITE, peers.write_arguments(files[name], 0, b"lost"))):
                    status = peer.call(procedure, arguments).nfs_status()
                    self.assertEqual(status, STALE, (name, procedure))
                    stale += 1
            self.assertGreaterEqual(self.errors("STALE"), before + stale)
            self.assertEqual(peer.call(peers.LOOKUP, opaque(self.root) + opaque(unlinked.encode())).nfs_status(),
                             NOENT)
            with open(self.path(replaced), "rb") as f:
                self.assertEqual(f.read(), b"other")

    def test_a_file_removed_while_it_is_read(self):
        peer = self.peers[1]
        file = peer.create(self.root, "big")
        data = random.Random(3).randbytes(MIB)
        self.assertEqual(peer.write(file, 0, data).nfs_status(), 0)
        statuses = set()
        for i in range(200):
            if i == 100:
                os.unlink(self.path("big"))
            reply = peer.call(peers.READ, peers.read_arguments(file, 0, 512))
            statuses.add((i >= 100, reply.nfs_status()))
        self.assertEqual(statuses, {(False, 0), (True, STALE)})

    def test_the_whole_tree_goes(self):
        peer = self.peers[0]
        how = struct.pack(">3I", 0, 1, 0o644) + bytes(20)
        os.unlink(os.path.join(self.data, "file"))
        # The readers of it learn that their file is gone.
        for thread in self.bystander.threads:
            thread.join(peers.LIMIT)
        self.assertIn(f"AssertionError({STALE})", self.bystander.failure)
        shutil.rmtree(self.data)
        # MOUNT has no word for what is gone (RFC 1813 5.1.5): there is nothing of that name.
        self.assertEqual(peer.call(1, opaque(b"/export"), program=peers.MOUNT).nfs_status(), NOENT)
        self.assertEqual(peer.call(peers.CREATE, opaque(self.root) + opaque(b"here") + how).nfs_status(), 0)
        # It is served again once there is one.
        os.mkdir(self.data)
        end = time.monotonic() + peers.LIMIT
        while (status := peer.call(1, opaque(b"/export"), program=peers.MOUNT).nfs_status()) != 0:
            self.assertEqual(status, NOENT)
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.daemon.log_with("an export is served by a directory that was made anew: handles of the one before are stale export=")
        self.assertGreaterEqual(self.errors("STALE"), 2)
        self.bystander.failure = None
        with open(self.path("another"), "wb") as file:
            file.write(bytes(MIB))
        self.bystander = peers.Bystander(self.daemon, "another", bytes(MIB), "/disk")
        self.addCleanup(self.bystander.stop)


if __name__ == "__main__":
    daemon.main()
