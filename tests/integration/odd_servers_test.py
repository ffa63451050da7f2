#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client `verbena` beside servers that are odd, broken or hostile. What a server says never makes a command go on for ever,
print what a terminal obeys, lose data without a word or write outside its target."""
import base64
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import daemon
import fake_server as fake
from fake_server import Node, filled, read_results
from peers import NFS

DONE, FAILED, USAGE, UNREACHABLE = range(4)
OBEYED = b"\x1b[31m\x9b\x07" # by a terminal; the second is no UTF-8


class OddServers(unittest.TestCase):
    def setUp(self):
        self.client = os.path.join(os.path.dirname(os.path.abspath(daemon.BINARY)), "verbena")
        self.folder = tempfile.mkdtemp(prefix="verbena-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.target = os.path.join(self.folder, "target")
        os.mkdir(self.target)

    def serve(self, names):
        server = fake.FakeServer(filled(names))
        self.addCleanup(server.close)
        self.addCleanup(lambda: self.assertIsNone(server.failure))
        return server

    def run_client(self, *arguments, code=DONE):
        """Standard output and standard error output."""
        done = subprocess.run([self.client, *arguments], capture_output=True, timeout=60 * daemon.SLOW, check=False, cwd=self.folder,
                              env=daemon.light(arguments))
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        # Contents of files are what they are; all else is text.
        for text in (done.stderr, b"" if "cat" in arguments else done.stdout):
            self.assertIsNone(re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", text), text)
            text.decode()
        self.assertEqual(bool(done.stderr), code != DONE, done.stderr)
        return done.stdout, done.stderr

    def run_json(self, *arguments, code=DONE):
        return json.loads(self.run_client("-q", "--json", *arguments, code=code)[0])

    def below(self, folder):
        return {os.path.relpath(os.path.join(top, name), folder)
                for top, directories, files in os.walk(folder) for name in directories + files}

    # --- entries that are refused ---

    def test_what_is_refused_hides_nothing(self):
        server = self.serve({b"a": Node(), b"b": Node(refused=fake.EACCES), b"c": filled({b"d": Node()}),
                             b"link": Node(fake.LINK, b"a")})
        for plus in (True, False):
            server.plus = plus
            out, told = self.run_client("ls", "-l", server.url, code=FAILED)
            self.assertEqual([line.split()[7] for line in out.decode().splitlines()], ["a", "c", "link"])
            self.assertRegex(told, rb"\Averbena: /export/b: LOOKUP: NFS3ERR_ACCES.*\n\Z")
            out, told = self.run_client("ls", "-R", server.url, code=FAILED)
            self.assertEqual(out, b"/export:\na\nb\nc\nlink\n\n/export/c:\nd\n")
            self.assertEqual(told.count(b"\n"), 1)
            self.assertEqual([item["name"] for item in self.run_json("ls", "-R", server.url, code=FAILED)],
                             ["/export/a", "/export/c", "/export/link", "/export/c/d"])
        self.assertEqual(self.run_client("ls", server.url)[0], b"a\nb\nc\nlink\n")

    def test_a_folder_or_link_that_cannot_be_read(self):
        server = self.serve({b"a": filled({b"in": Node()}), b"b": filled({}), b"link": Node(fake.LINK, b"a")})
        closed = server.root.names[b"a"].handle
        for procedure in (fake.READDIR, fake.READDIRPLUS):
            server.answers[NFS, procedure] = (lambda s, a: fake.refusal(fake.EACCES) if a.opaque() == closed else None)
        server.answers[NFS, fake.READLINK] = lambda s, a: fake.refusal(fake.EIO)
        out, told = self.run_client("ls", "-lR", server.url, code=FAILED)
        self.assertIn(b"/export/b:\n", out)
        self.assertIn(b"link\n", out)
        self.assertRegex(told, rb"/export/link: READLINK(.|\n)*/export/a: READDIRPLUS")
        _, told = self.run_client("cp", "-r", server.url, self.target, code=FAILED)
        self.assertIn(b"/export/a: READDIR", told)
        self.assertEqual(self.below(self.target), {"export", "export/a", "export/b"})
        _, told = self.run_client("rm", "-r", server.url + "/a", code=FAILED)
        self.assertIn(b"READDIRPLUS", told)

    def test_rm_goes_on(self):
        server = self.serve({b"d": filled({b"a": Node(), b"b": Node(refused=fake.EACCES), b"c": Node(),
                                           b"e": filled({b"f": Node(refused=fake.EPERM)})})})
        _, told = self.run_client("rm", "-r", server.url + "/d", code=FAILED)
        self.assertEqual(set(server.root.names[b"d"].names), {b"b", b"e"})
        self.assertRegex(told, rb"/export/d/b: .*EACCES|/export/d/b: .*NFS3ERR_ACCES")
        self.assertIn(b"/export/d/e/f: ", told)
        self.assertNotIn(b"NOTEMPTY", told)

    def test_rm_of_what_fails_for_another_reason_empties_nothing(self):
        server = self.serve({b"d": filled({b"a": Node()})})
        server.answers[NFS, fake.RMDIR] = lambda s, a: fake.refusal(fake.EIO)
        _, told = self.run_client("rm", "-r", server.url + "/d", code=FAILED)
        self.assertIn(b"RMDIR", told)
        self.assertEqual(set(server.root.names[b"d"].names), {b"a"})

    def test_dots_are_not_changed(self):
        inner, other = filled({b"file": Node()}), filled({b"kept": Node()})
        root = {b"a": inner, b"b": other, b"file": Node()}
        server = self.serve(root)
        inner.names.update({b".": inner, b"..": server.root})
        changes = {fake.REMOVE, fake.RMDIR, fake.MKDIR, fake.RENAME}
        for end in ("/.", "/..", "/../", "/b/../../a/.."):
            for words in (("rm", "-rf", server.url + "/a" + end), ("mkdir", server.url + "/a" + end),
                          ("mv", server.url + "/a" + end, server.url + "/b"), ("mv", server.url + "/a" + end, server.url + "/new")):
                with self.subTest(words):
                    server.calls.clear()
                    _, told = self.run_client(*words, code=FAILED)
                    self.assertRegex(told, rb"'\.' and '\.\.' are no names of their own: write the directory's name")
                    self.assertFalse(changes & set(server.calls))
        self.run_client("mv", server.url + "/b", server.url + "/file/.", code=FAILED)
        self.assertFalse(changes & set(server.calls))
        # One that is refused stops no other.
        self.run_client("rm", "-r", server.url + "/a/..", server.url + "/b", code=FAILED)
        self.assertEqual(set(root), {b"a", b"file"})
        # Before the last name they lead where they lead, and a target may be such a directory.
        self.run_client("rm", server.url + "/a/../file")
        self.assertEqual(set(root), {b"a"})
        server.calls.clear()
        self.run_client("mv", server.url + "/a/file", server.url + "/a/..")
        self.assertIn(fake.RENAME, server.calls)
        self.run_client("mkdir", "-p", server.url + "/a/..")

    # --- bytes that are missing, or too many ---

    def test_reads_that_end_before_the_file(self):
        content = bytes(range(256)) * 40
        server = self.serve({b"file": Node(data=content)})
        copy = os.path.join(self.target, "copy")
        replies = {
            "nothing": lambda n, at: (b"", False),
            "the end": lambda n, at: (b"", True),
            "some and the end": lambda n, at: (n.data[at:min(at + 100, 4000)], at + 100 >= 4000),
            "some, then nothing": lambda n, at: (n.data[at:min(at + 1000, 4000)], False),
        }
        for how, reply in replies.items():
            for told in (True, False): # with attributes in the reply, or without
                def answer(s, a, reply=reply, told=told):
                    node = s.nodes[a.opaque()]
                    data, end = reply(node, a.u64())
                    whole = read_results(node, data, end)
                    return whole if told else struct.pack(">2I", 0, 0) + whole[8 + 84:]
                server.answers[NFS, fake.READ] = answer
                with self.subTest(how, told=told):
                    out, _ = self.run_client("cat", server.url + "/file", code=FAILED)
                    self.assertTrue(content.startswith(out))
                    self.run_client("cp", server.url + "/file", copy, code=FAILED)
                    self.run_client("cp", server.url + "/file", server.url + "/other", code=FAILED)
                    self.run_client("cp", "--checksum", server.url + "/file", copy, code=FAILED)
        # Short ones are no harm.
        server.answers[NFS, fake.READ] = lambda s, a: short(s.nodes[a.opaque()], a.u64())
        def short(node, at):
            return read_results(node, node.data[at:at + 999], at + 999 >= len(node.data))
        self.assertEqual(self.run_client("cat", server.url + "/file")[0], content)
        self.run_client("-q", "cp", "--checksum", server.url + "/file", copy)
        with open(copy, "rb") as file:
            self.assertEqual(file.read(), content)

    def test_files_without_end(self):
        server = self.serve({b"empty": Node(), b"small": Node(data=bytes(10))})
        for attributes in (True, False):
            def answer(s, a, attributes=attributes):
                whole = read_results(s.nodes[a.opaque()], bytes(1000), False)
                return whole if attributes else struct.pack(">2I", 0, 0) + whole[8 + 84:]
            server.answers[NFS, fake.READ] = answer
            for name in ("empty", "small"):
                out, told = self.run_client("cat", f"{server.url}/{name}", code=FAILED)
                self.assertEqual(out, b"")
                self.assertIn(b"beyond the size", told)
                self.run_client("cp", f"{server.url}/{name}", self.target, code=FAILED)

    def test_counts_that_contradict_each_other(self):
        server = self.serve({b"file": Node(data=bytes(100))})
        def more(s, a):
            node = s.nodes[a.opaque()]
            return read_results(node, bytes(200_000), False)
        def other(s, a):
            return read_results(s.nodes[a.opaque()], bytes(50), False, count=100)
        server.fsinfo = (65536, 65536)
        for answer in (more, other):
            server.answers[NFS, fake.READ] = answer
            self.run_client("cat", server.url + "/file", code=FAILED)
            self.run_client("cp", server.url + "/file", self.target, code=FAILED)
        local = os.path.join(self.folder, "local")
        with open(local, "wb") as file:
            file.write(bytes(1000))
        for count in (0, 2000):
            server.answers[NFS, fake.WRITE] = lambda s, a, n=count: struct.pack(">5I", 0, 0, 0, n, 2) + bytes(8)
            self.run_client("cp", local, server.url + "/new", code=FAILED)
        # A verifier that is never the same twice: what was written may be lost each time.
        verifiers = iter(range(1 << 20))
        server.answers[NFS, fake.WRITE] = lambda s, a: struct.pack(">5IQ", 0, 0, 0, 1000, 0, next(verifiers))
        server.answers[NFS, fake.COMMIT] = lambda s, a: struct.pack(">3IQ", 0, 0, 0, next(verifiers))
        self.run_client("cp", local, server.url + "/new", code=FAILED)
        server.fsinfo = (0, 0)
        self.run_client("ls", server.url, code=UNREACHABLE)

    def test_sizes_that_no_file_has(self):
        server = self.serve({b"huge": Node(data=b"abc", size=(1 << 64) - 1), b"large": Node(data=b"abc", size=1 << 63)})
        out = self.run_client("ls", "-l", server.url)[0]
        self.assertIn(b" 18446744073709551615 ", out)
        self.assertEqual([item["size"] for item in self.run_json("ls", server.url)], [(1 << 64) - 1, 1 << 63])
        self.assertEqual(self.run_json("stat", server.url + "/large")[0]["size"], 1 << 63)
        for name in ("huge", "large"):
            self.assertEqual(self.run_client("cat", f"{server.url}/{name}", code=FAILED)[0], b"abc")
        totals = self.run_json("cp", "-r", server.url, self.target, code=FAILED)
        self.assertEqual((totals["files"], totals["failures"]), (0, 2))
        for path in self.below(self.target):
            self.assertLessEqual(os.path.getsize(os.path.join(self.target, path)), 4096)

    def test_space_that_contradicts_itself(self):
        server = self.serve({})
        server.fsstat = (1000, 1 << 63, (1 << 64) - 1, 5, 9, 9)
        out = self.run_client("df", server.url)[0].splitlines()[1].decode()
        self.assertRegex(out, r"\A1000 B +- +16\.0 EiB +- +5 +9 nfs")
        self.assertEqual(self.run_json("df", server.url)[0]["bytes"]["free"], 1 << 63)

    def test_a_list_of_exports_without_end(self):
        server = self.serve({})
        server.exports = [(b"/export", [])] * 20_000
        self.run_client("ls", server.url)
        out, told = self.run_client("mounts", server.url, code=FAILED)
        self.assertEqual(out.count(b"\n"), 16384)
        self.assertIn(b"goes on behind 16384 entries", told)

    def test_times_that_are_none(self):
        # Among them are those by which utimensat(2) knows "now" and "leave it".
        server = self.serve({str(n).encode(): Node(mtime=(10, n)) for n in (0x3fffffff, 0x3ffffffe, 0xffffffff)})
        self.run_client("ls", "-l", server.url)
        self.run_client("stat", server.url + f"/{0x3fffffff}")
        self.run_client("-q", "cp", "-rp", server.url, self.target)
        for name in os.listdir(os.path.join(self.target, "export")):
            self.assertEqual(os.stat(os.path.join(self.target, "export", name)).st_mtime_ns, 10_999_999_999)

    # --- names ---

    def test_names_that_are_none(self):
        names = {b"../escaped": Node(data=b"x"), b"a/b": Node(data=b"x"), b"": Node(data=b"x"), b"n\0ul": Node(data=b"x"),
                 b".": filled({}), b"..": filled({b"up": Node()}), b"good": Node(data=b"good"),
                 b"L" * 300: Node(data=b"x"), b"M" * 2000: Node(data=b"x")}
        server = self.serve(names)
        out, told = self.run_client("ls", server.url, code=FAILED)
        self.assertEqual(out.split(), [b"L" * 300, b"M" * 2000, b"good"])
        for shown in (b"'../escaped'", b"'a/b'", b"''", b"'n\\000ul'"):
            self.assertIn(shown, told)
        self.run_client("ls", "-lR", server.url, code=FAILED)
        _, told = self.run_client("cp", "-r", server.url, self.target, code=FAILED)
        self.assertEqual(self.below(self.target), {"export", "export/good"})
        self.assertEqual(self.below(self.folder), {"target", "target/export", "target/export/good"})
        self.assertIn(b"a name that is none", told)
        tree = server.root.names[b"tree"] = filled(dict(names))
        self.run_client("rm", "-r", server.url + "/tree", code=FAILED)
        self.assertNotIn(b"good", tree.names)

    def test_control_bytes_reach_no_terminal(self):
        server = self.serve({OBEYED: filled({OBEYED: Node(data=b"x"), b"link": Node(fake.LINK, OBEYED)})})
        server.exports = [(b"/export", [OBEYED]), (b"/other" + OBEYED, [])]
        server.mounts = [(OBEYED, b"/export" + OBEYED)]
        url = server.url + "/%1B%5B31m%9B%07"
        for code, words in ((DONE, ("ls", "-l", url)), (DONE, ("ls", "-lR", server.url)), (DONE, ("stat", url)),
                            (DONE, ("df", url)), (DONE, ("ping", "-c", "1", url)), (DONE, ("mounts", server.url)),
                            (DONE, ("-q", "cp", "-r", url, self.target)),
                            (DONE, ("mkdir", url + "/%1B")), (DONE, ("mv", url + "/%1B", url + "/%9B")),
                            (FAILED, ("cat", url)), (FAILED, ("cat", url + "%1B")), (FAILED, ("stat", url + "%07")),
                            (FAILED, ("rm", url)), (FAILED, ("df", url + "%07")), (FAILED, ("mkdir", url + "%07/%1B"))):
            self.run_client(*words, code=code)
        for words in (("doctor", url), ("--json", "doctor", url)):
            done = subprocess.run([self.client, *words], capture_output=True, timeout=60 * daemon.SLOW, check=False)
            self.assertIsNone(re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr))
            self.assertIn("2 exports /export /other", done.stdout.decode())
        # What is printed as a URL is one.
        shown, = re.findall(r"\Anfs\S+", self.run_client("stat", url)[0].decode())
        self.assertEqual(shown, url.replace("%5B", "["))
        self.run_client("stat", shown)

    def test_json_loses_nothing(self):
        name = b"caf\xe9\xff"
        server = self.serve({name: Node(data=b"x"), "caf\u00e9".encode(): Node(), b"link": Node(fake.LINK, name)})
        server.exports = [(b"/export", [b"h\xf6st", b"host"]), (b"/\xff", [])]
        server.mounts = [(b"\xe9", b"/\xe8")]
        def octets(item, key):
            return base64.b64decode(item[key + "_base64"]) if key + "_base64" in item else item[key].encode()
        listed = self.run_json("ls", server.url)
        self.assertEqual({octets(item, "name") for item in listed}, set(server.root.names))
        self.assertEqual(sum("name_base64" in item for item in listed), 1)
        self.assertEqual([octets(item, "target") for item in listed if item["type"] == "symlink"], [name])
        known = self.run_json("mounts", server.url)
        self.assertEqual([octets(item, "directory") for item in known["exports"]], [b"/export", b"/\xff"])
        self.assertEqual([base64.b64decode(g) for g in known["exports"][0]["groups_base64"]], [b"h\xf6st", b"host"])
        self.assertNotIn("groups_base64", known["exports"][1])
        self.assertEqual([(octets(m, "host"), octets(m, "directory")) for m in known["mounts"]], [(b"\xe9", b"/\xe8")])
        copied = self.run_json("cp", "-r", "--checksum", server.url, self.target)
        self.assertIn(os.fsencode(self.target) + b"/export/" + name, [octets(i, "path") for i in copied["checksums"]])
        url = server.url + "/caf%E9%FF"
        for words in (("stat", url), ("df", url)):
            self.assertEqual(self.run_json(*words)[0]["url"], url)
        self.assertEqual(self.run_json("ping", "-c", "1", url)["url"], url)

    # --- where links and folders lead ---

    def test_links_that_lead_out_of_the_target(self):
        victim = os.path.join(self.folder, "victim")
        os.mkdir(victim)
        inside = {b"file": Node(data=b"x")}
        server = self.serve({b"d": Node(fake.LINK, victim.encode()), b"up": Node(fake.LINK, b"../../victim"),
                             b"nul": Node(fake.LINK, b"a\0b"), b"none": Node(fake.LINK, b""), b"good": Node(fake.LINK, b"d")})
        # Told as a link first, as a folder or a file with the same name afterwards.
        self.run_client("cp", "-r", server.url, self.target, code=FAILED)
        copied = os.path.join(self.target, "export")
        self.assertEqual({name: os.readlink(os.path.join(copied, name)) for name in os.listdir(copied)},
                         {"d": victim, "up": "../../victim", "good": "d"})
        server.root.names = {b"d": filled(inside), b"up": Node(data=b"written"), b"good": filled(inside)}
        self.run_client("cp", "-rp", server.url, self.target, code=FAILED)
        self.assertEqual(os.listdir(victim), [])
        self.assertEqual(self.below(self.folder), {"target", "victim"} | {
            "target/" + name for name in ("export", "export/d", "export/up", "export/good")})
        # A name of the user's that leads up stays in the target.
        inside[b".."] = server.root
        self.run_client("-q", "cp", "-r", server.url + "/d/..", self.target)
        self.assertEqual(set(os.listdir(self.folder)), {"target", "victim"})
        self.assertEqual(set(os.listdir(self.target)), {"export", "d", "up", "good"})
        # Links that lead to themselves, and outside of the server's tree.
        server.root.names = {b"loop": Node(fake.LINK, b"loop"), b"twice": Node(fake.LINK, b"twice/twice"),
                             b"root": Node(fake.LINK, b"/etc/passwd")}
        for name in ("loop", "twice", "root"):
            for command in ("cat", "df", "ls"):
                self.run_client(command, f"{server.url}/{name}/", code=FAILED)

    def test_folders_that_lie_in_themselves(self):
        root = filled({b"file": Node(data=b"x")})
        root.names[b"a"] = filled({b"again": root, b"file": Node(data=b"y")})
        server = self.serve({b"top": root})
        url = server.url + "/top"
        for words in (("ls", "-R", url), ("--json", "ls", "-R", url), ("cp", "-r", url, self.target),
                      ("cp", "-r", url, server.url + "/copy"), ("rm", "-r", url)):
            server.calls.clear()
            _, told = self.run_client(*words, code=FAILED)
            self.assertIn(b"lies in itself", told)
            self.assertLess(len(server.calls), 60)
        self.assertEqual(self.below(self.target), {"top", "top/file", "top/a", "top/a/file", "top/a/again"})
        self.assertEqual(root.names.keys(), {b"a"})

    def test_folders_without_end(self):
        server = self.serve({})
        name = b"n" * 250
        def endless(s, a):
            s.nodes[a.opaque()].names.setdefault(name, filled({})) # one more whenever somebody looks
        for procedure in (fake.READDIR, fake.READDIRPLUS, fake.LOOKUP):
            server.answers[NFS, procedure] = endless
        for words in (("ls", "-R", server.url), ("cp", "-r", server.url, self.target), ("rm", "-r", server.url + "/" + name.decode()),
                      ("cp", "-r", server.url, server.url + "/copy")):
            server.calls.clear()
            _, told = self.run_client(*words, code=FAILED)
            self.assertLess(told.count(b"\n"), 40)
            self.assertLess(len(server.calls), 400)

    def test_cookies(self):
        def pages(server, cookies):
            """A page for each: one entry that ends with that cookie; behind the last one begin again."""
            state = {"next": 0}
            def answer(s, a, plus):
                cookie = cookies(state["next"])
                state["next"] += 1
                entry = s.entry(b"name", Node(), cookie, plus)
                return struct.pack(">2I", 0, 0) + bytes(8) + entry + struct.pack(">2I", 0, 0)
            for procedure in (fake.READDIR, fake.READDIRPLUS):
                server.answers[NFS, procedure] = lambda s, a, plus=procedure == fake.READDIRPLUS: answer(s, a, plus)
        for cookies in (lambda n: 7, lambda n: 3 - n % 3, lambda n: 0):
            server = self.serve({b"d": filled({})})
            pages(server, cookies)
            # rm -r asks for the directory first.
            server.answers[NFS, fake.RMDIR] = lambda s, a: struct.pack(">3I", 66, 0, 0) # NFS3ERR_NOTEMPTY
            for words in (("ls", server.url), ("ls", "-R", server.url), ("cp", "-r", server.url, self.target),
                          ("rm", "-r", server.url + "/d")):
                server.calls.clear()
                _, told = self.run_client(*words, code=FAILED)
                self.assertIn(b"cookie", told)
                self.assertLess(len(server.calls), 40)
        # A page of nothing that is not the last.
        for procedure in (fake.READDIR, fake.READDIRPLUS):
            server.answers[NFS, procedure] = lambda s, a: struct.pack(">2I", 0, 0) + bytes(8) + struct.pack(">2I", 0, 0)
        self.run_client("ls", server.url, code=FAILED)

    # --- servers that put off, or fall silent ---

    def test_soft_gives_up_once_and_not_for_each_file(self):
        names = [b"%02d" % n for n in range(20)]
        later = self.serve({**{name: Node(refused=fake.JUKEBOX) for name in names}, b"file": Node(data=b"x")})
        # Silent from the fourth file on.
        silent = [self.serve({b"d": filled({name: Node(data=b"x") for name in names})}) for _ in range(3)]
        def lookup(s, a):
            a.opaque()
            if a.opaque() == names[3]:
                s.answers.update({(NFS, procedure): lambda s, a: fake.SILENCE for procedure in range(22)})
                return fake.SILENCE
            return None
        for server in silent:
            server.plus = False
            server.answers[NFS, fake.LOOKUP] = lookup
        url = [server.url + "/d" for server in silent]
        commands = (("ls", "-l", later.url), ("ls", "-l", url[0]), ("cp", "-r", url[1], self.target), ("rm", "-r", url[2]))
        running = [subprocess.Popen([self.client, "--soft", "--timeout", "1", *words], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for words in commands]
        ended = [(*process.communicate(timeout=60 * daemon.SLOW), process.returncode) for process in running]
        self.assertEqual([code for _, _, code in ended], [FAILED] * 4)
        # One call waits; once that was in vain the others are not asked again and again.
        self.assertIn(b" file\n", ended[0][0])
        self.assertRegex(ended[0][1], rb"\Averbena: 127.0.0.1:\d+ \(tcp\) puts off what it is asked \(LOOKUP: NFS3ERR_JUKEBOX.*\), "
                         rb"still trying\nverbena: /export/00: LOOKUP: NFS3ERR_JUKEBOX")
        self.assertEqual(ended[0][1].count(b"NFS3ERR_JUKEBOX"), 21)
        self.assertLess(len(later.calls), 60)
        # Of what would be met with silence nothing is asked.
        for _, told, _ in (ended[1], ended[3]):
            self.assertEqual(told.count(b"timed out"), 1, told)
        self.assertLess(ended[2][1].count(b"timed out"), 10) # files in flight

    def test_soft_is_out_of_patience_though_others_are_served(self):
        server = self.serve({b"%02d" % n: Node(refused=fake.JUKEBOX if n % 2 else 0) for n in range(40)})
        server.plus = False
        out, told = self.run_client("--soft", "--timeout", "1", "ls", "-l", server.url, code=FAILED)
        self.assertEqual(out.count(b"\n"), 20)
        self.assertEqual(len(re.findall(rb"^verbena: /export/.*: LOOKUP: NFS3ERR_JUKEBOX", told, re.M)), 20)
        # A second of patience is five calls. Each wait is half of the one before.
        self.assertLess(server.calls.count(fake.LOOKUP), 20 + 20 * 4)

    def silent_from(self, name):
        """A server of /d with ten links that answers nothing from the LOOKUP of `name` on."""
        server = self.serve({b"d": filled({b"%02d" % n: Node(fake.LINK, b"x") for n in range(10)}), b"file": Node(data=b"x")})
        server.plus = False
        def lookup(s, a):
            a.opaque()
            if a.opaque() == name:
                s.answers.update({(NFS, procedure): lambda s, a: fake.SILENCE for procedure in range(22)})
                return fake.SILENCE
            return None
        server.answers[NFS, fake.LOOKUP] = lookup
        return server

    def test_a_source_that_is_gone_stops_no_source_of_another_server(self):
        soft = ("--soft", "--timeout", "1", "cp", "-r")
        gone = self.silent_from(b"03")
        alive = self.serve({b"good": Node(data=b"good")})
        out, told = self.run_client("-q", "--json", *soft, gone.url + "/d", gone.url + "/file", alive.url + "/good", self.target,
                                    code=FAILED)
        self.assertEqual(self.below(self.target), {"d", "d/00", "d/01", "d/02", "good"})
        host = gone.url[:-len("/export")].encode()
        self.assertIn(b"/export/d: 6 more of it left out, since " + host + b" failed: ", told)
        self.assertIn(b"verbena: " + gone.url.encode() + b"/file: left out, since " + host + b" failed: ", told)
        self.assertNotIn(alive.url.encode(), told)
        totals = json.loads(out)
        self.assertEqual((totals["files"], totals["links"], totals["failures"]), (1, 3, 1 + 6 + 1))

    def test_a_target_that_is_gone_is_not_asked_for_each_source(self):
        gone = self.silent_from(b"a")
        source = self.serve({b"a": Node(data=b"x"), b"b": Node(data=b"x")})
        _, told = self.run_client("--soft", "--timeout", "1", "cp", source.url + "/a", source.url + "/b", gone.url, code=FAILED)
        self.assertIn(source.url.encode() + b"/b: left out, since " + gone.url[:-len("/export")].encode(), told)

    def test_silence_within_a_file_is_its_server(self):
        soft = ("--soft", "--timeout", "1", "cp")
        source, target, alive = (self.serve({b"file": Node(data=b"x"), b"good": Node(data=b"good")}) for _ in range(3))
        source.answers[NFS, fake.READ] = target.answers[NFS, fake.WRITE] = lambda s, a: fake.SILENCE
        self.run_client(*soft, source.url + "/file", alive.url + "/good", self.target, code=FAILED)
        self.assertEqual(self.below(self.target), {"file", "good"})
        _, told = self.run_client(*soft, alive.url + "/file", alive.url + "/good", target.url, code=FAILED)
        self.assertIn(b"/good: left out, since " + target.url[:-len("/export")].encode() + b" failed: ", told)

    def test_a_source_that_cannot_be_reached_stops_no_other(self):
        gone = fake.FakeServer(filled({}))
        gone.close()
        alive = self.serve({b"good": Node(data=b"good")})
        url = gone.url + "/file"
        out, told = self.run_client("-q", "--json", "cp", url, alive.url + "/good", self.target, code=UNREACHABLE)
        self.assertEqual(self.below(self.target), {"good"})
        self.assertIn(b"cannot connect to ", told)
        totals = json.loads(out)
        self.assertEqual((totals["files"], totals["failures"]), (1, 1))
        self.run_client("cp", url, self.target, code=UNREACHABLE)

    # --- servers that know less ---

    def test_a_refusal_of_every_procedure(self):
        server = self.serve({b"file": Node(data=b"x"), b"d": filled({b"f": Node()})})
        local = os.path.join(self.folder, "local")
        with open(local, "wb") as file:
            file.write(b"data")
        commands = (("ls", "-l", server.url), ("ls", "-R", server.url), ("cat", server.url + "/file"), ("stat", server.url + "/d"),
                    ("df", server.url), ("cp", "-rp", server.url + "/d", self.target), ("cp", "-p", local, server.url + "/new"),
                    ("mkdir", "-p", server.url + "/x/y"), ("mv", server.url + "/file", server.url + "/g"),
                    ("rm", "-r", server.url + "/d"))
        for words in commands:
            server.answers = {}
            server.calls.clear()
            subprocess.run([self.client, *words], capture_output=True, timeout=60 * daemon.SLOW, check=True)
            for procedure in sorted(set(server.calls) - {fake.NULL}):
                server.root.names = {b"file": Node(data=b"x"), b"d": filled({b"f": Node()})}
                status = 123456 if procedure % 2 else fake.STALE
                server.answers = {(NFS, procedure): lambda s, a, status=status: fake.refusal(status)}
                with self.subTest(words, procedure=procedure):
                    self.run_client("-q", *words, code=UNREACHABLE if procedure == fake.FSINFO else FAILED)
            server.root.names = {b"file": Node(data=b"x"), b"d": filled({b"f": Node()})}


if __name__ == "__main__":
    daemon.main()
