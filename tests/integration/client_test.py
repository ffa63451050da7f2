#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each command of the client `verbena` against a daemon, over TCP and iWARP: what it does, and its exit code."""
import errno
import filecmp
import hashlib
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import client_recovery_test
import daemon
import peers
from seccomp import IO_URING_SETUP, refuse

DONE, FAILED, USAGE, UNREACHABLE = range(4)


def tree(top):
    """What lies below a folder: names, kinds, contents and targets of links."""
    found = {}
    for folder, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, top)] = (stat.S_IFMT(status.st_mode), content)
    return found


class Client(daemon.DaemonTest):
    listeners = ()
    transport, host = "tcp", "127.0.0.1"
    query = "" # what URLs say of the version; nothing: the server's highest

    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        # The caller stays who it is, so that it may change what this test made.
        self.daemon = self.start("--shards", "2", *self.listeners, export=":/export,root_squash=no")
        self.top = self.base(self.transport, self.host)

    def base(self, transport, host):
        pattern = rf"listening at {transport}://{re.escape(host)}:(\d+)"
        port = next(m.group(1) for m in (re.fullmatch(pattern, line) for line in self.daemon.lines) if m)
        # MOUNT is asked on the same connection, so no other port has to be known.
        return f"nfs+{transport}://{host}:{port}/export"

    def run_client(self, *arguments, code=DONE):
        """Its standard output."""
        return self.completed(*arguments, code=code).stdout

    def run_failing(self, *arguments):
        """Its standard error output."""
        return self.completed(*arguments, code=FAILED).stderr

    def in_version(self, argument):
        """With the version that this class is of, if it is a URL that names none."""
        if not self.query or not argument.startswith("nfs+") or "vers=" in argument:
            return argument
        return argument + ("&" if "?" in argument else "?") + self.query

    def completed(self, *arguments, code):
        arguments = [self.in_version(each) for each in arguments]
        done = subprocess.run([self.client, *arguments], capture_output=True, timeout=120 * daemon.SLOW, check=False, env=daemon.light(arguments))
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        if code != DONE:
            self.assertTrue(done.stderr + done.stdout, f"{arguments}: failed without a word")
        return done

    def run_json(self, *arguments, **more):
        return json.loads(self.run_client("--json", *arguments, **more))

    def there(self, *names):
        return os.path.join(self.data, *names)

    def write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)
        return path

    def make_tree(self, top):
        numbers = random.Random(11)
        os.makedirs(os.path.join(top, "deep", "deeper"))
        os.mkdir(os.path.join(top, "hollow"))
        for name, size in (("nothing", 0), ("odd", 4097), ("deep/some", 300_001), ("deep/deeper/much", 5_000_003)):
            self.write(os.path.join(top, name), numbers.randbytes(size))
        self.write(os.path.join(top, "ünïcode and blank"), b"text")
        os.symlink("../odd", os.path.join(top, "deep", "link"))


class Version3:
    query, program = "vers=3", "3"
    # Those that nfstime3 can't tell become the nearest that it can (RFC 1813 2.6).
    times = ((-315619200, 0), (4428691200, 2**32 - 1))
    settling = 0 # calls of NULL that find out what is spoken

    def what_is_no_export(self):
        self.run_client("ls", self.top.replace("/export", "/elsewhere"), code=UNREACHABLE)

    def what_doctor_sees(self, found):
        self.assertEqual((found["server"]["state"], found["MOUNT"]["state"], found["MNT"]["state"]), ("ok", "ok", "ok"))
        self.assertEqual((found["MOUNT"]["text"], found["MNT"]["text"]), ("1 export /export", "/export can be mounted"))


class Version4:
    program = "4"
    times = ((-315619200, -315619200), (4428691200, 4428691200))
    settling = 1
    speaks = "4.2"

    def what_is_no_export(self):
        # The server's root is no export here, and might be one elsewhere: no path is wrong before it is looked up.
        other = self.base(self.transport, self.host).replace("/export", "/elsewhere")
        said = self.run_failing("ls", other)
        self.assertIn(b"No such file or directory", said)
        self.assertEqual(b"?vers=3 looks for an export" in said, not self.query)
        # Nor is anything made in the pseudo file system, and version 3 has no export of that name.
        said = self.run_failing("mkdir", other)
        self.assertIn(b"Read-only file system", said)
        self.assertNotIn(b"?vers=3", self.run_failing("ls", self.top + "/elsewhere"))

    def what_doctor_sees(self, found):
        self.assertEqual((found["server"]["state"], found["path"]["state"]), ("ok", "ok"))
        self.assertIn(f"NFS version {self.speaks} answers at ", found["server"]["text"])
        self.assertEqual(found["path"]["text"], "/export is there")

    def test_it_is_version_4_that_is_spoken(self):
        series = f'procedure="COMPOUND",transport="{self.transport}"'
        self.make_tree(self.there("tree"))
        self.run_client("ls", "-R", self.top)
        self.assertGreater(self.daemon.metric(f'verbena_rpc_calls_total{{program="nfs",version="4",{series}}}'), 0)
        self.assertEqual(self.daemon.metric('verbena_rpc_calls_total{program="nfs",version="3",procedure="LOOKUP",'
                                            f'transport="{self.transport}"}}') or 0, 0)
        self.assertIn(b"export", self.run_client("ls", self.top.replace("/export", "/")))


class Commands:
    """Of a version and over a transport; see below."""

    # --- that look ---

    def test_ping(self):
        answer = self.run_json("ping", "-c", "5", self.top)
        self.assertEqual((answer["calls"], answer["answered"], answer["transport"]), (5, 5, self.transport))
        answer = self.run_json("ping", "-c", "100", "-d", "10", self.top)
        self.assertEqual(answer["answered"], 100)
        rising = [answer["microseconds"][name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")]
        self.assertEqual(rising, sorted(rising))
        self.assertTrue(0 < rising[0] < rising[-1], rising)
        self.assertTrue(self.run_client("ping", "-c", "1", self.top))
        self.assertEqual(self.daemon.metric(
            f'verbena_rpc_calls_total{{program="nfs",version="{self.program}",procedure="NULL",'
            f'transport="{self.transport}"}}'), 106 + 3 * self.settling)

    def test_ls(self):
        self.make_tree(self.there("tree"))
        self.write(self.there("tree", ".hidden"), b"")
        names = ["deep", "hollow", "nothing", "odd", "ünïcode and blank"]
        self.assertEqual(self.run_client("ls", self.top + "/tree").decode().splitlines(), names)
        self.assertEqual(self.run_client("ls", "-a", self.top + "/tree").decode().splitlines(), [".hidden", *names])
        lines = self.run_client("ls", "-l", self.top + "/tree").decode().splitlines()
        self.assertEqual(len(lines), len(names))
        odd = next(line.split() for line in lines if line.endswith(" odd"))
        mode = os.lstat(self.there("tree", "odd"))
        self.assertEqual(odd[0], stat.filemode(mode.st_mode))
        self.assertEqual([int(x) for x in odd[1:5]], [1, mode.st_uid, mode.st_gid, 4097])
        deep = self.run_client("ls", "-l", self.top + "/tree/deep").decode()
        self.assertIn("link -> ../odd", deep)
        lines = self.run_client("ls", "-R", self.top + "/tree").decode().splitlines()
        for line in ("/export/tree:", "/export/tree/deep:", "deep", "deeper", "link", "some", "much", "odd"):
            self.assertIn(line, lines)
        every = self.run_json("ls", "-R", self.top)
        self.assertEqual({item["name"].removeprefix("/export/") for item in every},
                         {name for name in tree(self.data) if not os.path.basename(name).startswith(".")})
        self.assertEqual(self.run_client("ls", self.top + "/tree/hollow"), b"")
        self.assertEqual(self.run_client("ls", "-d", self.top + "/tree"), b"/export/tree\n")
        self.run_client("ls", self.top + "/not-there", code=FAILED)

    def test_a_long_listing(self): # more than one page
        names = sorted(f"file-{i:05}" for i in range(3000))
        for name in names:
            self.write(self.there(name), b"")
        self.assertEqual(self.run_client("ls", self.top).decode().splitlines(), names)

    def test_cat(self):
        data = random.Random(1).randbytes(2_500_001)
        self.write(self.there("file"), data)
        self.write(self.there("empty"), b"")
        self.assertEqual(self.run_client("cat", self.top + "/file"), data)
        self.assertEqual(self.run_client("cat", self.top + "/empty"), b"")
        self.assertEqual(self.run_client("cat", self.top + "/file", self.top + "/empty", self.top + "/file"), data * 2)
        # What fails is told, and the rest goes on.
        self.assertEqual(self.run_client("cat", self.top + "/not-there", self.top + "/file", code=FAILED), data)
        self.run_client("cat", self.top, code=FAILED)

    def test_stat(self):
        path = self.write(self.there("a file"), bytes(1234))
        os.chmod(path, 0o640)
        os.utime(path, ns=(10**18, 10**18 + 123_456_789))
        os.link(path, self.there("other"))
        os.symlink("a file", self.there("link"))
        is_file, is_link = self.run_json("stat", self.top + "/a%20file", self.top + "/link")
        status = os.lstat(path)
        self.assertEqual([is_file[k] for k in ("type", "mode", "nlink", "uid", "gid", "size", "fileid", "mtime")],
                         ["file", 0o640, 2, status.st_uid, status.st_gid, 1234, status.st_ino,
                          {"seconds": 10**9, "nanoseconds": 123_456_789}])
        self.assertEqual((is_link["type"], is_link["size"]), ("symlink", 6))
        other, = self.run_json("stat", self.top + "/other")
        self.assertEqual((other["fileid"], other["fsid"]), (is_file["fileid"], is_file["fsid"]))
        int(is_file["handle"], 16)
        self.assertIn(b"1234", self.run_client("stat", self.top + "/other"))
        self.run_client("stat", self.top + "/not-there", code=FAILED)

    def test_names_that_a_terminal_would_obey(self):
        os.mkdir(self.there("d"))
        names = ["two\nlines", "\x1b[31mred", "del\x7f", "back\\slash", "c1\x9b", "gr\u00fc\u00dfe"]
        for name in names:
            self.write(self.there("d/" + name), b"")
        os.symlink("\x1b[2J", self.there("d/link"))
        shown = ["\\033[31mred", "back\\\\slash", "c1\\302\\233", "del\\177", "gr\u00fc\u00dfe", "link", "two\\012lines"]
        self.assertEqual(self.run_client("ls", self.top + "/d").decode().splitlines(), shown)
        self.assertIn(b"link -> \\033[2J\n", self.run_client("ls", "-l", self.top + "/d"))
        self.assertEqual(sorted(e["name"] for e in self.run_json("ls", self.top + "/d")), sorted([*names, "link"]))

    def test_orderly_ends_are_not_logged(self):
        for level in ("info", "debug"):
            self.daemon.stop()
            self.daemon = self.start("--log-level", level, *self.listeners)
            self.run_client("ls", self.base("iwarp", "127.0.0.1"))
            self.daemon.stop()
            self.assertEqual("rpcrdma: connection ended" in self.daemon.log(), level == "debug", self.daemon.log())

    def test_df_and_mounts(self):
        space, = self.run_json("df", self.top)
        status = os.statvfs(self.data)
        self.assertEqual(space["bytes"]["total"], status.f_blocks * status.f_frsize)
        # XFS has as many as there is room for.
        files = sorted((status.f_files, os.statvfs(self.data).f_files))
        self.assertTrue(files[0] <= space["files"]["total"] <= files[1], (space, files))
        self.assertTrue(self.run_client("df", self.top))
        known = self.run_json("mounts", self.top)
        self.assertEqual([export["directory"] for export in known["exports"]], ["/export"])
        self.assertIn(b"/export", self.run_client("mounts", self.top))

    def test_doctor(self):
        for arguments in ((), (self.in_version(self.top),)):
            done = subprocess.run([self.client, "--json", "doctor", *arguments], capture_output=True, timeout=120 * daemon.SLOW,
                                  check=False)
            found = {finding["check"]: finding for finding in json.loads(done.stdout)}
            self.assertIn("kernel", found)
            # The machine may have problems of its own: the code agrees with what was found.
            bad = any(finding["state"] == "problem" for finding in found.values())
            self.assertEqual(done.returncode, FAILED if bad else DONE, found)
        self.what_doctor_sees(found)
        # What was mounted for the look is no longer.
        self.assertEqual(self.run_json("mounts", self.top)["mounts"], [])

    # --- that change ---

    def test_cp_of_trees_both_ways(self):
        source, back = os.path.join(self.folder, "source"), os.path.join(self.folder, "back")
        self.make_tree(source)
        self.assertEqual(self.run_client("-q", "cp", "-r", "--checksum", source, self.top + "/checked").count(b"\n"), 5)
        self.assertEqual(tree(self.there("checked")), tree(source))
        totals = self.run_json("cp", "-r", source, self.top + "/tree")
        self.assertEqual((totals["files"], totals["links"], totals["failures"]), (5, 1, 0))
        self.assertEqual(totals["bytes"], 4097 + 300_001 + 5_000_003 + 4)
        self.assertEqual(tree(self.there("tree")), tree(source))
        # With checksums it is one document too.
        checked = self.run_json("cp", "-r", "--checksum", source, self.top + "/json")
        found = {item["path"].rsplit("/json/", 1)[1]: item["sha256"] for item in checked["checksums"]}
        expected = {}
        for folder, _, names in os.walk(source):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    with open(path, "rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    expected[os.path.relpath(path, source)] = digest
        self.assertEqual(found, expected)
        self.run_client("-q", "cp", "-r", "--checksum", self.top + "/tree", back)
        self.assertEqual(tree(back), tree(source))
        # Between two places at a server, into a directory that is there.
        os.mkdir(self.there("into"))
        self.run_client("-q", "cp", "-r", self.top + "/tree", self.top + "/into")
        self.assertEqual(tree(self.there("into", "tree")), tree(source))

    def test_cp_writes_through_no_link(self):
        source, target = self.there("tree"), os.path.join(self.folder, "target")
        self.make_tree(source)
        victim = self.write(os.path.join(self.folder, "victim"), b"mine")
        elsewhere = os.path.join(self.folder, "elsewhere")
        os.mkdir(elsewhere)
        os.makedirs(os.path.join(target, "tree"))
        os.symlink(victim, os.path.join(target, "tree", "odd"))
        os.symlink(elsewhere, os.path.join(target, "tree", "deep"))
        self.run_client("-q", "cp", "-r", self.top + "/tree", target, code=FAILED)
        with open(victim, "rb") as file:
            self.assertEqual(file.read(), b"mine")
        self.assertEqual(os.listdir(elsewhere), [])
        self.assertEqual(os.path.getsize(os.path.join(target, "tree", "nothing")), 0)  # and the rest goes on

    def test_cp_lends_no_rights_to_programs_of_others(self):
        program = self.write(self.there("program"), b"#!/bin/sh")
        os.chmod(program, 0o6755)
        for more in ([], ["-p"]):
            copy = os.path.join(self.folder, "copy" + "".join(more))
            self.run_client("-q", "cp", *more, self.top + "/program", copy)
            self.assertEqual(stat.S_IMODE(os.stat(copy).st_mode) & 0o6111, 0o111)

    def test_cp_of_files(self):
        source = self.write(os.path.join(self.folder, "one"), random.Random(2).randbytes(3_000_001))
        second = self.write(os.path.join(self.folder, "two"), b"two")
        os.chmod(source, 0o750)
        os.utime(source, ns=(10**18, 10**18))
        self.run_client("-q", "cp", "-p", source, self.top + "/copy")
        status = os.stat(self.there("copy"))
        self.assertEqual((stat.S_IMODE(status.st_mode), status.st_mtime_ns), (0o750, 10**18))
        # The lines that it prints are those of sha256sum.
        back = os.path.join(self.folder, "back")
        lines = self.run_client("-q", "cp", "--checksum", self.top + "/copy", back)
        self.assertTrue(filecmp.cmp(source, back, shallow=False))
        self.run_tool("sha256sum", "-c", "--strict", input=lines)
        # Over a longer one, and several into a directory.
        self.run_client("-q", "cp", second, self.top + "/copy")
        self.assertEqual(self.run_client("cat", self.top + "/copy"), b"two")
        self.run_client("-q", "cp", source, second, self.top)
        self.assertEqual({"copy", "one", "two"}, set(os.listdir(self.data)))
        for seconds, told in self.times:
            os.utime(second, (seconds, seconds))
            self.run_client("-q", "cp", "-p", second, self.top + "/copy")
            self.assertEqual(os.stat(self.there("copy")).st_mtime_ns // 10**9, told)
        # ... and what lies outside at the server is told so.
        for seconds, told in self.times:
            os.utime(self.there("copy"), (seconds, seconds))
            day = time.strftime("%Y-%m-%d", time.localtime(told)).encode()
            self.assertIn(day, self.run_client("ls", "-l", self.top + "/copy"))
            self.run_client("-q", "cp", "-p", self.top + "/copy", back)
            self.assertEqual(os.stat(back).st_mtime_ns // 10**9, told)
        self.run_client("-q", "cp", source, second, self.top + "/copy", code=USAGE)
        self.run_client("-q", "cp", source + "-not-there", self.top + "/new", code=FAILED)
        self.run_client("-q", "cp", self.data, self.top + "/new", code=FAILED) # a folder without -r
        self.assertFalse(os.path.isfile(self.there("new")))

    def test_cp_onto_itself(self):
        data = random.Random(4).randbytes(100_001)
        mine, there = (self.write(path, data) for path in (os.path.join(self.folder, "one"), self.there("one")))
        for path in (mine, there):
            os.symlink("one", path + "-link")
            os.link(path, path + "-hard")
        for one in (mine, self.top + "/one"):
            for target in ("", "-link", "-hard"):
                self.assertIn(b"the same file", self.run_failing("-q", "cp", one, one + target))
        for path in (mine, there):
            with open(path, "rb") as file:
                self.assertEqual(file.read(), data)
        # From here to there and back it is another file.
        self.run_client("-q", "cp", mine, self.top + "/one")
        self.run_client("-q", "cp", self.top + "/one", mine)

    def test_cp_by_another_name(self):
        # What is here and what the server has are one.
        data = random.Random(5).randbytes(300_001)
        mine, other = self.write(self.there("one"), data), self.top + "/one"
        for source, target in ((mine, other), (other, mine)):
            self.assertIn(b"the same file", self.run_failing("-q", "cp", source, target))
        with open(mine, "rb") as file:
            self.assertEqual(file.read(), data)
        for target in ("/copy", "/b/copy", "/b/c/copy"):
            os.makedirs(self.there("a/b/c"))
            for number in range(40):
                self.write(self.there(f"a/{number}"), data)
            self.assertIn(b"into itself", self.run_failing("-q", "cp", "-r", self.there("a"), self.top + "/a" + target))
            self.assertIn(b"into itself", self.run_failing("-q", "cp", "-r", self.top + "/a", self.there("a") + target))
            self.assertLess(max(path.count("/") for path in tree(self.there("a"))), 10)
            shutil.rmtree(self.there("a"))

    def test_cp_over_what_is_there(self):
        # Cut to length behind the data; what isn't longer is not cut.
        for place in (self.folder, self.data):
            target = self.top + "/target" if place == self.data else os.path.join(place, "target")
            for size in (100_000, 1, 0, 70_000):
                source = self.write(os.path.join(self.folder, "source"), random.Random(size).randbytes(size))
                self.run_client("-q", "cp", source, target)
                self.assertTrue(filecmp.cmp(source, os.path.join(place, "target"), shallow=False))

    def test_checksums_of_odd_names(self):
        source = os.path.join(self.folder, "odd")
        os.mkdir(source)
        for name in ("a\nb", "c\\d", "e\rf", "plain"):
            self.write(os.path.join(source, name), name.encode())
        self.run_client("-q", "cp", "-r", source, self.top + "/odd")
        back = os.path.join(self.folder, "back")
        lines = self.run_client("-q", "cp", "-r", "--checksum", self.top + "/odd", back)
        self.assertEqual(lines.count(b"\n"), 4)
        self.run_tool("sha256sum", "-c", "--strict", input=lines)

    def test_cp_of_a_directory_into_itself(self):
        os.makedirs(os.path.join(self.folder, "a", "b"))
        os.makedirs(self.there("a/b"))
        for a in (os.path.join(self.folder, "a"), self.top + "/a"):
            for target in ("", "/b", "/b/c"):
                self.assertIn(b"into itself", self.run_failing("-q", "cp", "-r", a, a + target))
        for top in (os.path.join(self.folder, "a"), self.there("a")):
            deepest = max(path.count("/") for path in tree(top))
            self.assertLess(deepest, 6)
            self.assertTrue(os.path.isdir(os.path.join(top, "b")))

    def test_mkdir_mv_and_rm(self):
        self.run_client("mkdir", self.top + "/a")
        self.run_client("mkdir", self.top + "/a", code=FAILED)
        self.run_client("mkdir", self.top + "/b/c/d", code=FAILED)
        self.run_client("mkdir", "-p", "-m", "711", self.top + "/b/c/d", self.top + "/a")
        self.assertEqual(stat.S_IMODE(os.stat(self.there("b", "c", "d")).st_mode), 0o711)
        self.make_tree(self.there("a", "tree"))
        before = tree(self.there("a"))

        self.run_client("mv", self.top + "/a", self.top + "/e")
        self.assertEqual(tree(self.there("e")), before)
        self.run_client("mv", self.top + "/e/tree/odd", self.top + "/b/c") # into a directory
        self.assertEqual(os.path.getsize(self.there("b", "c", "odd")), 4097)
        self.run_client("mv", self.top + "/not-there", self.top + "/x", code=FAILED)
        elsewhere = self.base("iwarp" if self.transport == "tcp" else "tcp", self.host)
        self.run_client("mv", self.top + "/e", elsewhere + "/x", code=USAGE) # by one connection only

        self.run_client("rm", self.top + "/e", code=FAILED) # a folder without -r
        self.run_client("rm", self.top + "/not-there", code=FAILED)
        self.run_client("rm", "-f", self.top + "/not-there")
        self.run_client("rm", self.top + "/b/c/odd")
        self.run_client("mkdir", self.top + "/empty")
        self.run_client("rm", "-r", self.top + "/e", self.top + "/b", self.top + "/empty")
        self.assertEqual(os.listdir(self.data), [])
        self.run_client("rm", "-r", self.top, code=FAILED) # the export itself

    # --- exit codes ---

    def test_output_that_is_lost(self):
        self.write(self.there("file"), b"text")
        for command in ("ls", "stat", "cat", "df", "mounts", "ping"):
            for options in ((), ("--json",)) if command != "cat" else ((),):
                with open("/dev/full", "wb") as full:
                    done = subprocess.run([self.client, *options, command, self.top + "/file"], stdout=full,
                                          stderr=subprocess.PIPE, text=True, timeout=120 * daemon.SLOW, check=False)
                self.assertEqual(done.returncode, FAILED, (command, done.stderr))
                self.assertEqual(done.stderr.count("No space left on device"), 1, (command, done.stderr))

    def test_output_above_a_buffer_that_is_lost(self):
        os.mkdir(self.there("many"))
        for i in range(3000):
            self.write(self.there("many", f"name-{i}"), b"")
        for options in ((), ("-l",), ("--json",)):
            command = [self.client, "ls", *options, self.top + "/many"]
            with open("/dev/full", "wb") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120 * daemon.SLOW, check=False)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertEqual(done.stderr.count("No space left on device"), 1, done.stderr)
            # A reader that wants no more needs no telling.
            ours, theirs = os.pipe()
            os.close(ours)
            with open(theirs, "wb") as pipe:
                done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=120 * daemon.SLOW, check=False)
            self.assertEqual((done.returncode, done.stderr), (FAILED, ""))

    def test_what_makes_no_sense(self):
        for arguments in ((), ("no-such-command",), ("ls",), ("ls", "--no-such-option", self.top), ("ls", "/a/path"),
                          ("ls", "http://127.0.0.1/export"), ("stat", "nfs+tcp://127.0.0.1:99999/export"),
                          ("cat", "nfs+tcp:///export"), ("mkdir", "-m", "9", self.top + "/x"),
                          ("ping", "-c", "0", self.top)):
            self.run_client(*arguments, code=USAGE)

    def test_what_cannot_be_reached(self):
        # A port that is taken and does not listen: nobody else gets it meanwhile.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        taken = socket.socket(family)
        self.addCleanup(taken.close)
        taken.bind((self.host.strip("[]"), 0))
        nobody = f"nfs+{self.transport}://{self.host}:{taken.getsockname()[1]}/export"
        for arguments in (("ls",), ("stat",), ("cat",), ("df",), ("mounts",), ("ping", "-c", "1"), ("rm",), ("mkdir",)):
            self.run_client("--soft", "--timeout", "5", *arguments, nobody, code=UNREACHABLE)
        source = self.write(os.path.join(self.folder, "one"), b"one")
        self.run_client("--soft", "--timeout", "5", "-q", "cp", source, nobody, code=UNREACHABLE)
        self.what_is_no_export()
        found = self.run_json("--soft", "--timeout", "5", "doctor", nobody, code=FAILED)
        self.assertEqual({f["check"]: f["state"] for f in found}["server"], "problem")


class OverTcp(Version3, Commands, Client):
    transport = "tcp"


class OverIwarp(Version4, Commands, Client):
    """In the highest version, which nobody has to name."""
    transport = "iwarp"

    def operations(self, name, outcome="ok"):
        return self.daemon.metric(f'verbena_nfs4_operations_total{{operation="{name}",result="{outcome}"}}') or 0

    def test_the_server_copies_by_itself(self):
        inner = os.path.join(self.folder, "inner")
        os.mkdir(inner, 0o777)
        self.daemon.stop()
        self.daemon = self.start("--export", inner + ":/inner,root_squash=no", export=":/export,root_squash=no")
        self.top = self.base(self.transport, self.host)
        os.mkdir(self.there("tree"))
        data = random.Random(9).randbytes(5_000_001)
        for name in ("one", "two"):
            self.write(self.there("tree", name), data)
        self.write(self.there("tree", "small"), data[:1000])
        self.write(self.there("longer"), data + data)
        totals = self.run_json("cp", "-r", self.top + "/tree", self.top + "/copy")
        self.assertEqual((totals["files"], totals["bytes"]), (3, 2 * len(data) + 1000))
        self.assertEqual(tree(self.there("copy")), tree(self.there("tree")))
        self.assertGreaterEqual(self.operations("COPY"), 2)
        self.assertEqual(self.operations("READ"), 1) # of the small one
        self.run_client("-q", "cp", "-p", self.top + "/tree/one", self.top + "/longer")
        self.assertEqual(os.stat(self.there("longer")).st_mtime_ns, os.stat(self.there("tree", "one")).st_mtime_ns)
        self.assertTrue(filecmp.cmp(self.there("tree", "one"), self.there("longer"), shallow=False))
        # Where it can't be, what is read is written: between exports, in other versions, and where a checksum is asked for.
        before = self.operations("COPY")
        for more, query, target in (((), "", "/inner/one"), ((), "?vers=4.1", "/export/41"), ((), "?vers=3", "/export/3"),
                                    (("--checksum", ), "", "/export/sum")):
            to = self.top.replace("/export", target) + query
            self.run_client("-q", "cp", *more, self.top + "/tree/one" + query, to)
            self.assertEqual(self.run_client("cat", to), data)
        self.assertEqual(self.operations("COPY"), before)
        # Two exports are asked about once, whatever the number of files.
        failed = self.operations("COPY", "failed")
        os.mkdir(os.path.join(inner, "both"), 0o777)
        self.run_client("-q", "cp", self.top + "/tree/one", self.top + "/tree/two", self.top.replace("/export", "/inner/both"))
        self.assertTrue(filecmp.cmp(self.there("tree", "two"), os.path.join(inner, "both", "two"), shallow=False))
        self.assertEqual(self.operations("COPY", "failed"), failed + 1)

    def test_one_file_in_two_exports(self):
        """Version 4 tells both apart by their file systems' numbers."""
        self.daemon.stop()
        os.mkdir(self.there("inner"), 0o777)
        self.daemon = self.start("--export", self.there("inner") + ":/inner,root_squash=no", export=":/export,root_squash=no")
        outer = self.base(self.transport, self.host) + "/inner"
        inner = outer.replace("/export", "")
        data = random.Random(10).randbytes(300_001)
        for name in ("one", "two"):
            self.write(self.there("inner", name), data)
        for query in ("", "?vers=3"):
            for one, other in ((outer, inner), (inner, outer)):
                self.assertIn(b"the same file", self.run_failing("-q", "cp", one + "/one" + query, other + "/one" + query))
                self.assertIn(b"into itself", self.run_failing("-q", "cp", "-r", one + query, other + "/copy" + query))
                self.assertLess(max(path.count("/") for path in tree(self.data)), 6)
                shutil.rmtree(self.there("inner", "copy"), ignore_errors=True)
        with open(self.there("inner", "one"), "rb") as file:
            self.assertEqual(file.read(), data)

    def test_a_root_that_is_an_export(self):
        """A URL without a version may be of another export in version 3: then nothing is made in the root of version 4."""
        self.daemon.stop()
        other = os.path.join(self.folder, "other")
        os.mkdir(other)
        # In version 4 it is not there for us; the list of version 3 names it.
        self.daemon = self.start("--export", other + ":/data,clients=192.0.2.1", export=":/,root_squash=no")
        port = self.daemon.port(self.transport)
        root = f"nfs+{self.transport}://{self.host}:{port}"
        mine = self.write(os.path.join(self.folder, "mine"), b"mine")
        os.mkdir(os.path.join(self.folder, "tree"))
        self.write(self.there("here"), b"here")
        for command in (("cp", mine), ("cp", "-r", os.path.join(self.folder, "tree")), ("mkdir", ), ("mkdir", "-p"), ("mv", root + "/here")):
            said = self.run_failing(*command, root + "/data")
            self.assertIn(b"?vers=3 goes there, ?vers=4.2 makes it in the root", said)
        self.run_failing("mkdir", "-p", root + "/data/deeper")
        self.assertEqual(os.listdir(self.data), ["here"])
        self.run_client("cp", mine, root + "/here") # which is there
        self.run_client("cp", mine, root + "/data?vers=4.2")
        # What no other export stands for is made without a word.
        self.run_client("mkdir", root + "/made")
        self.run_client("cp", mine, root + "/mine")
        self.assertEqual(sorted(os.listdir(self.data)), ["data", "here", "made", "mine"])

    def test_several_connections(self):
        def made():
            return self.daemon.metric(f'verbena_connections_accepted_total{{transport="{self.transport}"}}') or 0
        source = self.write(os.path.join(self.folder, "one"), random.Random(8).randbytes(9_000_001))
        before = made()
        self.run_client("-q", "cp", source, self.top + "/one?nconnect=4")
        self.assertEqual(made() - before, 4)
        self.assertEqual(self.run_client("cat", self.top + "/one?nconnect=16&vers=4.1"), self.run_client("cat", self.top + "/one"))
        self.assertTrue(filecmp.cmp(source, self.there("one"), shallow=False))
        said = self.completed("ls", self.top + "?nconnect=2&vers=3", code=USAGE).stderr
        self.assertIn(b"nconnect is of version 4", said)

    def test_a_tree_in_version_3(self):
        here = os.path.join(self.folder, "here")
        self.make_tree(here)
        self.run_client("cp", "-r", "--checksum", here, self.top + "/tree?vers=3")
        self.assertEqual(tree(self.there("tree")), tree(here))
        back = os.path.join(self.folder, "back")
        self.run_client("cp", "-r", self.top + "/tree?vers=3", back)
        self.assertEqual(tree(back), tree(here))
        # From one version to the other, which know the same file by other numbers.
        for one, other in (("?vers=3", ""), ("", "?vers=3")):
            self.run_client("cp", "-r", self.top + "/tree" + one, self.top + "/other" + other)
            self.assertEqual(tree(self.there("other")), tree(here))
            self.run_client("rm", "-r", self.top + "/other" + one)
            self.assertIn(b"the same file", self.run_failing("-q", "cp", self.top + "/tree/odd" + one, self.top + "/tree/odd" + other))
            self.run_client("mv", self.top + "/tree" + one, self.top + "/x" + other, code=USAGE)

    def test_crc(self):
        checked = lambda: self.daemon.metric("verbena_iwarp_crc_checked_total") # pylint: disable=unnecessary-lambda-assignment
        source = self.write(os.path.join(self.folder, "source"), random.Random(6).randbytes(300_000))
        self.run_client("-q", "cp", source, self.top + "/plain")
        self.assertEqual(checked(), 0)
        self.run_client("-q", "--crc", "cp", source, self.top + "/with")
        self.assertGreater(checked(), 300_000 // 65536)
        self.assertTrue(filecmp.cmp(source, self.there("with"), shallow=False))


class Messages(Client):
    def says(self, *arguments, code):
        done = subprocess.run([self.client, *arguments], capture_output=True, timeout=120 * daemon.SLOW, check=False, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def test_words_that_are_not_known(self):
        self.assertIn("no command lss; did you mean ls?", self.says("lss", code=USAGE))
        self.assertIn("no option --recursiv; did you mean --recursive?", self.says("ls", "--recursiv", "x", code=USAGE))

    def doctor_of_mnt(self, url):
        done = subprocess.run([self.client, "--json", "doctor", url + "?vers=3"], capture_output=True, timeout=120 * daemon.SLOW, check=False)
        found = {f["check"]: f for f in json.loads(done.stdout)}["MNT"]
        self.assertEqual((done.returncode, found["state"]), (FAILED, "problem"))
        return found

    def test_doctor_and_exports_that_refuse(self):
        found = self.doctor_of_mnt(self.top.replace("/export", "/elsewhere"))
        self.assertIn("MNT3ERR_NOENT", found["text"])
        self.assertIn("`verbena mounts` lists", found["cure"])
        self.daemon.stop()
        self.daemon = self.start(export=":/export,clients=192.0.2.1")
        found = self.doctor_of_mnt(self.base("tcp", "127.0.0.1"))
        self.assertIn("MNT3ERR_ACCES", found["text"])
        self.assertIn("add this host to the export's clients", found["cure"])
        self.daemon.stop()
        self.daemon = self.start(export=":/export,transport=tcp")
        found = self.doctor_of_mnt(self.base("iwarp", "127.0.0.1"))
        self.assertIn("/export can be mounted, but not used", found["text"])
        self.assertIn("transports", found["cure"])

    def test_doctor_and_a_path_that_is_not_there(self):
        for word, hint in (("/export/none", ""), ("/elsewhere", "?vers=3 looks for an export")):
            done = subprocess.run([self.client, "--json", "doctor", self.top.replace("/export", word)], capture_output=True,
                                  timeout=120 * daemon.SLOW, check=False)
            found = {f["check"]: f for f in json.loads(done.stdout)}
            self.assertEqual((done.returncode, found["server"]["state"], found["path"]["state"]), (FAILED, "ok", "problem"))
            self.assertIn("No such file or directory", found["path"]["text"])
            self.assertIn(hint, found["path"]["text"])
            self.assertIn("`verbena ls`", found["path"]["cure"])

    def test_a_device_is_chosen_for_rdma_only(self):
        for option in ("--device", "--source"):
            for arguments in (("ls", self.top), ("doctor",), ("cp", self.folder, self.top),
                              ("conform", "iwarp://127.0.0.1:1")):
                said = self.says(option, "rxe0", *arguments, code=USAGE)
                self.assertIn(f"{option} chooses an RDMA device, and no URL here goes by one", said)
                self.assertIn("write nfs+rdma://", said)

    def test_crc_is_asked_for_by_iwarp_only(self):
        for arguments in (("ls", self.top.replace("iwarp", "tcp")), ("doctor",)):
            self.assertIn("no URL here goes by iWARP", self.says("--crc", *arguments, code=USAGE))

    def test_options_that_change_nothing(self):
        for arguments in (("cat", self.top), ("rm", self.top), ("mkdir", self.top), ("mv", self.top, self.top)):
            self.assertIn(f"--json changes nothing here, since {arguments[0]} ", self.says("--json", *arguments, code=USAGE))
        self.assertIn("--listen", self.says("conform", "--once", "iwarp://127.0.0.1:1", code=USAGE))

    def test_ports_that_contradict_each_other(self):
        self.assertIn("contradict each other", self.says("ls", self.top + "?nfsport=7", code=USAGE))

    def test_errors_have_words(self):
        for query, name in (("?vers=3", "NFS3ERR"), ("", "NFS4ERR")):
            said = self.says("ls", self.top + "/nothing" + query, code=FAILED)
            self.assertIn(f"LOOKUP: {name}_NOENT: No such file or directory", said)

    def test_positionals_are_explained(self):
        for command in ("ping", "ls", "cat", "stat", "cp", "rm", "mkdir", "mv", "df", "mounts", "doctor", "conform"):
            said = re.split("positionals:", self.run_client(command, "--help").decode(), flags=re.I)[1].split("\n\n")[0]
            for line in said.strip().splitlines():
                words = re.sub(r"TEXT|REQUIRED|\.\.\.|Excludes: \S+", "", line).split()
                self.assertGreaterEqual(len(words), 2, (command, line))

    def test_one_is_not_many(self):
        source = self.write(os.path.join(self.folder, "one"), b"one")
        self.assertTrue(self.says("cp", source, self.top + "/one", code=DONE).startswith("1 file, "))

    def test_no_connection_and_the_cure(self):
        port = self.daemon.port("tcp")
        said = self.says("--soft", "ls", f"nfs+iwarp://127.0.0.1:{port}/export", code=UNREACHABLE)
        self.assertIn("answers, but not as iWARP", said)
        self.assertIn(f"nfs+tcp://127.0.0.1:{port}/export", said)
        said = self.says("ls", "nfs+tcp://no-such-host.invalid/export", code=UNREACHABLE)
        self.assertIn("getent hosts no-such-host.invalid", said)

    def test_a_port_of_iwarp_by_tcp(self):
        port = self.base("iwarp", "127.0.0.1").split(":")[2].split("/")[0]
        url = f"nfs+tcp://127.0.0.1:{port}/export"
        for arguments in (("ls",), ("--soft", "--timeout", "1", "ls"), ("ping", "-c", "100000"), ("mounts",)):
            said = self.says(*arguments, url, code=UNREACHABLE)
            self.assertIn("not as NFS: give the port of an NFS server, or try nfs+iwarp://127.0.0.1:" + port, said)
            self.assertIn("; or that server is full or ending: try again later", said)
            self.assertNotIn("mountport", said)
        self.assertLess(self.daemon.metric('verbena_connection_ends_total{transport="iwarp",cause="bad_startup"}'), 40)
        said = self.says("mounts", f"{self.base('tcp', '127.0.0.1')}?mountport={port}", code=UNREACHABLE)
        self.assertIn(f"what ?mountport={port} names is no MOUNT service", said)

    def test_a_service_that_rejects(self):
        """An MPA Reply with the R flag (RFC 5044 7.1)."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            where = f"127.0.0.1:{listener.getsockname()[1]}"

            def reject():
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(peers.LIMIT)
                    connection.recv(peers.MIB)
                    connection.sendall(peers.mpa_request(key=peers.REPLY_KEY, flags=peers.FLAG_ENHANCED | 0x20))
                    connection.shutdown(socket.SHUT_WR)
                    peers.until_closed(connection)

            service = threading.Thread(target=reject, daemon=True)
            service.start()
            said = self.says("--soft", "ls", f"nfs+iwarp://{where}/export?mountport={self.daemon.port('tcp')}",
                             code=UNREACHABLE)
            service.join(peers.LIMIT)
            self.assertFalse(service.is_alive())
        for part in ("cannot connect to", "the peer rejected the connection", "a service answers there and wants none of this"):
            self.assertIn(part, said)

    def test_a_port_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            where = f"127.0.0.1:{silent.getsockname()[1]}"
            said = self.says("--soft", "--timeout", "1", "ls", f"nfs+tcp://{where}/x", code=UNREACHABLE)
            self.assertIn(f"verbena: {where} (tcp) does not answer, still trying\n", said)
            self.assertIn("takes the connection and does not answer in time: give the port", said)
            with subprocess.Popen([self.client, "--timeout", "1", "-q", "ls", f"nfs+tcp://{where}/x"],
                                  stderr=subprocess.PIPE, text=True) as hard:
                self.addCleanup(hard.kill)
                self.assertEqual(hard.stderr.readline(),
                                 f"verbena: {where} (tcp) does not answer, still trying; --soft gives up\n")
                hard.kill()

    def test_doctor_and_a_port_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            done = subprocess.run([self.client, "--json", "doctor", f"nfs+tcp://127.0.0.1:{silent.getsockname()[1]}/x"],
                                  capture_output=True, timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, FAILED)
        found = {f["check"]: f for f in json.loads(done.stdout)}
        self.assertEqual(found["server"]["state"], "problem")
        self.assertTrue(found["server"]["cure"])

    def test_doctor_names_what_is_wrong(self):
        # In a network of its own: the ports that it looks at are fixed.
        taken = ("import resource, socket, subprocess, sys\n"
                 "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
                 "held = socket.create_server(('127.0.0.1', 9464))\n"
                 "resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))\n"
                 "sys.exit(subprocess.run(sys.argv[1:], user=65534, group=65534, extra_groups=[]).returncode)\n")
        # Where nobody may go too.
        reachable = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, reachable)
        os.chmod(reachable, 0o755)
        client = shutil.copy(self.client, reachable)
        command = ["unshare", "--net", sys.executable, "-c", taken, client, "--json", "doctor"]
        seen = {}
        for name, before in (("ring", None), ("no ring", refuse({IO_URING_SETUP: errno.EPERM}))):
            done = subprocess.run(command, capture_output=True, timeout=120 * daemon.SLOW, check=False,
                                  preexec_fn=before) # pylint: disable=subprocess-popen-preexec-fn
            seen[name] = {finding["check"]: finding for finding in json.loads(done.stdout)}
            self.assertEqual(seen[name]["port 9464"]["state"], "hint")
            self.assertIn("sport = :9464", seen[name]["port 9464"]["cure"])
            self.assertEqual(seen[name]["port 20049"]["state"], "ok")
            self.assertEqual(seen[name]["port 2049"]["state"], "ok")
            self.assertEqual(seen[name]["memlock"]["state"], "hint")
            self.assertIn("8.0 MiB", seen[name]["memlock"]["text"])
            self.assertIn("LimitMEMLOCK=infinity", seen[name]["memlock"]["cure"])
            self.assertEqual(seen[name]["capabilities"]["state"], "hint")
            self.assertIn("CAP_SETUID", seen[name]["capabilities"]["text"])
            self.assertIn(seen[name]["huge pages"]["state"], ("ok", "hint"))
        self.assertEqual(seen["ring"]["io_uring"]["state"], "ok")
        self.assertEqual(seen["ring"]["rpcbind"]["state"], "hint")
        self.assertIn("apt-get install rpcbind", seen["ring"]["rpcbind"]["cure"])
        self.assertEqual(seen["no ring"]["io_uring"]["state"], "problem")
        self.assertIn("seccomp", seen["no ring"]["io_uring"]["cure"])
        self.assertEqual(done.returncode, FAILED)

    def test_root_is_told_about_root_squash(self):
        self.assertEqual(os.geteuid(), 0, "only root is squashed: run as root")
        os.mkdir(self.there("roots"), 0o755)
        self.daemon.stop()
        self.daemon = self.start(export=":/export")
        self.assertIn("root_squash", self.says("mkdir", self.base("tcp", "127.0.0.1") + "/roots/x", code=FAILED))

    def copying_slowly(self, source, target, errors, most, until):
        """Copies; the server gets no more than MOST octets until until() returns."""
        relay = client_recovery_test.Relay(self.daemon.port("tcp"), most)
        self.addCleanup(relay.close)
        url = f"nfs+tcp://127.0.0.1:{relay.at}/export/{target}"
        with subprocess.Popen([self.client, "cp", "-r", source, url], stdout=subprocess.DEVNULL, stderr=errors) as copy:
            try:
                self.assertTrue(relay.full.wait(60 * daemon.SLOW))
                until()
            finally:
                relay.cut()
            self.assertEqual(copy.wait(120 * daemon.SLOW), DONE)

    def many_files(self):
        source = os.path.join(self.folder, "many")
        os.makedirs(source, exist_ok=True)
        for i in range(300):
            self.write(os.path.join(source, str(i)), b"x" * 100)
        return source

    def shows(self, source, target, line, most):
        """Waits for a LINE that a terminal shows of a copy of which MOST octets have gone."""
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        shown = bytearray()

        def read():
            try:
                while True:
                    shown.extend(os.read(terminal, 65536))
            except OSError: # nobody has it open any more
                pass

        reader = threading.Thread(target=read)
        reader.start()
        found = re.compile(rb"\r\x1b\[K" + line)

        def until_progress():
            limit = time.monotonic() + 60 * daemon.SLOW
            while not found.search(bytes(shown)):
                self.assertLess(time.monotonic(), limit, bytes(shown[-300:]))
                time.sleep(0.02)

        try:
            self.copying_slowly(source, target, end, most, until_progress)
        finally:
            os.close(end)
            reader.join()
        # It is wiped in the end.
        self.assertNotIn(b" of ", shown.rpartition(b"\r\x1b[K")[2])

    def test_cp_shows_progress_on_a_terminal(self):
        source = self.write(os.path.join(self.folder, "large"), bytes(20_000_000))
        self.shows(source, "shown", rb"\[[#.]{24}\] +\d+%  \S+ ?\w* of \S+ ?\w*  0 of 1 files  [^\r\n]*/s", 8 << 20)
        self.assertEqual(os.path.getsize(self.there("shown")), 20_000_000)

    def test_cp_says_that_it_counts(self):
        # Files are started eight at a time, so there always are more.
        self.shows(self.many_files(), "counted", rb"counting  \S+ ?\w* of \S+ ?\w*  \d+ of \d+ files so far  [^\r\n]*/s", 20_000)
        self.assertEqual(len(os.listdir(self.there("counted"))), 300)

    def test_cp_shows_no_progress_to_files(self):
        with open(os.path.join(self.folder, "errors"), "w+b") as errors:
            # As long as another copy takes to show some of it.
            self.copying_slowly(self.many_files(), "hidden", errors, 20_000,
                                lambda: self.shows(self.many_files(), "seen", rb"counting ", 20_000))
            errors.seek(0)
            self.assertNotRegex(errors.read(), rb"[\r\x1b%]")

    def test_an_export_that_does_not_admit_the_transport(self):
        self.daemon.stop()
        self.daemon = self.start(export=":/export,transport=tcp")
        url = (f"nfs+iwarp://127.0.0.1:{self.daemon.port('iwarp')}/export"
               f"?mountport={self.daemon.port('tcp')}")
        self.assertIn("may not admit this transport", self.says("ls", url + "&vers=3", code=UNREACHABLE))
        self.assertIn("the server has no export for this address or transport", self.says("ls", url, code=UNREACHABLE))


class OverIpv6(Client):
    listeners = ("--listen", "tcp://[::1]:0", "--listen", "iwarp://[::1]:0")
    host = "[::1]"

    def setUp(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as e:
            self.fail(f"no IPv6 on loopback ({e}): sysctl net.ipv6.conf.lo.disable_ipv6=0")
        super().setUp()

    def test_the_commands_over_ipv6(self):
        source = self.write(os.path.join(self.folder, "one"), random.Random(4).randbytes(1_500_001))
        for transport in ("tcp", "iwarp"):
            top = self.base(transport, "[::1]")
            self.assertEqual(self.run_json("ping", "-c", "2", top)["answered"], 2)
            self.run_client("-q", "cp", "--checksum", source, f"{top}/by-{transport}")
            self.assertIn(f"by-{transport}", self.run_client("ls", top).decode())
            with open(source, "rb") as file:
                self.assertEqual(self.run_client("cat", f"{top}/by-{transport}"), file.read())
            self.run_client("rm", f"{top}/by-{transport}")


if __name__ == "__main__":
    daemon.main()
