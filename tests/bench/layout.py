# SPDX-License-Identifier: Apache-2.0
"""The row `layout` of tests/bench/run: a file on memfs read by RDMA under a layout, beside NFSv4.1 READ of it from the same daemon, both over iWARP.

The daemon has a processor, and the client, one thread with one session, the other one. What the daemon worked for each operation is what its
shard calls busy, without its spinning.
"""
import json
import socket

MIB = 1 << 20
FILE = 512 * MIB
# way that stands beside, bytes, depth, name, goals of the rate and of the work
WORK = ((4096, 32, "4 KiB random read x 32", 1.5, None), (MIB, 16, "1 MiB read x 16", None, 0.7))


def layout(bench, server_of, wait_for):
    """Reads by RDMA against READ."""
    port, metrics = bench.free_port(), bench.free_port()
    with bench.on(1):
        server = server_of([bench.build / "services/verbenad", "nfs", "--export", ":/layouts,backend=memfs,root_squash=no,pnfs",
                            "--listen", f"iwarp://127.0.0.1:{port}", "--rpcbind", "no", "--shards", 1,
                            "--metrics", f"127.0.0.1:{metrics}", "--state", bench.scratch / "state-layout",
                            "--log-level", "error"], bench.scratch / "layout.log")
    where = f"127.0.0.1:{port}"

    def client(*arguments):
        with bench.on(0):
            return bench.client([bench.program("layout_perf"), where, "file", *arguments])

    def work():
        return bench.metric(metrics, "verbena_shard_policy_seconds_total", state="busy")

    def run(way, size, depth):
        before = work()
        out = json.loads(client(way, size, depth, bench.options.seconds).splitlines()[-1])
        # Its set-up and the moment in which it warms up count for both alike.
        return out["per_second"], (work() - before) / out["operations"]

    with server:
        wait_for("verbenad", lambda: socket.create_connection(("127.0.0.1", port), 1).close())
        client("make", FILE // MIB)
        for size, depth, name, goal, work_goal in WORK:
            got = bench.pairs(lambda w=(size, depth): run("rdma", *w), lambda w=(size, depth): run("nfs", *w))
            scale, unit = (1, "1/s") if size < MIB else (size / 1e6, "MB/s")
            bench.report("layout", name, "adaptive", unit, [(a[0] * scale, b[0] * scale) for a, b in got], "READ of 4.1", goal)
            bench.report("layout", f"{name}: the server's work", "adaptive", "us", [(a[1] * 1e6, b[1] * 1e6) for a, b in got],
                         "READ of 4.1", work_goal, "lower")
        told = [json.loads(client("get", 50))["p50_us"] for _ in range(bench.options.repeat)]
        bench.report("layout", f"LAYOUTGET of {FILE // MIB} MiB", "adaptive", "us", told, None, 1000, "lower")
