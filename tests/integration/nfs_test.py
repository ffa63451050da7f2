#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files in and out over TCP, by libnfs's tools."""
import ctypes
import hashlib
import os
import pwd
import socket
import struct
import time

import daemon
import peers


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Files(daemon.DaemonTest):
    def test_what_goes_in_comes_out(self):
        d = self.start("--shards", "2")
        source = os.path.join(self.folder, "source")
        with open(source, "wb") as file:
            file.write(os.urandom(5_000_001))
        self.run_tool("nfs-cp", source, d.nfs_url("copy"))
        self.assertEqual(digest(os.path.join(self.data, "copy")), digest(source))
        back = os.path.join(self.folder, "back")
        self.run_tool("nfs-cp", d.nfs_url("copy"), back)
        self.assertEqual(digest(back), digest(source))
        listing = self.run_tool("nfs-ls", d.nfs_url("")).decode()
        self.assertIn("copy", listing)
        self.assertIn("5000001", listing)
        self.assertGreaterEqual(d.metric("verbena_nfs_written_bytes_total"), 5_000_001)
        self.assertGreaterEqual(d.metric("verbena_nfs_read_bytes_total"), 5_000_001)
        self.assertEqual(d.stop(), 0)

    def test_groups_are_those_of_this_host(self):
        # User 1 is in group 1 here, and does not say so.
        self.assertEqual((pwd.getpwuid(1).pw_gid, os.geteuid()), (1, 0))
        path = os.path.join(self.data, "f")
        with open(path, "wb") as file:
            file.write(b"text")
        os.chown(path, 2, 1)
        os.chmod(path, 0o040)
        for options, status in (((), 13), (("--manage-gids",), 0)):
            d = self.start(*options)
            peer = peers.TcpPeer(d.port("tcp"))
            handle = peer.lookup(peer.mount(), "f")
            reply = peer.call(peers.READ, peers.read_arguments(handle, 0, 4), credential=peers.auth_sys(1, 65534))
            self.assertEqual(reply.nfs_status(), status)
            if options:
                self.assertEqual(d.metric('verbena_nfs_group_lookups_total{result="found"}'), 1)
            peer.close()
            self.assertEqual(d.stop(), 0)

    def test_memory_is_a_back_end_too(self):
        d = self.run_daemon("nfs", "--export", ":/scratch,backend=memfs", "--state", self.folder + "/state",
                            "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0", "--rpcbind", "no")
        self.run_tool("nfs-cp", __file__, d.nfs_url("copy", "/scratch"))
        back = os.path.join(self.folder, "back")
        self.run_tool("nfs-cp", d.nfs_url("copy", "/scratch"), back)
        self.assertEqual(digest(back), digest(__file__))

    def test_handles_of_paths(self):
        d = self.start(export=",handles=path")
        self.run_tool("nfs-cp", __file__, d.nfs_url("copy"))
        self.assertEqual(digest(os.path.join(self.data, "copy")), digest(__file__))
        self.assertIn("handles by a path table", "".join(line for line in d.lines if line.startswith("  ")))

    def test_files_are_there_after_a_restart(self):
        with open(os.path.join(self.data, "f"), "wb") as file:
            file.write(b"x" * 1000)
        for _ in range(2):
            d = self.start()
            self.assertIn("f", self.run_tool("nfs-ls", d.nfs_url("")).decode())
            d.stop()

    # Clients keep handles and fsids, and go on with both when the server is back.
    def test_handles_and_fsids_outlive_a_restart(self):
        os.mkdir(os.path.join(self.data, "d"))
        with open(os.path.join(self.data, "d", "f"), "wb") as file:
            file.write(b"x" * 1000)
        seen = []
        for shards in ("1", "3"):
            d = self.start("--shards", shards, export=":/export")
            peer = peers.TcpPeer(d.port("tcp"))
            self.addCleanup(peer.close)
            handles = [peer.mount()]
            for name in ("d", "f"):
                handles.append(peer.lookup(handles[-1], name))
            seen.append([(handle, self.identity(peer, handle)) for handle in handles])
            # Those of the run before are as good as new ones.
            for handle, identity in seen[0]:
                self.assertEqual(self.identity(peer, handle), identity)
            peer.close()
            self.assertEqual(d.stop(), 0)
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(len({handle for handle, _ in seen[0]}), 3)

    def identity(self, peer, handle):
        """fsid and fileid (RFC 1813, 2.6: fattr3)."""
        answer = peer.nfs(peers.GETATTR, peers.opaque(handle))
        self.assertEqual(answer.nfs_status(), 0)
        return struct.unpack(">2Q", answer.results[4 + 44:4 + 60])

    def test_connections_spread_over_shards(self):
        d = self.start("--shards", "3")
        before = [d.metric(f'verbena_shard_messages_total{{shard="{i}"}}') for i in range(3)]
        sockets = [socket.create_connection(("127.0.0.1", d.port("tcp"))) for _ in range(9)]
        # NULL of NFS version 3 (RFC 5531, RFC 1813).
        call = struct.pack(">10I", 7, 0, 2, 100003, 3, 0, 0, 0, 0, 0)
        for s in sockets:
            s.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
        for s in sockets:
            reply = s.recv(28, socket.MSG_WAITALL)
            self.assertEqual(struct.unpack(">7I", reply), (0x80000018, 7, 1, 0, 0, 0, 0))
        self.assertEqual(d.metric('verbena_connections{transport="tcp"}'), 9)
        after = [d.metric(f'verbena_shard_messages_total{{shard="{i}"}}') for i in range(3)]
        # Shard 0 takes them all; two thirds are handed on.
        self.assertGreaterEqual(after[1] - before[1], 3)
        self.assertGreaterEqual(after[2] - before[2], 3)
        for s in sockets:
            s.close()
        limit = time.monotonic() + 20 * daemon.SLOW
        while d.metric('verbena_connections{transport="tcp"}') != 0:
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)

    def test_a_read_only_export_stays_as_it_is(self):
        d = self.start(export=",ro")
        done = daemon.subprocess.run(["nfs-cp", __file__, d.nfs_url("copy")], capture_output=True, timeout=60 * daemon.SLOW,
                                     check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(os.listdir(self.data), [])
        self.assertGreaterEqual(d.metric('verbena_nfs_refusals_total{reason="read_only"}'), 1)

    def test_a_mount_beneath_an_export_is_refused_and_counted(self):
        beneath = os.path.join(self.data, "beneath")
        os.mkdir(beneath)
        libc = ctypes.CDLL(None)

        def mount_there(): # in a mount namespace of the daemon's own
            new_namespace, recursive, private = 0x20000, 0x4000, 0x40000
            if (libc.unshare(new_namespace) or libc.mount(b"none", b"/", None, recursive | private, None)
                    or libc.mount(b"none", beneath.encode(), b"tmpfs", 0, None)):
                raise OSError("a mount of the daemon's own needs CAP_SYS_ADMIN: run as root")

        d = self.start(before_start=mount_there)
        peer = peers.TcpPeer(d.port("tcp"))
        self.addCleanup(peer.close)
        reply = peer.call(peers.LOOKUP, peers.opaque(peer.mount()) + peers.opaque(b"beneath"))
        self.assertEqual(reply.nfs_status(), 13) # NFS3ERR_ACCES
        self.assertEqual(d.metric('verbena_nfs_refusals_total{reason="mount"}'), 1)
        reply = peer.call(1, peers.opaque(b"/export/beneath"), program=peers.MOUNT)
        self.assertEqual(reply.nfs_status(), 13) # MNT3ERR_ACCES
        self.assertEqual(d.metric('verbena_mount_refusals_total{reason="mount"}'), 1)

    def test_an_export_for_one_transport(self):
        d = self.start(export=",transport=iwarp")
        # MNT over TCP is answered, as kernels need it; what follows is not.
        done = daemon.subprocess.run(["nfs-ls", d.nfs_url("")], capture_output=True, timeout=60 * daemon.SLOW, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(d.metric("verbena_mount_mounts_total"), 1)
        self.assertGreaterEqual(d.metric('verbena_nfs_refusals_total{reason="transport"}'), 1)


if __name__ == "__main__":
    daemon.main()
