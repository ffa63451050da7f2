#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The back end of examples/archive, loaded by verbenad: what an archive holds is what clients see, also of a hostile one."""
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import zipfile

import daemon
import peers

MIB = 1 << 20
LARGE = os.urandom(MIB) * 3
TIME = 1_700_000_000
STALE, ROFS = 70, 30


def member(name, data=b"", kind=tarfile.REGTYPE, link="", mode=0o644, size=None):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, TIME
    info.size = len(data) if size is None else size
    return info, data


def folder(name, mode=0o755):
    return member(name, kind=tarfile.DIRTYPE, mode=mode)


GOOD = (
    folder("folder"), folder("folder/empty"),
    member("folder/large", LARGE), member("folder/nothing"), member("folder/script", b"#!/bin/sh\n", mode=0o4755),
    member("folder/link", kind=tarfile.SYMTYPE, link="../folder/script"),
    member("circle", kind=tarfile.SYMTYPE, link="circle"),
    member("hard", kind=tarfile.LNKTYPE, link="folder/large"),
    member("./dotted//name", b"d"), member("l" * 255, b"long"), member("/".join(["deep"] * 60) + "/" + "n" * 200, b"deep"),
    member("Grüße", "ß".encode()),
)
ODD = (
    member("../x", b"out"), member("/abs", b"abs"), member("folder/../../y", b"out"), member("..", kind=tarfile.DIRTYPE),
    member("m" * 256), member("/".join(["d"] * 65)),
    member("escape", kind=tarfile.SYMTYPE, link="/etc"), member("escape/passwd", b"through a link"),
    member("folder", b"no folder"), member("hard/below", b"below a file"), folder("folder/script"),
    member("lost", kind=tarfile.LNKTYPE, link="nowhere"), member("itself", kind=tarfile.LNKTYPE, link="itself"),
    member("out", kind=tarfile.LNKTYPE, link="../x"),
    member("alias", kind=tarfile.LNKTYPE, link="folder"), member("device", kind=tarfile.CHRTYPE), member("pipe", kind=tarfile.FIFOTYPE),
    member("twice", b"first"), member("twice", b"second"),
)
LEFT_OUT = "bad_name=6 conflict=4 lost_link=4 special=2 replaced=1"


class Archive(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.module = os.path.join(os.path.dirname(daemon.BINARY), "../examples/archive/archive.so")
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")

    def pack(self, members, name="x.tar.gz", mode="w:gz"):
        path = os.path.join(self.folder, name)
        with tarfile.open(path, mode) as tar:
            for info, data in members:
                tar.addfile(info, io.BytesIO(data))
        os.utime(path, (TIME, TIME))
        return path

    def words(self, path, options=""):
        return ("--module", self.module, "nfs", "--export", f"{path}:/x,backend=archive{options}", "--shards", "2",
                "--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0", "--metrics", "off",
                "--state", os.path.join(self.folder, "state"), "--rpcbind", "no")

    def serve(self, path, options=""):
        self.daemon = self.run_daemon(*self.words(path, options), exactly=True)
        return self.daemon

    def refuses(self, path, *saying, options=""):
        done = self.run_binary(*self.words(path, options))
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in ("export /x: file " + path, *saying):
            self.assertIn(part, done.stderr)

    def verbena(self, *arguments, status=0):
        done = subprocess.run([self.client, "-q", *arguments], capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout

    def url(self, transport="iwarp", path=""):
        return f"nfs+{transport}://127.0.0.1:{self.daemon.port(transport)}/x{path}?mountport={self.daemon.port('tcp')}"

    def copied(self, transport="iwarp"):
        """A tree as a client's copy has it: contents, targets of links and None for folders."""
        target = os.path.join(self.folder, "copy-" + transport)
        self.verbena("cp", "-r", self.url(transport), target)
        found = {}
        for top, folders, files in os.walk(target):
            for name in folders + files:
                path = os.path.join(top, name)
                if os.path.islink(path):
                    found[os.path.relpath(path, target)] = os.readlink(path)
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, target)] = file.read()
                else:
                    found[os.path.relpath(path, target)] = None
        return found

    @staticmethod
    def expected(members):
        found = {}
        for info, data in members:
            path = os.path.normpath(info.name)
            for end in range(1, path.count("/") + 1):
                found.setdefault("/".join(path.split("/")[:end]), None)
            found[path] = {tarfile.DIRTYPE: None, tarfile.SYMTYPE: info.linkname}.get(info.type, data)
            if info.type == tarfile.LNKTYPE:
                found[path] = found[info.linkname]
        return found

    def attributes(self, path):
        told = json.loads(self.verbena("--json", "stat", self.url("tcp", path)))
        self.assertIn("handle", told[0])
        return {key: value for key, value in told[0].items() if key != "url"} # in which the port stands

    def test_clients_see_what_the_archive_holds(self):
        daemon_ = self.serve(self.pack(GOOD))
        self.assertNotIn("left out", daemon_.log())
        self.assertRegex("\n".join(daemon_.lines), r"export /x from .* \(ro\b") # though nobody asked for it
        for transport in ("tcp", "iwarp"):
            self.assertEqual(self.copied(transport), self.expected(GOOD))
        listed = self.verbena("ls", "-lR", self.url())
        self.assertRegex(listed, r"-rwxr-xr-x +1 .*script") # without its set-user-ID bit
        self.assertRegex(listed, r"(?m)^-rw-r--r-- +2 .* hard$")

    def test_other_formats(self):
        path = os.path.join(self.folder, "x.zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (("folder/large", LARGE), ("Grüße", b"g"), ("empty", b"")):
                info = zipfile.ZipInfo(name)
                info.external_attr = 0o100644 << 16
                archive.writestr(info, data)
        self.serve(path)
        self.assertEqual(self.copied(), {"folder": None, "folder/large": LARGE, "Grüße": b"g", "empty": b""})
        for name, mode in (("x.tar", "w"), ("x.tar.bz2", "w:bz2"), ("x.tar.xz", "w:xz")):
            self.daemon.stop() # the state folder is one server's
            self.serve(self.pack(GOOD[:4], name, mode))
            self.assertEqual(self.verbena("ls", self.url(path="/folder")).split(), ["empty", "large", "nothing"])

    def test_odd_entries_are_left_out_and_counted(self):
        daemon_ = self.serve(self.pack(GOOD + ODD))
        self.assertEqual(self.copied(), self.expected(GOOD) | {"escape": "/etc", "twice": b"second"})
        daemon_.log_with(re.escape("archive: entries are left out file=" + self.folder) + ".* " + LEFT_OUT)

    def test_holes_are_zeros(self):
        with open(os.path.join(self.data, "sparse"), "wb") as file:
            file.seek(MIB)
            file.write(b"between holes")
            file.truncate(3 * MIB)
        with open(os.path.join(self.data, "hole"), "wb") as file:
            file.truncate(MIB)
        path = os.path.join(self.folder, "sparse.tar")
        self.run_tool("tar", "-cSf", path, "-C", self.data, "sparse", "hole")
        self.assertLess(os.path.getsize(path), MIB)
        self.serve(path)
        self.assertEqual(self.copied(), {"sparse": bytes(MIB) + b"between holes" + bytes(2 * MIB - 13), "hole": bytes(MIB)})

    def test_a_large_folder_is_listed_whole(self):
        names = [f"{i:05}" for i in range(3000)]
        self.serve(self.pack([member("all/" + name) for name in names] + [member("a"), member("z")]))
        self.assertEqual(self.verbena("ls", self.url(path="/all")).split(), names)
        self.assertEqual(self.verbena("ls", self.url()).split(), ["a", "all", "z"])

    def test_nothing_can_be_written(self):
        self.serve(self.pack(GOOD))
        source = os.path.join(self.folder, "new")
        with open(source, "wb") as file:
            file.write(b"new")
        self.assertIn("Read-only file system", self.verbena("cp", source, self.url(path="/new"), status=1))
        self.assertIn("Read-only file system", self.verbena("rm", self.url(path="/hard"), status=1))
        peer = peers.TcpPeer(self.daemon.port("tcp"))
        script = peer.lookup(peer.lookup(peer.mount("/x"), "folder"), "script")
        self.assertEqual(peer.nfs(peers.WRITE, peers.write_arguments(script, 0, b"x")).nfs_status(), ROFS)
        peer.close()

    def test_rights_of_callers_hold(self):
        self.serve(self.pack([member("secret", b"s", mode=0o600), folder("closed", mode=0o700), member("closed/in", b"c")]))
        for path in ("/secret", "/closed/in"):
            self.assertIn("ermission denied", self.verbena("cat", self.url(path=path), status=1))

    def test_handles_survive_a_restart_but_no_other_archive(self):
        path = self.pack(GOOD)
        self.serve(path)
        before = {name: self.attributes(name) for name in ("/folder", "/folder/large", "/folder/link", "/hard")}
        peer = peers.TcpPeer(self.daemon.port("tcp"))
        old = peer.lookup(peer.mount("/x"), "hard")
        peer.close()
        self.daemon.stop()
        self.serve(path)
        self.assertEqual({name: self.attributes(name) for name in before}, before)
        self.assertEqual(self.getattr(old), 0)
        self.daemon.stop()
        for change in (lambda: os.utime(path, (TIME, TIME + 1)), lambda: self.pack(GOOD[:4])):
            change()
            self.serve(path)
            self.assertEqual(self.getattr(old), STALE)
            self.daemon.stop()

    def getattr(self, handle):
        peer = peers.TcpPeer(self.daemon.port("tcp"))
        status = peer.nfs(peers.GETATTR, peers.opaque(handle)).nfs_status()
        peer.close()
        return status

    def test_what_is_no_whole_archive_is_refused(self):
        path = self.pack(GOOD)
        with open(path, "rb") as file:
            data = file.read()
        for damaged in (b"", b"no archive", data[:len(data) // 2], data[:-1], data[:100] + bytes(100) + data[200:]):
            with open(path, "wb") as file:
                file.write(damaged)
            self.refuses(path, "no archive that can be read, or a damaged one", "make it again")
        self.refuses(self.folder + "/none", "No such file or directory", "name an archive")
        self.refuses(self.data, "is no regular file")
        fifo = self.folder + "/fifo"
        os.mkfifo(fifo)
        self.refuses(fifo, "is no regular file")

    def test_an_archive_that_would_read_other_files_is_refused(self):
        path = os.path.join(self.folder, "x.mtree")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#mtree\n./stolen type=file contents=/etc/passwd\n")
        self.refuses(path, "no archive that can be read")

    def test_limits(self):
        self.refuses(self.pack(GOOD), f"max_bytes={3 * MIB}", "raise max_bytes", options=f",max_bytes={3 * MIB}")
        self.refuses(self.pack(GOOD), "max_entries=20", "raise max_entries", options=",max_entries=20")
        names = [member("n" * 240 + str(i)) for i in range(100)]
        self.refuses(self.pack(names), "max_bytes=20000", options=",max_bytes=20000")
        # Folders on the way count, and what makes no file.
        deep = "/".join("d" * 15)
        self.refuses(self.pack([member(deep + "/a"), member("b/" + deep + "/a")]), "max_entries=20", options=",max_entries=20")
        for odd in (member("../x"), member("b", kind=tarfile.LNKTYPE, link="a")):
            self.refuses(self.pack([member("a")] + [odd] * 20), "max_entries=20", options=",max_entries=20")
        # What is left out counts as well: who is to skip it must unpack it.
        bomb = self.pack([member("../x", bytes(64 * MIB))])
        self.assertLess(os.path.getsize(bomb), MIB)
        self.refuses(bomb, "raise max_bytes", options=f",max_bytes={MIB}")
        # A size that lies: of a file that goes on for 2^60 bytes, by the word of a header of GNU tar.
        info, _ = member("huge", size=1 << 60)
        path = os.path.join(self.folder, "huge.tar")
        with open(path, "wb") as file:
            file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
        self.refuses(path, "damaged")
        # One that is all hole: no byte, at 2^60 of as many.
        header = bytearray(member("sparse", kind=tarfile.GNUTYPE_SPARSE)[0].tobuf(tarfile.GNU_FORMAT))
        huge = struct.pack(">B3xQ", 0x80, 1 << 60)
        header[386:398], header[398:410], header[483:495] = huge, b"0" * 11 + b"\0", huge
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        with open(path, "wb") as file:
            file.write(header + bytes(1024))
        self.refuses(path, "raise max_bytes", options=f",max_bytes={MIB}")

    def test_an_export_without_an_archive(self):
        done = self.run_binary("--module", self.module, "nfs", "--export", ",backend=archive")
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs an archive, as in x.tar.gz:/x", done.stderr)


if __name__ == "__main__":
    daemon.main()
