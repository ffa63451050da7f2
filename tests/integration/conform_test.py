#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena conform` against itself over iWARP on loopback: both ends, the report, and what it says of an end that is none."""
import collections
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

CLIENT = os.path.join(os.path.dirname(sys.argv[1]), "verbena")
LIMIT = 150


class Conform(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def serve(self, *words):
        server = subprocess.Popen([CLIENT, "conform", "--listen", "iwarp://127.0.0.1:0", *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        line = server.stdout.readline()
        said = re.fullmatch(r"listening at (iwarp://127\.0\.0\.1:\d+)\n", line)
        self.assertTrue(said, line)
        return server, said[1]

    def conform(self, *words):
        return subprocess.run([CLIENT, "conform", *words], capture_output=True, text=True, timeout=LIMIT)

    def test_every_check_passes(self):
        server, url = self.serve("--once")
        path = os.path.join(self.folder.name, "report.json")
        done = self.conform(url, "--report", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["suite"], report["version"]), ("verbena conformance", 2))
        self.assertEqual(report["scheme"], "iwarp")
        results = {case["name"]: case["result"] for case in report["cases"]}
        # What iwarp lacks is named, and nothing else.
        self.assertEqual({name for name, result in results.items() if result != "passed"}, {"Write with Immediate"})
        self.assertEqual(results["Write with Immediate"], "not supported")
        groups = collections.Counter(case["group"] for case in report["cases"])
        self.assertEqual(sum(groups.values()), len(results))
        self.assertGreaterEqual(groups["verbs"], 15)
        rpc = {case["name"] for case in report["cases"] if case["group"] == "rpc-over-rdma"}
        self.assertGreaterEqual(len(rpc), 20)
        self.assertLessEqual({"RPC: Position-Zero Read chunk", "RPC: Reply chunk", "RPC: empty Write chunk", "RPC: ERR_VERS",
                              "RPC: ERR_CHUNK", "RPC: the server calls back"}, rpc)
        self.assertEqual((report["passed"], report["failed"], report["not_supported"]), (len(results) - 1, 0, 1))
        for end in ("client", "server"):
            self.assertEqual(report[end]["capabilities"]["provider"], "iwarp")
            self.assertIn(os.uname().release, report[end]["kernel"])
            self.assertNotIn(socket.gethostname(), re.findall(r"[^\s\",:@/]+", json.dumps(report[end])))
        self.assertEqual(server.wait(timeout=30), 0)
        # A connection that a check broke is no news to the server.
        self.assertEqual(server.stderr.read(), "")

    def test_the_report_on_the_standard_output(self):
        _, url = self.serve()
        for _ in range(2):  # without --once it serves on
            done = self.conform("--json", url)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["failed"], 0)

    def test_a_server_that_dies(self):
        # Each further check ends and fails.
        server, url = self.serve()
        client = subprocess.Popen([CLIENT, "conform", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.stderr.close)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        for line in client.stdout:
            if "RPC: calls and replies inline" in line:
                break
        server.kill()
        rest = client.stdout.read()
        self.assertEqual(client.wait(timeout=LIMIT), 1)
        self.assertIn("failed        RPC: credits are granted within what is asked for", rest)

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        done = self.conform(f"iwarp://127.0.0.1:{port}")
        self.assertEqual(done.returncode, 3)
        self.assertIn("verbena conform --listen", done.stderr)

    def test_usage(self):
        for words in ([], ["tcp://127.0.0.1:1"], ["127.0.0.1:1"], ["iwarp://127.0.0.1:1", "--listen", "iwarp://127.0.0.1:1"]):
            self.assertEqual(self.conform(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
