# SPDX-License-Identifier: Apache-2.0
"""The row `kv` of tests/bench/run: the key-value service of examples/kv beside the same made with rpcgen and libtirpc.

Both have one thread, on a processor of its own, and the same clients on the other one: kv_load, which is verbena's client and keeps
64 calls in flight on one connection, and kv_tirpc_load, which is libtirpc's, whose calls are synchronous: 64 threads with a
connection each. Where verbenad waits for the client, calls per second are the client's; so there are calls per second of the server's
work too: of what verbenad calls busy, without its spinning, and of the CPU time of the peer, which does not spin.
"""
import json
import socket
import subprocess

IN_FLIGHT = 64
SIZES = {64: "64 B", 4096: "4 KiB", 65536: "64 KiB", 1048576: "1 MiB"}
OPERATIONS = ("get", "put")
WAYS = ("tcp", "peer", "iwarp", "threads", "peer threads")  # the last two: libtirpc's clients


def goals(size):
    return 8 if size == 64 else 1.5, 0.9 if size >= 65536 else None


class Compared:
    def __init__(self, bench, cpu_seconds, server_of, wait_for):
        self.bench, self.cpu_seconds = bench, cpu_seconds
        self.ports = {name: bench.free_port() for name in ("tcp", "iwarp", "peer", "metrics")}
        with bench.on(1):
            self.ours = server_of([bench.build / "services/verbenad", "--module", bench.build / "examples/kv/kv.so", "kv",
                                   "--listen", f"tcp://127.0.0.1:{self.ports['tcp']}",
                                   "--listen", f"iwarp://127.0.0.1:{self.ports['iwarp']}", "--shards", 1,
                                   "--metrics", f"127.0.0.1:{self.ports['metrics']}",
                                   "--state", bench.scratch / "state", "--log-level", "error"],
                                  bench.scratch / "kv.log")
            self.peer = server_of([bench.program("kv_compare/kv_tirpc_server"), self.ports["peer"]],
                                  bench.scratch / "kv_tirpc.log")
        for name in ("tcp", "peer"):
            wait_for(f"kv ({name})", lambda name=name: socket.create_connection(("127.0.0.1", self.ports[name]), 1).close())

    def work(self, server):
        """Seconds that its thread has worked."""
        if server is self.peer:
            return self.cpu_seconds(server.pid)
        return self.bench.metric(self.ports["metrics"], "verbena_shard_policy_seconds_total", state="busy")

    def run(self, way, operation, size):
        """One run; calls per second, and calls per second of the server's work."""
        server, rest = (self.peer, self.ours) if "peer" in way else (self.ours, self.peer)
        rest.freeze()
        server.thaw()
        port = self.ports["iwarp" if way == "iwarp" else "peer" if "peer" in way else "tcp"]
        if "threads" in way:
            command = [self.bench.program("kv_compare/kv_tirpc_load"), port, operation, size, IN_FLIGHT]
        else:
            command = [self.bench.program("kv_compare/kv_load"), f"{'iwarp' if way == 'iwarp' else 'tcp'}://127.0.0.1:{port}",
                       operation, size, 1, IN_FLIGHT]
        before = after = 0.0
        out = {}
        with self.bench.on(0), subprocess.Popen([*map(str, command), str(self.bench.options.seconds)],
                                                stdout=subprocess.PIPE, text=True) as client:
            for line in client.stdout:
                if line.startswith("begin"):
                    before = self.work(server)
                elif line.startswith("{"):
                    after = self.work(server)
                    out = json.loads(line)
        if client.returncode != 0 or not out:
            raise SystemExit(f"{' '.join(map(str, command))} failed")
        return out["per_second"], out["operations"] / max(after - before, 1e-9)


def kv(bench, cpu_seconds, server_of, wait_for):
    """GET and PUT of the key-value service against libtirpc, and over iWARP."""
    compared = Compared(bench, cpu_seconds, server_of, wait_for)
    got = {}
    with compared.ours, compared.peer:
        # Row by row inside each round: what else the machine does then meets all alike.
        for turn in range(bench.options.repeat):
            for size in SIZES:
                for operation in OPERATIONS:
                    for i in range(len(WAYS)):
                        way = WAYS[(i + turn) % len(WAYS)]
                        got.setdefault((size, operation, way), []).append(compared.run(way, operation, size))
    for size, name in SIZES.items():
        for operation in OPERATIONS:
            to_peer, to_tcp = goals(size)
            scale, unit = (1, "1/s") if size < 65536 else (size / 1e6, "MB/s")

            def pairs(ours, peer, figure=0, scale=scale, key=(size, operation)):
                return [(a[figure] * scale, b[figure] * scale) for a, b in zip(got[(*key, ours)], got[(*key, peer)])]
            what = f"{operation.upper()} {name}"
            bench.report("kv", f"{what}, 1 x {IN_FLIGHT}", "adaptive", unit, pairs("tcp", "peer"), "libtirpc", to_peer)
            bench.report("kv", f"{what}, per second of the server's work", "adaptive", unit, pairs("tcp", "peer", 1), "libtirpc",
                         None)
            bench.report("kv", f"{what}, iwarp", "adaptive", unit, pairs("iwarp", "tcp"), "tcp", to_tcp)
            bench.report("kv", f"{what}, iwarp, per second of the server's work", "adaptive", unit, pairs("iwarp", "tcp", 1), "tcp",
                         None)
            bench.report("kv", f"{what}, {IN_FLIGHT} threads of libtirpc's client", "adaptive", unit,
                         pairs("threads", "peer threads"), "libtirpc", None)
