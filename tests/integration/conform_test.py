#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena conform` against itself over iWARP on loopback: both ends, the report, and what it says of an end that is none."""
import collections
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import peers

CLIENT = os.path.join(os.path.dirname(sys.argv[1]), "verbena")
SOURCES = sys.argv[2]
LIMIT = 150 * int(os.environ.get("VERBENA_SLOW", "1"))
MAX_SESSIONS = 32  # conformance/server.hpp
PLAIN, FULL = 0, 2


def greeting(number):
    """The private data of a connection with this id: xorshift64 octets behind a mark, a kind and the id."""
    x, data = (number * 0x9e3779b97f4a7c15 + 1) % 2**64, b""
    for _ in range(7):
        x ^= x << 13 & 2**64 - 1
        x ^= x >> 7
        x ^= x << 17 & 2**64 - 1
        data += struct.pack("<Q", x)
    return struct.pack(">4sIQ", b"vcn1", PLAIN, number) + data[16:]


def receive(s, count):
    data = b""
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            break
        data += more
    return data


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
        lacking = {"inline data"}
        self.assertEqual({name: result for name, result in results.items() if result != "passed"},
                         dict.fromkeys(lacking, "not supported"))
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
            # Whatever a provider tells of itself.
            with open(os.path.join(SOURCES, "core/include/verbena/core/verbs/verbs.hpp"), encoding="utf-8") as header:
                members = re.search(r"^struct capabilities \{$(.*?)^\};$", header.read(), re.M | re.S).group(1)
            self.assertEqual(set(re.findall(r"^    [\w:]+ (\w+)(?: = \w+)?;", members, re.M)), set(report[end]["capabilities"]))
            self.assertTrue(report[end]["capabilities"]["immediates_apart"])
            self.assertIn(os.uname().release, report[end]["kernel"])
            self.assertNotIn(socket.gethostname(), re.findall(r"[^\s\",:@/]+", json.dumps(report[end])))
        self.assertEqual(server.wait(timeout=peers.LIMIT), 0)
        # A connection that a check broke is no news to the server.
        self.assertEqual(server.stderr.read(), "")

    def test_some_of_the_checks(self):
        _, url = self.serve("--once")
        done = self.conform("--json", "--only", "Position-Zero", url)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        names = [case["name"] for case in report["cases"]]
        self.assertIn("RPC: Position-Zero Read chunk", names)
        self.assertEqual([name for name in names if "Position-Zero" not in name], [])
        self.assertEqual((report["only"], report["passed"]), ("Position-Zero", len(names)))

    def test_none_of_the_checks(self):
        done = self.conform("--only", "Position Zero", "iwarp://127.0.0.1:1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'Position Zero' stands in no check's name", done.stderr)

    def listed(self):
        done = self.conform("--json", "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(case["group"], case["name"]) for case in json.loads(done.stdout)]

    def test_all_checks_of_verbs_in_one_program(self):
        path = os.path.join(self.folder.name, "report.json")
        done = self.conform("--alone", "iwarp://127.0.0.1:0", "--report", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertTrue(report["alone"])
        self.assertEqual(report["client"]["capabilities"]["provider"], "iwarp")
        cases = report["cases"]
        self.assertEqual([(case["group"], case["name"]) for case in cases],
                         [case for case in self.listed() if case[0] != "rpc-over-rdma"])
        self.assertEqual({case["name"]: case["result"] for case in cases if case["result"] != "passed"},
                         {"inline data": "not supported"})
        self.assertEqual((report["passed"], report["failed"], report["not_supported"]), (len(cases) - 1, 0, 1))
        self.assertIn(f"{len(cases) - 1} passed, 0 failed, 1 not supported", done.stdout)

    def test_checks_of_the_other_kind_of_run(self):
        both_ends, server = "a closed listener", "RPC: Reply chunk"
        self.assertIn(("connections", both_ends), self.listed())
        done = self.conform("--only", both_ends, "iwarp://127.0.0.1:1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("add --alone", done.stderr)
        done = self.conform("--alone", "--only", server, "iwarp://127.0.0.1:0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("leave --alone out", done.stderr)
        done = self.conform("--alone", "--only", both_ends, "iwarp://127.0.0.1:0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), ["passed        " + both_ends, "1 passed, 0 failed, 0 not supported"])

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
            if line.startswith("passed"):
                break # many are to come
        server.kill()
        rest = client.stdout.read()
        self.assertEqual(client.wait(timeout=LIMIT), 1)
        self.assertIn("failed        RPC: credits are granted within what is asked for", rest)

    def join(self, url, number):
        """A connection that says nothing after its greeting; and whether it was taken, with the private data of the answer."""
        s = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=peers.LIMIT)
        self.addCleanup(s.close)
        s.sendall(peers.mpa_request(private_data=greeting(number)))
        answer = receive(s, 20)
        self.assertEqual(answer[:16], peers.REPLY_KEY)
        flags, _, length = struct.unpack(">BBH", answer[16:])
        return s, flags & 0x20 == 0, receive(s, length)[4:]

    def test_more_connections_than_are_served(self):
        server, url = self.serve()
        held = [self.join(url, i) for i in range(MAX_SESSIONS)]
        self.assertTrue(all(taken for _, taken, _ in held))
        for number, (_, _, said) in enumerate(held):
            self.assertEqual(said[:56], greeting(number))
        _, taken, said = self.join(url, 1000)
        self.assertFalse(taken)
        self.assertEqual(struct.unpack(">4sIQ", said[:16]), (b"vcn1", FULL, 1000))
        self.assertIn("refused: 32 connections are served, and no more at once", server.stderr.readline())
        done = self.conform(url)
        self.assertEqual(done.returncode, 3)
        self.assertIn("as many connections as it serves at once", done.stderr)
        # One ends, and there is room.
        held[0][0].close()
        deadline = time.monotonic() + peers.LIMIT
        while not self.join(url, 1001)[1]:
            self.assertLess(time.monotonic(), deadline, "the place of a connection that ended is taken for ever")
            time.sleep(0.1)

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        done = self.conform(f"iwarp://127.0.0.1:{port}")
        self.assertEqual(done.returncode, 3)
        self.assertIn("verbena conform --listen", done.stderr)

    def test_usage(self):
        for words in ([], ["tcp://127.0.0.1:1"], ["127.0.0.1:1"], ["iwarp://127.0.0.1:1", "--listen", "iwarp://127.0.0.1:1"],
                      ["--listen", "iwarp://127.0.0.1:0", "--only", "Reply chunk"],
                      ["--listen", "iwarp://127.0.0.1:0", "--alone"], ["--alone"], ["--list", "iwarp://127.0.0.1:1"],
                      ["--listen", "iwarp://127.0.0.1:0", "--report", "report.json"]):
            self.assertEqual(self.conform(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
