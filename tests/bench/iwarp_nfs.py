# SPDX-License-Identifier: Apache-2.0
"""The row `iwarp_nfs` of tests/bench/run: READ and WRITE of 1 MiB of version 4.1, of a file on memfs, over iWARP beside TCP of the same daemon.

The daemon has a processor, and the client, one thread with one session, the other one. What the daemon works is what its shard calls busy,
without its spinning.
"""
import json
import socket
import subprocess

MIB = 1 << 20
FILE = 256 # MiB
DEPTH = 16
GOAL = 0.95


def iwarp_nfs(bench, server_of, wait_for):
    """READ and WRITE of 1 MiB over iWARP against TCP."""
    ports = {name: bench.free_port() for name in ("iwarp", "tcp", "metrics")}
    where = {"iwarp": f"127.0.0.1:{ports['iwarp']}", "tcp": f"tcp:127.0.0.1:{ports['tcp']}"}
    with bench.on(1):
        server = server_of([bench.build / "services/verbenad", "nfs", "--export", ":/layouts,backend=memfs,root_squash=no",
                            "--listen", f"iwarp://127.0.0.1:{ports['iwarp']}", "--listen", f"tcp://127.0.0.1:{ports['tcp']}",
                            "--rpcbind", "no", "--shards", 1, "--metrics", f"127.0.0.1:{ports['metrics']}",
                            "--state", bench.scratch / "state-iwarp-nfs", "--log-level", "error"], bench.scratch / "iwarp_nfs.log")

    def work():
        return bench.metric(ports["metrics"], "verbena_shard_policy_seconds_total", state="busy")

    def run(way, operation):
        """One run; operations per second, and operations per second of the server's work."""
        command = [bench.program("layout_perf"), where[way], "file", operation, MIB, DEPTH, bench.options.seconds]
        before = after = 0.0
        out = {}
        with bench.on(0), subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as client:
            for line in client.stdout:
                if line.startswith("begin"):
                    before = work()
                elif line.startswith("{"):
                    after = work()
                    out = json.loads(line)
        if client.returncode != 0 or not out:
            raise SystemExit(f"{' '.join(map(str, command))} failed")
        return out["per_second"], out["operations"] / max(after - before, 1e-9)

    with server:
        for name in ("iwarp", "tcp"):
            wait_for("verbenad", lambda name=name: socket.create_connection(("127.0.0.1", ports[name]), 1).close())
        with bench.on(0):
            bench.client([bench.program("layout_perf"), where["tcp"], "file", "make", FILE])
        for operation, what in (("nfs", f"READ 1 MiB x {DEPTH}"), ("write", f"WRITE 1 MiB x {DEPTH}")):
            got = bench.pairs(lambda o=operation: run("iwarp", o), lambda o=operation: run("tcp", o))
            for figure, suffix in enumerate(("", ", per second of the server's work")):
                bench.report("iwarp_nfs", f"{what} over iwarp{suffix}", "adaptive", "MB/s",
                             [(a[figure] * MIB / 1e6, b[figure] * MIB / 1e6) for a, b in got], "tcp", GOAL)
