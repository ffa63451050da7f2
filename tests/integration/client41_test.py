#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of `verbena` that look at files and change them, in NFS version 4.1."""
import os
import subprocess

import client_recovery_test
import client_test
import daemon


class Client41(client_test.Client):
    listeners = ("--versions", "3", "--versions", "4.1")

    def completed(self, *arguments, code):
        return super().completed(*(self.of_41(each) for each in arguments), code=code)

    @staticmethod
    def of_41(argument):
        if not argument.startswith("nfs+") or "vers=" in argument:
            return argument
        return argument + ("&" if "?" in argument else "?") + "vers=4.1"

    def compounds(self, transport):
        return self.daemon.metric(f'verbena_rpc_calls_total{{program="nfs",version="4",procedure="COMPOUND",'
                                  f'transport="{transport}"}}') or 0


class OverTcp(client_test.Commands, Client41):
    """All that version 3 does."""
    transport = "tcp"
    times = ((-315619200, -315619200), (4428691200, 4428691200))

    def test_ping(self):
        answer = self.run_json("ping", "-c", "5", self.top)
        self.assertEqual((answer["calls"], answer["answered"]), (5, 5))
        self.assertEqual(self.daemon.metric(
            'verbena_rpc_calls_total{program="nfs",version="4",procedure="NULL",transport="tcp"}'), 5)

    def test_what_cannot_be_reached(self):
        # The server's root is no export here, and might be one elsewhere: no path is wrong before it is looked up.
        other = self.base("tcp", self.host).replace("/export", "/none")
        self.assertIn(b"No such file or directory", self.run_failing("ls", other))
        self.assertIn(b"Read-only file system", self.run_failing("mkdir", other))

    def test_it_is_version_4_that_is_spoken(self):
        self.make_tree(self.there("tree"))
        before = self.compounds("tcp")
        self.run_client("ls", "-R", self.top)
        self.assertGreater(self.compounds("tcp"), before)
        self.assertEqual(self.daemon.metric(
            'verbena_rpc_calls_total{program="nfs",version="3",procedure="LOOKUP",transport="tcp"}') or 0, 0)
        self.assertIn(b"export", self.run_client("ls", self.top.replace("/export", "/")))


class OverIwarp(Client41):
    transport = "iwarp"

    def test_a_tree_both_ways(self):
        here = os.path.join(self.folder, "here")
        self.make_tree(here)
        before = self.compounds("iwarp")
        self.run_client("cp", "-r", "--checksum", here, self.top + "/tree")
        self.assertGreater(self.compounds("iwarp"), before)
        self.assertEqual(client_test.tree(self.there("tree")), client_test.tree(here))
        back = os.path.join(self.folder, "back")
        self.run_client("cp", "-r", self.top + "/tree", back)
        self.assertEqual(client_test.tree(back), client_test.tree(here))
        # From one version to the other.
        self.run_client("cp", "-r", self.top + "/tree", self.top + "/3?vers=3")
        self.assertEqual(client_test.tree(self.there("3")), client_test.tree(here))
        self.run_client("rm", "-r", self.top + "/tree")
        self.assertFalse(os.path.exists(self.there("tree")))


class Restarts(client_recovery_test.Copies):
    """The server comes back with another epoch, and in its grace period: the session is made anew, the file that is written is
    reclaimed, and what the server lost is sent again."""
    options, query = ("--versions", "3", "--versions", "4.1"), "?vers=4.1"

    def test_over_tcp(self):
        self.what_a_restart_lost_is_sent_again("tcp")

    def test_over_iwarp(self):
        self.what_a_restart_lost_is_sent_again("iwarp")


class Versions(client_test.Client):
    """Of a server that has version 3 alone."""
    listeners = ("--versions", "3")

    def test_a_server_without_it(self):
        done = subprocess.run([self.client, "ls", self.top + "?vers=4.1"], capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, client_test.UNREACHABLE, done.stderr)
        self.assertIn(b"?vers=3", done.stderr)
        self.assertIn(b"--versions", done.stderr)

    def test_words_that_are_no_version(self):
        done = subprocess.run([self.client, "ls", self.top + "?vers=4"], capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, client_test.USAGE, done.stderr)
        self.assertIn(b"vers is the version of NFS, 3 or 4.1", done.stderr)


if __name__ == "__main__":
    daemon.main()
