#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena admin suspend` and `resume`: a file system is unmounted beneath a server, comes back, and clients go on. Mounts file
systems in a mount namespace of its own, which needs root."""
import fcntl
import json
import os
import re
import struct
import subprocess

import daemon
import peers
import pnfs_client
from mountpoint_test import MountPoint
from peers import TcpPeer, opaque
from pnfs_client import Refused, words

GETATTR, JUKEBOX = 1, 10008
LOCK = 12
ADMIN_REVOKED = 10047


class Suspend(MountPoint):
    def admin(self, *arguments, status=0):
        """The rows, or what it complains of."""
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        path = os.path.join(self.folder, "state", "control")
        done = subprocess.run([client, "--json", "admin", "--socket", path, *arguments], capture_output=True, text=True,
                              timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        return done.stderr if status else json.loads(done.stdout)["rows"]

    def state(self):
        return {row["path"]: (row["state"], row["suspended_since"]) for row in self.admin("exports")}["/disk"]

    def unmount_at_once(self):
        """Fails where anybody has something open there."""
        subprocess.run(["umount", self.disk], check=True, capture_output=True)

    def client(self):
        made = pnfs_client.Client(self.daemon.port("tcp"), b"one")
        self.addCleanup(made.close)
        return made.connect()

    # Those of the base are its own.
    test_a_disk_that_comes_and_goes = test_another_disk_in_its_place = test_what_is_open_and_laid_out_waits = None

    def test_unmounted_beneath_a_server(self):
        self.mount()
        self.serve("root_squash=no")
        caller = TcpPeer(self.daemon.port("tcp"))
        self.addCleanup(caller.close)
        root = caller.mount("/disk")
        file = caller.create(root, "file")
        self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(file, 0, b"there", stable=0)).nfs_status(), 0)
        client = self.client()
        handle, stateid = client.open(client.look_up(b"disk"), b"open")
        client.write(handle, stateid, 0, b"kept")
        self.assertEqual(self.state(), ("up", None))

        row, = self.admin("suspend", "/disk")
        self.assertEqual((row["export"], row["kept_by_exports"]), ("/disk", []))
        self.unmount_at_once()
        self.assertEqual(self.state(), ("suspended", row["suspended_since"]))
        self.assertRegex(row["suspended_since"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual((self.up(), self.daemon.metric('verbena_export_suspended{export="/disk"}')), (0, 1))
        self.assertEqual(caller.nfs(GETATTR, opaque(file)).nfs_status(), JUKEBOX)
        self.refused(pnfs_client.DELAY, client.read, handle, stateid, 0, 4)
        self.assertEqual(os.listdir(self.disk), [])
        self.assertEqual(caller.mount("/export") != root, True) # the other export goes on
        self.assertIn("resume it first", self.admin("suspend", "/disk", status=1))

        self.assertIn("another file system is at", self.admin("resume", "/disk", status=1))
        self.run_tool("mount", "-t", "tmpfs", "-o", "size=1m", "none", self.disk)
        self.assertIn("another file system is at", self.admin("resume", "/disk", status=1))
        self.unmount_at_once()
        self.mount()
        row, = self.admin("resume", "/disk")
        self.assertEqual((row["lost_files"], row["lost_locks"], row["lost"]), (0, 0, []))
        self.assertGreaterEqual(row["files"], 1)
        self.daemon.log_with(rf"an export is served again export=/disk directory={re.escape(self.disk)}\n")
        self.assertEqual(self.state(), ("up", None))
        self.daemon.log_with(f"an export is served again export=/disk directory={self.disk}")
        self.assertEqual((self.up(), self.daemon.metric('verbena_export_suspended{export="/disk"}')), (1, 0))
        self.assertEqual(caller.nfs(peers.READ, peers.read_arguments(file, 0, 9)).nfs_status(), 0)
        self.assertEqual(client.read(handle, stateid, 0, 4), b"kept")
        client.write(handle, stateid, 0, b"more")
        client.shut(handle, stateid)
        self.assertIn("is not suspended", self.admin("resume", "/disk", status=1))
        self.assertIn("no export /none; there are ", self.admin("suspend", "/none", status=1))

    def test_a_file_without_a_name(self):
        self.mount()
        self.serve("root_squash=no")
        client = self.client()
        handle, stateid = client.open(client.look_up(b"disk"), b"file")
        client.write(handle, stateid, 0, b"kept")
        number = os.stat(os.path.join(self.kept, "file")).st_ino
        os.unlink(os.path.join(self.kept, "file"))
        told = self.admin("suspend", "/disk", status=1)
        self.assertIn("files without a name are open", told)
        self.assertIn(f"{self.disk}/file (file {number}, open by 127.0.0.1)", told)
        self.assertEqual(self.state(), ("up", None))
        self.assertEqual(client.read(handle, stateid, 0, 4), b"kept")
        client.shut(handle, stateid)
        self.admin("suspend", "/disk")
        self.unmount_at_once()

    def lock(self, client, handle, stateid, offset, length):
        """A lock to write; its stateid."""
        arguments = (words(2, 0) + struct.pack(">QQ", offset, length) + words(1, 0) + stateid + words(0)
                     + struct.pack(">Q", client.id) + opaque(b"locker"))
        return client.on(handle, LOCK, arguments).take(16)

    def test_locks_are_taken_again(self):
        self.mount()
        self.serve("root_squash=no")
        client = self.client()
        root = client.look_up(b"disk")
        files = {}
        for name in (b"free", b"taken", b"gone"):
            handle, stateid = client.open(root, name)
            files[name] = (handle, stateid, self.lock(client, handle, stateid, 0, 10))
        local = {name: open(os.path.join(self.kept, name), "r+b") for name in ("free", "taken")}
        for file in local.values():
            self.addCleanup(file.close)
            with self.assertRaises(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        self.admin("suspend", "/disk")
        self.unmount_at_once()
        fcntl.lockf(local["taken"], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5) # nobody has it meanwhile
        os.unlink(os.path.join(self.kept, "gone"))
        self.mount()
        row, = self.admin("resume", "/disk")
        self.assertEqual((row["locks"], row["lost_files"], row["lost_locks"], row["later"]), (1, 1, 1, 0), row)
        self.assertRegex(" ".join(row["lost"]), rf"bytes 0 to 9: a process of this host has locked them \({os.getpid()}\)")
        with self.assertRaises(BlockingIOError):
            fcntl.lockf(local["free"], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        handle, opened, locked = files[b"free"]
        client.write(handle, locked, 0, b"mine")
        handle, opened, locked = files[b"taken"]
        self.refused(ADMIN_REVOKED, client.write, handle, locked, 0, b"lost")
        client.write(handle, opened, 0, b"open")
        self.daemon.log_with(r"a client has lost what it had")
        with self.assertRaises(Refused):
            self.lock(client, handle, opened, 0, 10)
        fcntl.lockf(local["taken"], fcntl.LOCK_UN)
        self.lock(client, handle, opened, 0, 10)

    def test_a_disk_that_is_checked_and_comes_back_as_another_device(self):
        disks = [os.path.join(self.folder, name) for name in ("image", "other")]
        for disk in disks:
            with open(disk, "wb") as file:
                file.truncate(16 << 20)
            self.run_tool("mke2fs", "-q", "-t", "ext4", disk)

        def attach(disk):
            device = self.run_tool("losetup", "--find", "--show", disk).decode().strip()
            self.addCleanup(subprocess.run, ["losetup", "--detach", device], check=False, capture_output=True)
            return device
        device = attach(disks[0])
        self.run_tool("mount", device, self.disk)
        number = os.stat(self.disk).st_dev
        self.serve("root_squash=no")
        client = self.client()
        handle, stateid = client.open(client.look_up(b"disk"), b"file")
        client.write(handle, stateid, 0, b"kept")
        locked = self.lock(client, handle, stateid, 0, 10)
        self.admin("suspend", "/disk")
        self.unmount_at_once()
        self.run_tool("e2fsck", "-f", "-n", device) # nobody has it: all is written
        self.run_tool("losetup", "--detach", device)
        attach(disks[1]) # has its number by now
        self.run_tool("mount", attach(disks[1]), self.disk)
        told = self.admin("resume", "/disk", status=1)
        self.assertRegex(told, r"another file system is at \S+ \(id [0-9a-f]{16}, device \d+:\d+\) than was suspended")
        self.unmount_at_once()
        self.run_tool("mount", attach(disks[0]), self.disk)
        self.assertNotEqual(os.stat(self.disk).st_dev, number)
        row, = self.admin("resume", "/disk")
        self.assertEqual((row["locks"], row["lost"]), (1, []))
        self.assertEqual(client.read(handle, stateid, 0, 4), b"kept")
        client.write(handle, locked, 4, b"more")
        with open(os.path.join(self.disk, "file"), "r+b") as file, self.assertRaises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        client.shut(handle, stateid)
        self.assertEqual(self.daemon.stop(), 0)
        self.unmount_at_once()

    def test_exports_of_one_file_system(self):
        self.mount()
        os.mkdir(os.path.join(self.kept, "inner"))
        self.serve("root_squash=no", "--export", f"{self.disk}/inner:/inner,root_squash=no", "--export",
                   f"{self.disk}:/again,ro")
        client = self.client()
        handle, stateid = client.open(client.look_up(b"disk"), b"file")
        locked = self.lock(client, handle, stateid, 0, 10)
        inner, opened = client.open(client.look_up(b"inner"), b"other")
        client.write(inner, opened, 0, b"kept")
        left = ["/again", "/disk", "/inner"]
        for export in ("/disk", "/inner", "/again"):
            with self.assertRaises(subprocess.CalledProcessError):
                self.unmount_at_once()
            row, = self.admin("suspend", export)
            left.remove(export)
            self.assertEqual(sorted(row["kept_by_exports"]), left)
        self.unmount_at_once()
        self.mount()
        for export in ("/again", "/inner", "/disk"):
            row, = self.admin("resume", export)
            self.assertEqual(row["lost"], [])
        with open(os.path.join(self.kept, "file"), "r+b") as file, self.assertRaises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        client.write(handle, locked, 0, b"mine")
        self.assertEqual(client.read(inner, opened, 0, 4), b"kept")

    def test_a_disk_whose_layouts_are_out(self):
        self.mount()
        self.serve("pnfs,root_squash=no")
        given_back = []

        def answer(recall):
            given_back.append(recall)
            return pnfs_client.NOMATCHING_LAYOUT
        client = pnfs_client.Client(self.daemon.port("tcp"), b"one", answer=answer)
        self.addCleanup(client.close)
        client.connect()
        handle, stateid = client.open(client.look_up(b"disk"), b"file")
        client.write(handle, stateid, 0, b"a" * 8192)
        client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=8192)
        self.admin("suspend", "/disk")
        self.assertEqual(len(given_back), 1)
        self.unmount_at_once()
        self.mount()
        self.admin("resume", "/disk")
        self.assertEqual(client.read(handle, stateid, 0, 4), b"aaaa")


del MountPoint # its tests run by themselves

if __name__ == "__main__":
    daemon.main()
