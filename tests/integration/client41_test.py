#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of `verbena` in NFS version 4.1, and which version they speak."""
import json
import os
import subprocess

import client_recovery_test
import client_test
import daemon


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


class Versions(client_test.Client):
    """Of servers that don't have all of them."""

    def served_with(self, *versions):
        self.daemon.stop()
        self.daemon = self.start(*(word for each in versions for word in ("--versions", each)), export=":/export,root_squash=no")
        self.top = self.base("tcp", self.host)

    def spoken(self):
        found = {finding["check"]: finding for finding in json.loads(subprocess.run(
            [self.client, "--json", "doctor", self.top], capture_output=True, timeout=120, check=False).stdout)}
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
                if other != "3":
                    for part in (b"leave vers out of the URL", b"?vers=3", b"verbenad: --versions " + other.encode()):
                        self.assertIn(part, said)

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
