#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module of examples/kv, loaded by verbenad: values by TCP and as RPC-over-RDMA, limits, metrics."""
import os
import struct
import subprocess

import daemon
import peers

MIB = 1 << 20
KV = {"program": 0x20000043, "version": 1}
PUT = 2
OK, NO_SPACE = 0, 2
GARBAGE_ARGS = 4


class Kv(daemon.DaemonTest):
    def serve(self, *settings):
        folder = os.path.join(os.path.dirname(daemon.BINARY), "../examples/kv")
        self.client = os.path.join(folder, "kv")
        self.daemon = self.run_daemon("--module", os.path.join(folder, "kv.so"), "kv", "--shards", "2",
                                      "--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0",
                                      "--metrics", "127.0.0.1:0", "--state", os.path.join(self.folder, "state"),
                                      *settings, exactly=True)
        self.tcp, self.iwarp = (f"{name}://127.0.0.1:{self.daemon.port(name)}" for name in ("tcp", "iwarp"))

    def kv(self, what, url, *key, value=b"", status=0):
        """What it wrote to the standard output, or if it fails what it said."""
        done = subprocess.run([self.client, what, url, *key], input=value, capture_output=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr.decode() if status else done.stdout

    def totals(self):
        """Of STAT, which is what the metrics say too."""
        words = self.kv("stat", self.tcp).decode().split()
        told = dict(zip(words[::2], map(int, words[1::2])))
        self.assertEqual(self.daemon.metric("kv_keys"), told["keys"])
        self.assertEqual(self.daemon.metric("kv_bytes"), told["bytes"])
        return told["keys"], told["bytes"]

    def test_values_of_each_size_go_by_each_transport(self):
        self.serve()
        sizes = (0, 1, 4096, MIB)
        for put_by in (self.tcp, self.iwarp):
            for get_by in (self.tcp, self.iwarp):
                for size in sizes:
                    value = os.urandom(size)
                    self.kv("put", put_by, f"key {size}", value=value)
                    self.assertEqual(self.kv("get", get_by, f"key {size}"), value)
        self.assertEqual(self.totals(), (len(sizes), sum(sizes) + sum(len(f"key {size}") for size in sizes)))
        # Over RDMA the large ones came in Read chunks, and all that were asked for went into the Write chunks that were offered.
        moved = {way: self.daemon.metric(f'verbena_rpcrdma_chunk_bytes_total{{direction="{way}"}}') for way in ("read", "write")}
        self.assertEqual(moved, {"read": 2 * (4096 + MIB), "write": 2 * sum(sizes)})
        for url, size in zip((self.tcp, self.iwarp) * 3, sizes):
            self.kv("del", url, f"key {size}")
            self.assertIn("no such key", self.kv("get", url, f"key {size}", status=1))
        self.assertIn("no such key", self.kv("del", self.tcp, "key 1", status=1))
        self.assertEqual(self.totals(), (0, 0))
        hits, misses = (self.daemon.metric(f'kv_gets_total{{result="{result}"}}') for result in ("hit", "miss"))
        # A new client offers a Write chunk of 64 KiB, and four times as much each time that the value doesn't fit: MIB is found three times.
        again = 2 * 2
        self.assertEqual((hits, misses), (4 * len(sizes) + again, len(sizes)))

    def test_a_value_is_replaced_whole(self):
        self.serve()
        for size in (4096, 100, 0, 5000):
            self.kv("put", self.iwarp, "k", value=b"v" * size)
            self.assertEqual(self.totals(), (1, 1 + size))

    def test_limits(self):
        self.serve("--max-keys", "2", "--max-bytes", "10000")
        for url in (self.tcp, self.iwarp):
            for key in ("a", "b"):
                self.kv("put", url, key, value=bytes(100))
            self.assertIn("no space", self.kv("put", url, "c", status=1))
            # A key that is there may have another value, within what is left.
            self.kv("put", url, "b", value=bytes(9000))
            self.assertIn("no space", self.kv("put", url, "a", value=bytes(1000), status=1))
            self.assertIn("no space", self.kv("put", url, "a", value=bytes(MIB), status=1))
            self.assertEqual(self.kv("get", url, "a"), bytes(100))
            self.assertEqual(self.totals(), (2, 2 + 9100))
            self.kv("del", url, "b")
            # To the byte.
            self.assertIn("no space", self.kv("put", url, "b", value=bytes(9899), status=1))
            self.kv("put", url, "b", value=bytes(9898))
            self.assertEqual(self.totals(), (2, 10000))

    def begin_put(self, peer, key, size):
        """A PUT whose value the server has to fetch; the XID."""
        xid = next(peer.xids)
        message = peers.call_message(xid, PUT, peers.opaque(key) + struct.pack(">I", size), **KV)
        peer.send(peer.message(xid, message, reads=[(len(message), peer.grant(bytes(size)), size)]))
        return xid

    def status(self, peer, xid):
        return peers.Accepted(peer.answer(xid)[1]).nfs_status() # any status that results begin with

    def test_limits_hold_when_the_room_goes_while_the_value_comes(self):
        self.serve("--max-bytes", "10000")
        peer = peers.IwarpPeer(self.daemon.port("iwarp"))
        first = self.begin_put(peer, b"a", 8000)
        self.assertIsNone(peer.receive_send(answer_reads=False)) # the server is at it
        self.kv("put", self.tcp, "b", value=bytes(8000))
        peer.answer_reads()
        self.assertEqual(self.status(peer, first), NO_SPACE)
        self.assertEqual(self.totals(), (1, 8001))
        # For what there is no room, nothing is fetched.
        self.begin_put(peer, b"a", 8000)
        self.assertIsNotNone(peer.receive_send(answer_reads=False))
        self.assertEqual(self.status(peer, self.begin_put(peer, b"a", 1998)), OK)
        peer.close()

    def test_only_the_value_may_come_in_a_chunk(self):
        self.serve()
        peer = peers.IwarpPeer(self.daemon.port("iwarp"))
        xid = next(peer.xids)
        message = peers.call_message(xid, PUT, struct.pack(">I", 4), **KV)
        peer.send(peer.message(xid, message + peers.opaque(b"v"), reads=[(len(message), peer.grant(b"key "), 4)]))
        self.assertEqual(peers.Accepted(peer.answer(xid)[1]).status, GARBAGE_ARGS)
        peer.close()

    def test_a_repeat_does_not_undo_what_came_since(self):
        self.serve()
        peer = peers.TcpPeer(self.daemon.port("tcp"))
        message = peers.call_message(next(peer.xids), PUT, peers.opaque(b"k") + peers.opaque(b"old"), **KV)
        peer.send(message)
        self.assertEqual(peer.receive().nfs_status(), OK)
        self.assertEqual(self.kv("get", self.tcp, "k"), b"old")
        self.kv("put", self.iwarp, "k", value=b"new")
        peer.send(message)
        self.assertEqual(peer.receive().nfs_status(), OK)
        self.assertEqual(self.kv("get", self.tcp, "k"), b"new")
        peer.close()

    def test_keys(self):
        self.serve()
        for url in (self.tcp, self.iwarp):
            for key in ("", "k" * 256, "Schlüssel\n"):
                self.kv("put", url, key, value=key.encode())
                self.assertEqual(self.kv("get", url, key), key.encode())
        self.assertIn("at most 256", self.kv("get", self.tcp, "k" * 257, status=2))

    def test_shards_share_what_is_stored(self):
        self.serve()
        self.kv("put", self.tcp, "k", value=b"v")
        for _ in range(8): # connections are spread over both shards
            self.assertEqual(self.kv("get", self.tcp, "k"), b"v")

    def test_an_unknown_setting_is_refused(self):
        self.serve()
        done = self.run_binary("--module", os.path.join(os.path.dirname(self.client), "kv.so"), "kv", "--max-keys", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("max-keys", done.stderr)


if __name__ == "__main__":
    daemon.main()
