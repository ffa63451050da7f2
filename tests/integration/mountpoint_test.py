#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An export whose disk is not mounted: it is not served, nothing is written beneath, and clients go on once it is there. Mounts
file systems in a mount namespace of its own, which needs root."""
import os
import struct
import subprocess
import time

import bad_disks_test
import daemon
import peers
import pnfs_client
from peers import TcpPeer, opaque
from pnfs_client import DataConnection, Refused, endpoint

GETATTR, MNT = 1, 1
NOENT, JUKEBOX, STALE = 2, 10008, 70


class MountPoint(daemon.DaemonTest):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise AssertionError("these tests mount file systems: run them as root")
        bad_disks_test.own_mounts()

    def setUp(self):
        super().setUp()
        self.disk, self.kept = (os.path.join(self.folder, name) for name in ("disk", "kept"))
        for folder in (self.disk, self.kept):
            os.mkdir(folder, 0o777)
        # What is mounted at `disk` is this file system, which stays while it is not mounted there.
        self.run_tool("mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "none", self.kept)
        self.addCleanup(self.run_tool, "umount", "-l", self.kept)
        self.addCleanup(self.unmount, check=False)

    def mount(self):
        self.run_tool("mount", "--bind", self.kept, self.disk)

    def unmount(self, check=True):
        subprocess.run(["umount", "-l", self.disk], check=check, capture_output=True)

    def until(self, f, what):
        end = time.monotonic() + peers.LIMIT
        while not f():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def up(self, pseudo="/disk"):
        return self.daemon.metric(f'verbena_export_up{{export="{pseudo}"}}')

    def serve(self, options, *more):
        self.daemon = self.start("--export", f"{self.disk}:/disk,{options}", "--shards", "2", *more)

    def mnt(self, caller, path="/disk"):
        return caller.call(MNT, opaque(path.encode()), program=peers.MOUNT).nfs_status()

    def test_a_disk_that_comes_and_goes(self):
        self.serve("mountpoint,root_squash=no")
        self.assertEqual((self.up(), self.up("/export")), (0, 1))
        nothing = f"nothing is mounted at {self.disk}: mount it, or leave out mountpoint"
        self.daemon.log_with(f'an export is not served, .* export=/disk directory={self.disk} why="{nothing}"')
        self.assertEqual(self.daemon.log().count(nothing), 1, self.daemon.log())
        caller = TcpPeer(self.daemon.port("tcp"))
        self.addCleanup(caller.close)
        self.assertEqual(self.mnt(caller), NOENT)
        self.daemon.log_with("a client can't mount an export whose root is not there")
        self.assertEqual(self.mnt(caller, "/export"), 0)

        # As ReadWritePaths= of systemd does where the disk is not there: what is seen is what lay beneath.
        self.run_tool("mount", "--bind", self.disk, self.disk)
        caller.mount("/export")
        end = time.monotonic() + 2.5 # the watch looks each second
        while time.monotonic() < end:
            self.assertEqual((self.mnt(caller), self.up()), (NOENT, 0))
            time.sleep(0.1)
        self.unmount()

        self.mount()
        self.until(lambda: self.mnt(caller) == 0, "it is served")
        self.assertEqual(self.up(), 1)
        root = caller.mount("/disk")
        file = caller.create(root, "file")
        self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(file, 0, b"there", stable=2)).nfs_status(), 0)

        self.unmount()
        self.until(lambda: self.up() == 0, "it is down")
        self.assertEqual(caller.nfs(GETATTR, opaque(file)).nfs_status(), JUKEBOX)
        self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(file, 0, b"gone", stable=2)).nfs_status(), JUKEBOX)
        how = struct.pack(">3I", 0, 1, 0o644) + bytes(4 * 5)
        self.assertEqual(caller.call(peers.CREATE, opaque(root) + opaque(b"lost") + how).nfs_status(), JUKEBOX)
        self.assertEqual(self.mnt(caller), NOENT)
        self.assertEqual(os.listdir(self.disk), [])

        self.mount()
        self.until(lambda: self.up() == 1, "it is up")
        self.assertEqual(caller.nfs(peers.READ, peers.read_arguments(file, 0, 9)).nfs_status(), 0)
        self.assertEqual(caller.mount("/disk"), root)
        caller.create(root, "more")
        self.assertEqual(sorted(os.listdir(self.kept)), ["file", "more"])
        self.unmount()
        self.assertEqual(os.listdir(self.disk), [])

    def test_another_disk_in_its_place(self):
        self.mount()
        self.serve("root_squash=no")
        caller = TcpPeer(self.daemon.port("tcp"))
        self.addCleanup(caller.close)
        root = caller.mount("/disk")
        file = caller.create(root, "file")
        self.unmount()
        self.run_tool("mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "none", self.disk)
        self.until(lambda: self.mnt(caller) == 0 and caller.mount("/disk") != root, "it is served")
        for handle in (root, file):
            self.assertEqual(caller.nfs(GETATTR, opaque(handle)).nfs_status(), STALE)
        caller.create(caller.mount("/disk"), "other")
        self.assertEqual(os.listdir(self.disk), ["other"])

    def refused(self, status, f, *arguments):
        with self.assertRaises(Refused) as found:
            f(*arguments)
        self.assertEqual(found.exception.status, status)

    def test_what_is_open_and_laid_out_waits(self):
        self.mount()
        self.serve("mountpoint,pnfs,root_squash=no")
        client = pnfs_client.Client(self.daemon.port("tcp"), b"one")
        self.addCleanup(client.close)
        client.connect()
        root = client.look_up(b"disk")
        handle, stateid = client.open(root, b"file")
        client.write(handle, stateid, 0, b"a" * 8192)
        layout = client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=8192)
        device = next(e.device for e in layout.extents if e.state != pnfs_client.NONE_DATA)
        data = DataConnection(endpoint(*client.device(device)), client, device)
        self.addCleanup(data.close)
        data.put(layout, 0, b"b" * 4096)
        self.unmount()
        self.until(lambda: self.up() == 0, "it is down")
        self.refused(pnfs_client.DELAY, client.read, handle, stateid, 0, 4)
        self.refused(pnfs_client.DELAY, client.open, root, b"more")
        with self.assertRaises((OSError, peers.Terminated)):
            data.put(layout, 0, b"c" * 4096)
            data.get(layout, 0, 4096)
        self.assertEqual(os.listdir(self.disk), [])
        self.mount()
        self.until(lambda: self.up() == 1, "it is up")
        self.assertEqual(client.read(handle, stateid, 0, 4), b"bbbb")
        client.write(handle, stateid, 0, b"dddd")
        client.give_back(handle, layout.stateid)
        client.shut(handle, stateid)
        with open(os.path.join(self.kept, "file"), "rb") as file:
            self.assertEqual(file.read(5), b"ddddb")


if __name__ == "__main__":
    daemon.main()
