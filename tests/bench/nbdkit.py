# SPDX-License-Identifier: Apache-2.0
"""The row `nbdkit` of tests/bench/run: nbdkit with our plugin before verbenad, by iWARP, beside nbdkit with its own plugin `nbd`
before another nbdkit, by TCP: as many hops, the same file, fio's engine for NBD.

fio, the hop and the server share two processors as the scheduler likes. The CPU time of hop and server for each operation stands
beside what was done: it moves less than the rates do with what else the machine runs.
"""
import contextlib
import json
import socket

MIB = 1 << 20
FILE = 512 * MIB
# pattern, bytes, depth, name, goal
WORK = (("randread", 4096, 1, "4 KiB random read x 1", 1.0), ("randread", 4096, 32, "4 KiB random read x 32", 1.5),
        ("randwrite", 4096, 1, "4 KiB random write x 1", 1.0), ("randwrite", 4096, 32, "4 KiB random write x 32", 1.5),
        ("read", MIB, 16, "1 MiB read x 16", 1.0), ("write", MIB, 16, "1 MiB write x 16", 1.0))


class Chain:
    """A server, and an nbdkit before it that fio comes to."""

    def __init__(self, bench, name, server, hop, server_of, wait_for, port):
        self.bench, self.name = bench, name
        self.socket = bench.scratch / f"{name}.sock"
        self.server = server_of(server, bench.scratch / f"{name}-server.log")
        wait_for(f"the server of {name}", lambda: socket.create_connection(("127.0.0.1", port), 1).close(),
                 log=bench.scratch / f"{name}-server.log")
        self.hop = server_of(["nbdkit", "-f", "-U", self.socket, *hop], bench.scratch / f"{name}-hop.log")

        def up():
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self.socket))
        wait_for(f"the hop of {name}", up, log=bench.scratch / f"{name}-hop.log")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hop.stop()
        self.server.stop()

    def freeze(self):
        self.hop.freeze()
        self.server.freeze()

    def thaw(self):
        self.server.thaw()
        self.hop.thaw()

    def run(self, cpu_seconds, pattern, size, depth):
        """One run; operations per second, and seconds of the hop and of the server for each."""
        told = self.bench.scratch / "fio.json"
        before = [cpu_seconds(p.pid) for p in (self.hop, self.server)]
        self.bench.client(["fio", "--name=bench", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={self.socket}", f"--rw={pattern}",
                           f"--bs={size}", f"--iodepth={depth}", "--numjobs=1", "--time_based",
                           f"--runtime={max(1, round(self.bench.options.seconds))}", "--output-format=json", f"--output={told}"])
        out = json.loads(told.read_text())
        side = out["jobs"][0]["write" if "write" in pattern else "read"]
        hop, server = ((cpu_seconds(p.pid) - b) / side["total_ios"] for p, b in zip((self.hop, self.server), before))
        return side["iops"], hop, server


def nbdkit(bench, cpu_seconds, server_of, wait_for):
    """nbdkit's plugin and verbenad against two nbdkits."""
    file = bench.scratch / "disk.img"
    with open(file, "wb") as out:
        for _ in range(FILE // MIB):
            out.write(b"\x5a" * MIB)
    port, peer_port = bench.free_port(), bench.free_port()
    with contextlib.ExitStack() as both:
        ours = both.enter_context(Chain(
            bench, "verbena",
            [bench.build / "services/verbenad", "block", "--device", f"disk={file},direct=off", "--listen", f"iwarp://127.0.0.1:{port}",
             "--shards", 1, "--metrics", "off", "--state", bench.scratch / "state",
             "--log-level", "error"],
            [bench.build / "services/nbdkit-verbena-plugin.so", f"url=rnbd+iwarp://127.0.0.1:{port}/disk"], server_of, wait_for, port))
        ours.freeze()
        peer = both.enter_context(Chain(
            bench, "two-nbdkits", ["nbdkit", "-f", "-i", "127.0.0.1", "-p", peer_port, "file", file],
            ["nbd", f"uri=nbd://127.0.0.1:{peer_port}"], server_of, wait_for, peer_port))

        def one(chain, rest, work):
            rest.freeze()
            chain.thaw()
            return chain.run(cpu_seconds, *work)
        for pattern, size, depth, name, goal in WORK:
            work = (pattern, size, depth)
            got = bench.pairs(lambda w=work: one(ours, peer, w), lambda w=work: one(peer, ours, w))
            scale, unit = (1, "1/s") if size < MIB else (size / 1e6, "MB/s")
            # That of the plugin and that of verbenad.
            bench.report("nbdkit", name, "event, adaptive", unit, [(a[0] * scale, b[0] * scale) for a, b in got], "two nbdkits", goal)
            for which, what, policy in ((1, "the hop's work", "event"), (2, "the server's work", "adaptive")):
                bench.report("nbdkit", f"{name}: {what}", policy, "us", [(a[which] * 1e6, b[which] * 1e6) for a, b in got],
                             "two nbdkits", None, "lower")
