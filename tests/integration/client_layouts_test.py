#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena` with RDMA layouts of verbenad: which way bytes of files go, what is shown, and what it says where they can't go by RDMA."""
import json
import os
import random
import subprocess

import daemon

DONE, FAILED, USAGE, UNREACHABLE = range(4)
MIB = 1 << 20


class Layouts(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        self.daemon = self.run_daemon(
            "nfs", "--export", ":/fast,backend=memfs,pnfs", "--export", ":/plain,backend=memfs", "--export", ":/kept,backend=memfs,pnfs,snapshots,snapshots_max=2",
            "--export", f"{self.data}:/disk,pnfs,root_squash=no", "--state", os.path.join(self.folder, "state"), "--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0",
            "--metrics", "off", "--rpcbind", "no", "--shards", "2")
        self.content = random.Random(3).randbytes(3 * MIB + 12345)
        self.here = os.path.join(self.folder, "here")
        with open(self.here, "wb") as file:
            file.write(self.content)

    def url(self, path, transport="iwarp", query=""):
        return f"nfs+{transport}://127.0.0.1:{self.daemon.port(transport)}/{path}{query}"

    def run_client(self, *arguments, code=DONE):
        done = subprocess.run([self.client, *arguments], capture_output=True, timeout=120 * daemon.SLOW, check=False, env=daemon.light(arguments))
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done

    def copy(self, *arguments, code=DONE):
        """What the summary says."""
        return json.loads(self.run_client("--json", "cp", *arguments, code=code).stdout)

    def back(self, url, *options):
        there = os.path.join(self.folder, "back")
        said = self.copy(*options, url, there)
        with open(there, "rb") as file:
            self.assertTrue(file.read() == self.content, "other bytes came back")
        return said

    def test_bytes_go_by_rdma_whatever_nfs_goes_by(self):
        for transport in ("iwarp", "tcp"):
            url = self.url("fast/" + transport, transport)
            said = self.copy("--layout", "require", self.here, url)
            self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (len(self.content), 0))
            said = self.back(url, "--layout", "require")
            self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (len(self.content), 0))
            self.assertEqual(said["by_nfs_because"], {})
            # As everybody else sees it.
            self.assertNotIn("bytes_by_rdma", self.back(url, "--layout", "no"))
            self.assertTrue(self.run_client("cat", "--layout", "require", url).stdout == self.content)

    def test_files_of_a_folder_go_by_rdma_too(self):
        url = self.url("disk/file")
        for _ in range(2): # the second copy cuts the file, and writes it anew
            said = self.copy("--layout", "require", self.here, url)
            self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (len(self.content), 0))
            with open(os.path.join(self.data, "file"), "rb") as file:
                self.assertTrue(file.read() == self.content, "other bytes are in the file")
        said = self.back(url, "--layout", "require")
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (len(self.content), 0))

    def test_a_snapshot_keeps_what_was_there_when_files_are_written_by_rdma(self):
        url, kept = self.url("kept/file"), self.url("kept/.snapshot/monday/file")
        self.copy("--layout", "require", self.here, url)
        nothing = os.path.join(self.folder, "monday")
        os.mkdir(nothing)
        self.run_client("cp", "-r", nothing, self.url("kept/.snapshot/monday"))
        states = [each["state"] for each in json.loads(self.run_client("--json", "layout", "-w", url).stdout)["extents"]]
        self.assertIn("uninitialized", states)
        self.assertIn("read", states)
        other = os.path.join(self.folder, "other")
        with open(other, "wb") as file:
            file.write(bytes(reversed(self.content)))
        said = self.copy("--layout", "require", other, url)
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (len(self.content), 0))
        self.assertTrue(self.run_client("cat", url).stdout == bytes(reversed(self.content)))
        for how in ("require", "no"):
            self.back(kept, "--layout", how)
        failed = self.run_client("cp", other, kept, code=FAILED)
        self.assertIn(b"NFS4ERR_ROFS", failed.stderr)
        # Its files can't be removed one by one; it ends as a whole.
        self.run_client("rm", kept, code=FAILED)
        self.run_client("rm", "-r", self.url("kept/.snapshot/monday"))
        self.assertEqual(self.run_client("ls", self.url("kept/.snapshot")).stdout, b"")

    def test_a_file_that_was_longer_is_cut(self):
        url = self.url("fast/file")
        longer = os.path.join(self.folder, "longer")
        with open(longer, "wb") as file:
            file.write(bytes(5 * MIB))
        self.copy("--layout", "require", longer, url)
        self.copy("--layout", "require", self.here, url)
        self.back(url, "--layout", "no")

    def test_layouts_are_used_without_being_asked_for(self):
        self.content = self.content * 20
        with open(self.here, "wb") as file:
            file.write(self.content)
        url = self.url("fast/file")
        for said in (self.copy(self.here, url), self.back(url)):
            # What is moved while the connection is being made goes by NFS.
            self.assertGreater(said["bytes_by_rdma"], 0)
            self.assertEqual(said["bytes_by_rdma"] + said["bytes_by_nfs"], len(self.content))
            self.assertLessEqual(set(said["by_nfs_because"]), {"connecting", "later"})
        self.assertTrue(self.run_client("cat", url).stdout == self.content)

    def test_layouts_that_no_byte_would_go_by_are_not_required(self):
        url = self.url("fast/file")
        self.copy(self.here, url)
        failed = self.run_client("cp", "--layout", "require", self.here, self.here + "2", code=USAGE)
        self.assertIn(b"neither is on a server", failed.stderr)
        failed = self.run_client("cp", "--layout", "require", "--checksum", self.here, self.here + "2", code=USAGE)
        self.assertIn(b"neither is on a server", failed.stderr)
        # The server does not copy by itself then.
        said = self.copy("--layout", "require", url, self.url("fast/2"))
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (2 * len(self.content), 0))
        said = self.copy("--layout", "require", "--checksum", url, self.url("fast/3"))
        self.assertEqual(said["bytes_by_nfs"], 0)
        # Without them the server copies, and no byte goes any way.
        said = self.copy(url, self.url("fast/4"))
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (0, 0))

    def test_where_there_are_none_auto_goes_by_nfs_and_require_fails(self):
        url = self.url("plain/file")
        said = self.copy("--layout", "auto", self.here, url)
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (0, len(self.content)))
        self.assertEqual(list(said["by_nfs_because"]), ["no_type"])
        self.back(url, "--layout", "auto")
        failed = self.run_client("cp", "--layout", "require", url, os.path.join(self.folder, "none"), code=FAILED)
        self.assertIn(b"the file's file system has no layouts of the RDMA type", failed.stderr)
        failed = self.run_client("cat", "--layout", "require", url, code=FAILED)
        self.assertIn(b"has no layouts of the RDMA type", failed.stderr)
        self.assertEqual(failed.stdout, b"")
        failed = self.run_client("layout", url, code=FAILED)
        self.assertIn(b"has no layouts of the RDMA type", failed.stderr)
        for command in (("cp", "--layout", "require", self.url("fast/file", query="?vers=3"), self.folder),
                        ("cp", "--layout", "require", self.here, self.url("fast/file", query="?vers=3")),
                        ("cat", "--layout", "require", self.url("fast/file", query="?vers=3")),
                        ("layout", self.url("fast/file", query="?vers=3"))):
            failed = self.run_client(*command, code=USAGE)
            self.assertIn(b"NFS version 3 has no layouts: leave ?vers=3 out of the URL", failed.stderr)

    def test_a_server_of_version_3_alone_has_none(self):
        self.daemon = self.run_daemon(
            "nfs", "--export", ":/fast,backend=memfs", "--versions", "3", "--state", os.path.join(self.folder, "state3"),
            "--listen", "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no")
        url = self.url("fast/file", "tcp")
        self.assertEqual(self.run_client("cp", self.here, url).stderr.count(b"RDMA"), 0)
        self.back(url)
        failed = self.run_client("layout", url, code=UNREACHABLE)
        self.assertIn(b"NFS version 3 has none", failed.stderr)
        self.assertIn(b"have the server serve version 4.1", failed.stderr)

    def test_short_files_are_not_worth_it(self):
        short = os.path.join(self.folder, "short")
        with open(short, "wb") as file:
            file.write(self.content[:1000])
        said = self.copy("--layout", "auto", short, self.url("fast/short"))
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (0, 1000))
        said = self.copy("--layout", "require", short, self.url("fast/short"))
        self.assertEqual((said["bytes_by_rdma"], said["bytes_by_nfs"]), (1000, 0))

    def test_a_layout_is_shown(self):
        url = self.url("fast/file", "tcp")
        self.copy(self.here, url)
        for options, state in (((), "read"), (("-w",), "read-write")):
            shown = json.loads(self.run_client("--json", "layout", *options, url).stdout)
            end = 0
            for extent in shown["extents"]:
                self.assertEqual((extent["offset"], extent["state"]), (end, state))
                self.assertIn(extent["device"], shown["devices"])
                end += extent["length"]
            self.assertGreaterEqual(end, len(self.content))
            port = self.daemon.port("iwarp")
            self.assertEqual(set(shown["devices"].values()), {f"rdma 127.0.0.1.{port >> 8}.{port & 255}"})
        text = self.run_client("layout", url).stdout.decode()
        self.assertEqual(text.splitlines()[0].split(), ["offset", "length", "state", "handle", "address", "device"])
        empty = os.path.join(self.folder, "empty")
        with open(empty, "wb"):
            pass
        self.copy(empty, self.url("fast/empty"))
        for options in ((), ("-w",)):
            failed = self.run_client("layout", *options, self.url("fast/empty"), code=FAILED)
            self.assertIn(b"an empty file has no layout: write some bytes first", failed.stderr)
            self.assertEqual(failed.stdout, b"")
        failed = self.run_client("layout", self.url("fast"), code=FAILED)
        self.assertIn(b"only a regular file has a layout", failed.stderr)

    def test_the_summary_tells(self):
        said = self.run_client("cp", "--layout", "require", self.here, self.url("fast/file")).stderr
        self.assertIn(b"3.0 MiB by RDMA, 0 B by NFS", said)
        self.assertEqual(said.count(b"\n"), 1)
        # Nothing where there are no layouts to be used.
        for target in (self.url("plain/file"), self.here + "2"):
            for options in ((), ("--layout", "auto")):
                self.assertNotIn(b"RDMA", self.run_client("cp", *options, self.here, target).stderr)
        self.run_client("cp", "--layout", "sometimes", self.here, self.url("fast/file"), code=USAGE)


if __name__ == "__main__":
    daemon.main()
