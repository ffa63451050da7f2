#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of `verbena` in NFS version 4.1, and which version they speak."""
import grp
import json
import os
import pwd
import struct
import subprocess

import client_recovery_test
import client_test
import daemon
import fake_server
from peers import NFS


class Client41(client_test.Version4, client_test.Client):
    query, speaks, settling = "vers=4.1", "4.1", 0


class OverTcp(client_test.Commands, Client41):
    """All that the others do."""
    transport = "tcp"


class OverIwarp(Client41):
    transport = "iwarp"

    def test_a_tree_both_ways(self):
        here = os.path.join(self.folder, "here")
        self.make_tree(here)
        self.run_client("cp", "-r", "--checksum", here, self.top + "/tree")
        self.assertEqual(client_test.tree(self.there("tree")), client_test.tree(here))
        back = os.path.join(self.folder, "back")
        self.run_client("cp", "-r", self.top + "/tree", back)
        self.assertEqual(client_test.tree(back), client_test.tree(here))
        self.run_client("rm", "-r", self.top + "/tree")
        self.assertFalse(os.path.exists(self.there("tree")))


class Restarts(client_recovery_test.Copies):
    """The server comes back with another epoch, and in its grace period: the session is made anew, the file that is written is
    reclaimed, and what the server lost is sent again."""
    # The highest that the server has.
    options, query = ("--versions", "3", "--versions", "4.1"), ""

    def test_over_tcp(self):
        self.what_a_restart_lost_is_sent_again("tcp")

    def test_over_iwarp(self):
        self.what_a_restart_lost_is_sent_again("iwarp")


class Only4(fake_server.FakeServer):
    """Has NULL of version 4, and answers COMPOUND as it is told."""

    def __init__(self, compound):
        self.compound = compound
        super().__init__(fake_server.filled({}))

    def answer(self, call):
        xid, _, _, program, version, procedure = struct.unpack(">6I", call[:24])
        if program != NFS:
            return struct.pack(">6I", xid, 1, 0, 0, 0, 1) # PROG_UNAVAIL
        if version != 4:
            return struct.pack(">8I", xid, 1, 0, 0, 0, fake_server.PROG_MISMATCH, 4, 4)
        return struct.pack(">6I", xid, 1, 0, 0, 0, 0) if procedure == 0 else self.compound(xid, call)


class Versions(client_test.Client):
    """Of servers that don't have all of them."""

    def served_with(self, *versions):
        self.daemon.stop()
        self.daemon = self.start(*(word for each in versions for word in ("--versions", each)), export=":/export,root_squash=no")
        self.top = self.base("tcp", self.host)

    def found(self, url):
        return {finding["check"]: finding for finding in json.loads(subprocess.run(
            [self.client, "--json", "doctor", url], capture_output=True, timeout=120 * daemon.SLOW, check=False).stdout)}

    def spoken(self):
        found = self.found(self.top)
        return found["server"]["text"].split()[2], found

    def test_the_highest_is_spoken(self):
        self.write(self.there("file"), b"text")
        for versions in (("3", "4.1", "4.2"), ("3", "4.1"), ("4.1", ), ("3", "4.2"), ("3", )):
            self.served_with(*versions)
            self.assertEqual(self.run_client("cat", self.top + "/file"), b"text")
            spoken, found = self.spoken()
            self.assertEqual(spoken, max(versions))
            self.assertEqual("MNT" in found, versions == ("3", ))
            self.assertEqual(self.run_json("ping", "-c", "2", self.top)["answered"], 2)
            for other in {"3", "4.1", "4.2"} - set(versions):
                said = self.completed("ls", self.top + "?vers=" + other, code=client_test.UNREACHABLE).stderr
                parts = [b"leave vers out of the URL", b"verbenad: --versions " + other.encode()]
                if other != "3":
                    parts.append(b"write ?vers=3")
                    for part in parts:
                        self.assertIn(part, said)
                found = self.found(self.top + "?vers=" + other)
                self.assertEqual(found["server"]["state"], "problem")
                self.assertIn("in NFS version " + other, found["server"]["text"])
                for part in parts:
                    self.assertIn(part.decode(), found["server"]["cure"])
                self.assertNotIn("MOUNT", found)

    def test_servers_of_version_4_that_are_of_no_use(self):
        """Either without a minor version that is spoken, and without version 3, or such that refuse all who ask."""
        def without_minor_versions(xid, _):
            return struct.pack(">6I", xid, 1, 0, 0, 0, 0) + struct.pack(">3I", 10021, 0, 0) # MINOR_VERS_MISMATCH

        def refusing(xid, _):
            return struct.pack(">5I", xid, 1, 1, 1, 5) # MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK

        for answer, cure in ((without_minor_versions, "neither version 4.2, 4.1 nor 3"), (refusing, "?vers=3 looks for an export of that name")):
            server = Only4(answer)
            self.addCleanup(server.close)
            said = self.completed("ls", server.url, code=client_test.UNREACHABLE).stderr.decode()
            self.assertIn("cannot use " + server.url, said)
            self.assertIn(cure, said)
            self.assertNotIn("MOUNT", said)
            found = self.found(server.url)
            self.assertEqual(found["server"]["state"], "problem")
            self.assertIn("cannot use " + server.url, found["server"]["text"])
            self.assertIn(cure, found["server"]["cure"])
            self.assertNotIn("MOUNT", found)
            self.assertNotIn("?vers=3", self.completed("ls", server.url + "?vers=4.1", code=client_test.UNREACHABLE).stderr.decode()
                             if answer is refusing else "")

    def test_owners_by_name(self):
        """Whoever runs this has a name, as root has on each host. Where the domains differ, nobody is known."""
        self.write(self.there("file"), b"text")
        found = os.stat(self.there("file"))
        try:
            owner = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name
        except KeyError as missing:
            self.skipTest(str(missing))
        for options, domain, expected in ((("--user-names", "--id-domain", "Names.Test"), "names.test", (found.st_uid, found.st_gid)),
                                          (("--user-names", "--id-domain", "names.test"), "other.test", (65534, 65534)),
                                          (("--id-domain", "names.test"), "other.test", (found.st_uid, found.st_gid))):
            self.daemon.stop()
            self.daemon = self.start(*options, export=":/export,root_squash=no")
            top = self.base("tcp", self.host)
            shown = self.run_json("--id-domain", domain, "stat", top + "/file")[0]
            self.assertEqual((shown["uid"], shown["gid"]), expected, owner)
        self.assertIn(b"--id-domain: is no domain", self.completed("--id-domain", "a b", "ls", top, code=2).stderr)

    def test_exports_whose_names_are_no_paths(self):
        """They are found by the same URLs in all versions."""
        inner = os.path.join(self.folder, "inner")
        os.mkdir(inner)
        self.write(os.path.join(inner, "deep"), b"deep")
        self.write(self.there("file"), b"text")
        self.daemon.stop()
        self.daemon = self.start("--export", inner + ":/a name/b.c", export=":/export")
        for query in ("?vers=3", "?vers=4.1", ""):
            self.assertEqual(self.run_client("cat", self.base("tcp", self.host).replace("/export", "/a%20name/b.c/deep") + query), b"deep")
            self.assertEqual(self.run_client("cat", self.base("tcp", self.host) + "/file" + query), b"text")

    def test_words_that_are_no_version(self):
        said = self.completed("ls", self.top + "?vers=4", code=client_test.USAGE).stderr
        self.assertIn(b"vers is the version of NFS, 3, 4.1 or 4.2; leave it out for the server's highest", said)


if __name__ == "__main__":
    daemon.main()
