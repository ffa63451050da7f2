#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who was turned away, and why: a client that can't mount or map is found in the daemon's log and in its metrics."""
import os
import re
import resource
import socket
import subprocess
import time

import daemon
import peers

OTHERS = "192.0.2.0/24" # nobody here
DESCRIPTORS = 128


class Refusals(daemon.DaemonTest):
    def serve(self, text, of_daemon="", **options):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(2)}
{of_daemon}
[metrics]
listen = "127.0.0.1:0"
{text}""")
        return self.run_daemon("serve", config, **options)

    def serve_exports(self, **options):
        return self.serve(f"""[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/ours"
read_only = true
[[nfs.export]]
directory = "{self.data}"
pseudo = "/theirs"
clients = ["{OTHERS}"]
""", **options)

    def client(self, *words):
        """What `verbena` says that fails."""
        done = subprocess.run([os.path.join(os.path.dirname(daemon.BINARY), "verbena"), "-q", *words], input=b"", capture_output=True,
                              timeout=120 * daemon.SLOW, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr.decode()

    def line(self, d, **fields):
        """The one line of a refusal with these fields; it may still be on its way."""
        until = time.monotonic() + peers.LIMIT
        while True:
            found = [line for line in d.log().splitlines() if "peers: turned away peer=127.0.0.1 " in line and
                     all(re.search(rf' {key}="?{re.escape(value)}', line) for key, value in fields.items())]
            if found:
                self.assertEqual(len(found), 1, d.log())
                return found[0]
            self.assertLess(time.monotonic(), until, d.log())
            time.sleep(0.05)

    def count(self, d, of, reason):
        return d.metric(f'verbena_refused_total{{of="{of}",reason="{reason}"}}')

    def test_an_export_of_others_by_version_3_and_4(self):
        d = self.serve_exports()
        self.assertEqual(self.count(d, "export", "address"), 0)
        for version, path in (("3", "/theirs"), ("4.1", "/theirs")):
            before = self.count(d, "export", "address")
            self.client("ls", f"nfs+tcp://127.0.0.1:{d.port('tcp')}{path}?vers={version}&mountport={d.port('tcp')}")
            self.assertGreater(self.count(d, "export", "address"), before, version)
        line = self.line(d, export="/theirs", reason="address")
        self.assertIn('limit="clients of the export"', line)
        self.assertIn('cure="add the address to clients of the export', line)
        # A path that nobody has.
        self.client("ls", f"nfs+tcp://127.0.0.1:{d.port('tcp')}/none?vers=3&mountport={d.port('tcp')}")
        self.assertIn("showmount", self.line(d, export="/none", reason="unknown"))

    def test_a_change_of_what_is_read_only(self):
        d = self.serve_exports()
        file = os.path.join(self.folder, "file")
        with open(file, "wb") as out:
            out.write(b"x")
        for version in ("3", "4.1"):
            before = self.count(d, "export", "read_only")
            self.client("cp", file, f"nfs+tcp://127.0.0.1:{d.port('tcp')}/ours/file?vers={version}&mountport={d.port('tcp')}")
            self.assertGreater(self.count(d, "export", "read_only"), before, version)
        self.assertIn("read_only = false", self.line(d, export="/ours", reason="read_only"))

    def test_a_security_flavor_that_is_not_served(self):
        d = self.serve_exports()
        peer = peers.TcpPeer(d.port("tcp"))
        # A NULL call with RPCSEC_GSS's flavor, as a mount with sec=krb5 begins.
        words = (1, 0, 2, 100003, 4, 0, 6, 0, 0, 0)
        peer.send(b"".join(word.to_bytes(4, "big") for word in words))
        self.assertEqual(peer.take(16)[8:], bytes([0, 0, 0, 1, 0, 0, 0, 1])) # a reply, denied
        peer.close()
        line = self.line(d, connection="tcp", reason="security")
        self.assertIn("sec=sys", line)
        self.assertIn("flavor 6", line)
        self.assertEqual(self.count(d, "connection", "security"), 1)

    def test_block_devices(self):
        d = self.serve(f"""[block]
listen = ["iwarp://127.0.0.1:0"]
[[block.device]]
name = "ours"
size = "1M"
read_only = true
[[block.device]]
name = "theirs"
size = "1M"
clients = ["{OTHERS}"]
""")
        url = f"rnbd+iwarp://127.0.0.1:{d.port('iwarp')}/"
        self.assertIn("clients= and session= of the server", self.client("block", "info", url + "theirs"))
        self.assertIn("clients of the device", self.line(d, device="theirs", reason="address"))
        self.assertIn("no device of this name", self.client("block", "info", url + "none"))
        self.line(d, device="none", reason="unknown")
        self.assertIn("does not let it be changed", self.client("block", "write", url + "ours"))
        self.assertIn("read_only = false", self.line(d, device="ours", reason="read_only"))
        for reason in ("address", "unknown", "read_only"):
            self.assertEqual(self.count(d, "device", reason), 1)
        d.stop()

    def test_a_block_client_for_whose_host_there_is_no_device_or_no_memory(self):
        d = self.serve(f"""[block]
listen = ["iwarp://127.0.0.1:0"]
[[block.device]]
name = "theirs"
size = "1M"
clients = ["{OTHERS}"]
""")
        self.assertIn("has no device for this host",
                      self.client("block", "info", f"rnbd+iwarp://127.0.0.1:{d.port('iwarp')}/theirs"))
        self.assertIn("clients of a device", self.line(d, session="unnamed", reason="address"))
        d.stop()
        # One session of 64 MiB fits into the share, a second one doesn't.
        d = self.serve("""[block]
listen = ["iwarp://127.0.0.1:0"]
[[block.device]]
name = "disk"
size = "1M"
""", of_daemon="peer_memory_mib = 100")
        url = f"rnbd+iwarp://127.0.0.1:{d.port('iwarp')}/disk"
        first = subprocess.Popen([os.path.join(os.path.dirname(daemon.BINARY), "verbena"), "-q", "block", "bench", "--seconds", "600", url])
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        while not d.metric('verbena_rnbd_operations_total{operation="read"}'):
            self.assertIsNone(first.poll())
        self.assertIn("peer_memory_mib", self.client("block", "info", url))
        self.assertIn('cure="raise peer_memory_mib of [daemon]', self.line(d, reason="peer_memory"))
        self.assertGreaterEqual(self.count(d, "session", "peer_memory"), 1)

    def test_a_host_with_its_share_of_connections(self):
        for transport in ("tcp", "iwarp"):
            d = self.serve(f"""[nfs]
listen = ["{transport}://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
""", of_daemon="peer_connections = 1")
            first = (peers.TcpPeer if transport == "tcp" else peers.IwarpPeer)(d.port(transport))
            first.nfs(0)
            with socket.create_connection(("127.0.0.1", d.port(transport))) as second:
                if transport == "iwarp":
                    second.sendall(peers.mpa_request())
                said = peers.until_closed(second)
                self.assertEqual(b"verbena: peer_connections" in said, transport == "iwarp", said)
            line = self.line(d, reason="peer_connections")
            self.assertIn('limit="peer_connections of [daemon]: 1"', line)
            self.assertIn("raise peer_connections of [daemon]", line)
            self.assertGreaterEqual(self.count(d, "connection", "peer_connections"), 1)
            first.close()
            d.stop()

    def test_a_stranger_by_rdma_hears_why(self):
        d = self.serve(f"""[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/theirs"
clients = ["{OTHERS}"]
""")
        said = self.client("--soft", "ls", f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/theirs?mountport={d.port('tcp')}")
        self.assertIn("it serves nothing to this host's address", said)
        self.assertIn("clients of exports and devices", self.line(d, connection="iwarp", reason="address"))

    def test_connections_in_all(self):
        d = self.serve(f"""[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
""", of_daemon=f"connections = {daemon.shards(2)}\npeer_connections = 1000")
        # Each shard has one.
        served = [peers.TcpPeer(d.port("tcp")) for _ in range(daemon.shards(2))]
        for peer in served:
            peer.nfs(0)
        with socket.create_connection(("127.0.0.1", d.port("tcp"))) as another:
            peers.until_closed(another)
        self.assertIn("raise connections of [daemon]", self.line(d, connection="tcp", reason="connections"))
        self.assertEqual(self.count(d, "connection", "connections"), 1)
        for peer in served:
            peer.close()

    def test_a_client_that_finds_no_descriptor_is_closed_and_told_of(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        d = self.serve(f"""[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
""", of_daemon="peer_connections = 1000", before_start=limit)
        many = [socket.create_connection(("127.0.0.1", d.port("tcp"))) for _ in range(DESCRIPTORS)]
        # It would wait for ever; those that have one are closed in 15 s, as they say nothing.
        peers.until_closed(many[-1])
        line = self.line(d, reason="descriptors")
        self.assertIn(f'limit="LimitNOFILE of the unit (ulimit -n): {DESCRIPTORS}', line)
        self.assertIn("raise LimitNOFILE= of the unit or ulimit -n", line)
        self.assertGreater(self.count(d, "connection", "descriptors"), 0)
        for s in many:
            s.close()
        # Then the next one is served.
        peer = peers.TcpPeer(d.port("tcp"))
        peer.nfs(0)
        peer.close()


if __name__ == "__main__":
    daemon.main()
