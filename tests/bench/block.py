# SPDX-License-Identifier: Apache-2.0
"""The row `block` of tests/bench/run: verbenad's devices over iWARP beside nbdkit's over TCP, both without an RDMA device.

Each server has a processor of its own, and one client with one thread the other one: `verbena block bench`, and fio's engine for NBD.
The server's CPU time for each operation stands beside what was done; of verbenad it is what its shard calls busy, without its
spinning, and of nbdkit, which does not spin, its process's.
"""
import json
import socket

MIB = 1 << 20
DEVICE = 512 * MIB
# pattern, bytes, depth, name
WORK = (("randread", 4096, 32, "4 KiB random read x 32"), ("randwrite", 4096, 32, "4 KiB random write x 32"),
        ("randread", 4096, 1, "4 KiB random read x 1"), ("read", MIB, 16, "1 MiB read x 16"), ("write", MIB, 16, "1 MiB write x 16"))


class Compared:
    """One kind of device, of both servers."""

    def __init__(self, bench, kind, cpu_seconds, server_of, wait_for):
        self.bench, self.cpu_seconds = bench, cpu_seconds
        self.port, self.metrics, self.peer_port = (bench.free_port() for _ in range(3))
        if kind == "null":
            device, peer = f"device={DEVICE},backend=nullblk", ["null", f"size={DEVICE}"]
        else:
            files = [bench.scratch / name for name in ("ours.img", "theirs.img")]
            for file in files:
                with open(file, "wb") as out:
                    for _ in range(DEVICE // MIB):
                        out.write(b"\x5a" * MIB)
            device, peer = f"device={files[0]},direct=off", ["file", files[1]]
        with bench.on(1):
            self.ours = server_of([bench.build / "services/verbenad", "block", "--device", device, "--chunk-kib", 2048,
                                   "--queue-depth", 64, "--listen", f"iwarp://127.0.0.1:{self.port}", "--shards", 1,
                                   "--metrics", f"127.0.0.1:{self.metrics}", "--state", bench.scratch / "state",
                                   "--log-level", "error"], bench.scratch / "block.log")
            self.peer = server_of(["nbdkit", "-f", "-i", "127.0.0.1", "-p", self.peer_port, *peer], bench.scratch / "nbdkit.log")
        for port in (self.port, self.peer_port):
            wait_for("a block server", lambda port=port: socket.create_connection(("127.0.0.1", port), 1).close())

    def work(self, mine):
        if not mine:
            return self.cpu_seconds(self.peer.pid)
        return self.bench.metric(self.metrics, "verbena_shard_policy_seconds_total", state="busy")

    def run(self, mine, pattern, size, depth):
        """One run; operations per second, and seconds of the server's work for each."""
        server, rest = (self.ours, self.peer) if mine else (self.peer, self.ours)
        rest.freeze()
        server.thaw()
        seconds = max(1, round(self.bench.options.seconds))
        before = self.work(mine)
        with self.bench.on(0):
            if mine:
                out = json.loads(self.bench.client([self.bench.build / "services/verbena", "block", "bench", "--pattern", pattern,
                                                    "--block", size, "-d", depth, "--seconds", seconds, "--json",
                                                    f"rnbd+iwarp://127.0.0.1:{self.port}/device"]))
                operations, rate = out["operations"], out["operations"] / out["seconds"]
            else:
                # Of standard output its engine for NBD makes use too.
                told = self.bench.scratch / "fio.json"
                self.bench.client(["fio", "--name=bench", "--ioengine=nbd",
                                   f"--uri=nbd://127.0.0.1:{self.peer_port}", f"--rw={pattern}", f"--bs={size}",
                                   f"--iodepth={depth}", "--numjobs=1", "--time_based", f"--runtime={seconds}",
                                   "--output-format=json", f"--output={told}"])
                out = json.loads(told.read_text())
                side = out["jobs"][0]["write" if "write" in pattern else "read"]
                operations, rate = side["total_ios"], side["iops"]
        return rate, (self.work(mine) - before) / operations


def block(bench, cpu_seconds, server_of, wait_for):
    """Devices over iWARP against nbdkit over TCP."""
    for kind in ("null", "file"):
        compared = Compared(bench, kind, cpu_seconds, server_of, wait_for)
        with compared.ours, compared.peer:
            for pattern, size, depth, name in WORK:
                got = bench.pairs(lambda w=(pattern, size, depth): compared.run(True, *w),
                                  lambda w=(pattern, size, depth): compared.run(False, *w))
                scale, unit, goal = (1, "1/s", 1.5) if size < MIB else (size / 1e6, "MB/s", 1.2)
                device = "nullblk" if kind == "null" else "a file in the page cache"
                bench.report("block", f"{name}, {device}", "adaptive", unit, [(a[0] * scale, b[0] * scale) for a, b in got],
                             f"nbdkit {kind}", goal if depth != 1 else None)
                bench.report("block", f"{name}, {device}: the server's work", "adaptive", "us",
                             [(a[1] * 1e6, b[1] * 1e6) for a, b in got], f"nbdkit {kind}", 0.5 if depth == 32 else None, "lower")
