#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example_service_test.py PROGRAM: the service of docs/howto/embed.md serves over TCP and iWARP, is scraped, and drains."""
import os
import re
import signal
import struct
import subprocess
import sys
import unittest
import urllib.request

import peers

PROGRAM = ""
LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1"))


class Service(unittest.TestCase):
    def test_it_adds_up_over_both_transports(self):
        process = subprocess.Popen([PROGRAM, "0", "0", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "ready":
                break
        self.assertEqual(lines[-1:], ["ready"], process.poll())
        text = "\n".join(lines)
        self.assertIn("adder 1.0: 2 shards", text)
        port = {kind: int(number) for kind, number in re.findall(r"listening at (\w+)://127\.0\.0\.1:(\d+)", text)}
        total = 0
        # Two connections each, so that both shards serve.
        for kind in (peers.TcpPeer, peers.TcpPeer, peers.IwarpPeer, peers.IwarpPeer):
            peer = kind(port["tcp" if kind is peers.TcpPeer else "iwarp"])
            for n in (1, 2 ** 40):
                total += n
                reply = peer.call(1, struct.pack(">Q", n), program=0x20000043, version=1)
                self.assertEqual(struct.unpack(">Q", reply.results)[0], total)
            self.assertEqual(peer.call(1, b"abcd", program=0x20000043, version=1).status, 4) # GARBAGE_ARGS
            peer.close()
        url = re.search(r"metrics at (\S+)", text)[1]
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            metrics = answer.read().decode()
        for transport in ("tcp", "iwarp"):
            self.assertRegex(metrics, r'verbena_rpc_calls_total\{program="adder",version="1",procedure="ADD",'
                                      rf'transport="{transport}"\}} 6\n')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 0)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
