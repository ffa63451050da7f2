# SPDX-License-Identifier: Apache-2.0
"""Rows of tests/bench/run about many calls at once: what a flood does to others, and what too much load does to the server.

The server has a processor for itself and the clients share the other one; the client that is timed runs with real-time
priority, so that what it waits for is the server and not the flood's client.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import peers  # pylint: disable=wrong-import-position

FLOOD = 4096     # calls in flight
PEAK = (16, 64)  # connections and depth that load the server fully
LOADS = (1, 2, 4)
STATES = ("busy", "spin", "sleep")
IDLE = 10_000    # connections
ADDRESSES = 16   # that they come from
BUSY = 32        # calls at once of each


def first_of_all():
    """In the child: nothing of normal priority keeps it from its processor."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


def idle_connections(bench):
    """What an idle iWARP connection costs, resident and of the budget, when each has been answered, and again a while after each was busy;
    all are answered again then. The budget is the default one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Three eighths of its descriptors are for connections.
    count = min(IDLE // 10 if bench.options.quick else IDLE, most * 3 // 8 - 50)
    port, metrics = bench.free_port(), bench.free_port()
    server = bench.verbenad("adaptive", metrics=metrics, extra=["--listen", f"iwarp://127.0.0.1:{port}"])

    def resident():
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text())[1])

    def reserved():
        return bench.metric(metrics, "verbena_memory_registered_bytes")

    with server:
        before = resident(), reserved()
        clients = []
        for i in range(count):
            clients.append(peers.IwarpPeer(port, source=f"127.0.0.{2 + i % ADDRESSES}"))
            clients[-1].call(0)
        for when in ("answered once", "after a busy moment"):
            after = resident(), reserved()
            bench.report("idle connections", f"resident memory of each of {count} over iwarp, {when}", "adaptive", "KiB",
                         [(after[0] - before[0]) / count], None, 64, "lower")
            bench.report("idle connections", f"of the memory budget for each of {count} over iwarp, {when}", "adaptive", "KiB",
                         [(after[1] - before[1]) / 1024 / count], None, 12, "lower")
            if when == "answered once":
                for client in clients:
                    client.use_credits(BUSY)
                time.sleep(3)
        for client in clients:
            client.call(0)
        for client in clients:
            client.close()


def rpc_load(bench, server, *arguments, seconds=None):
    command = [bench.program("rpc_load"), server.null, *arguments[:2], seconds or bench.options.seconds, *arguments[2:]]
    return json.loads(bench.client(command).splitlines()[-1])


def quiet(bench, server):
    """p99 in microseconds of a client that has one call in flight."""
    command = [bench.program("nfs_load"), server.url, "getattr", 0, 1, 1, bench.options.seconds]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True,
                          preexec_fn=first_of_all)
    return json.loads(done.stdout.splitlines()[-1])["p99_us"]


class Flood:
    """A client that keeps FLOOD calls in flight on one connection until it is stopped."""

    def __init__(self, command):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log)
        time.sleep(0.5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise SystemExit(f"the flood ended: {self.log.read()[-500:]}")
        self.process.kill()
        self.process.wait()
        self.log.close()


def fairness(bench):
    """p99 of a client with one call at a time, beside a client that floods the server and alone."""
    port = bench.free_port()
    with bench.on(1):
        server = bench.verbenad("adaptive", extra=["--listen", f"iwarp://127.0.0.1:{port}"])
    floods = {
        "tcp": lambda: Flood([bench.program("rpc_load"), server.null, "getattr", 1, 600, "depth", FLOOD]),
        "tcp, READ 4 KiB": lambda: Flood([bench.program("rpc_load"), server.null, "read", 1, 600, "depth", FLOOD]),
        # The server's credits allow 128 calls; more wait at the client.
        "iwarp, NULL": lambda: Flood([bench.build / "services/verbena", "ping", "--depth", 256, "--count", 10_000_000,
                                      f"nfs+iwarp://127.0.0.1:{port}/export"]),
    }
    with server, bench.on(0):
        bench.load(server, "read", 4096, 1, 1, 0.3)  # makes the file
        for name, flood in floods.items():
            def beside(flood=flood):
                with flood():
                    return quiet(bench, server)
            got = bench.pairs(beside, lambda: quiet(bench, server))
            depth = 128 if "iwarp" in name else FLOOD
            bench.report("fairness", f"p99 of one GETATTR at a time, flood of {depth} over {name}", "adaptive", "us", got,
                         "alone", 2, "lower")


def overload(bench):
    """Calls answered when more are offered than the server can answer, against the most that it answers.

    How much of the time the server worked tells whose the bound was: where it rests, the load's own processor is it."""
    connections, depth = PEAK
    metrics = bench.free_port()
    with bench.on(1):
        server = bench.verbenad("adaptive", metrics=metrics)

    def time_in(state):
        return bench.metric(metrics, "verbena_shard_policy_seconds_total", state=state)

    def offered(operation, rate):
        before = [time_in(state) for state in STATES]
        result = rpc_load(bench, server, operation, connections, "rate", rate)
        spent = [time_in(state) - earlier for state, earlier in zip(STATES, before)]
        return result | {"busy": spent[0] / sum(spent)}

    with server, bench.on(0):
        bench.load(server, "read", 4096, 1, 1, 0.3)
        for operation in ("getattr", "read"):
            samples = {times: [] for times in LOADS}
            busy = {times: [] for times in LOADS}
            lost = 0
            for _ in range(bench.options.repeat):
                closed = rpc_load(bench, server, operation, connections, "depth", depth)["per_second"]
                # More is answered as more is offered, since more comes at once: the load that it can carry is the most.
                first = offered(operation, round(max(LOADS) * closed))
                lost += first["lost"] + first["failed"]
                capacity = max(closed, first["per_second"])
                runs = {times: offered(operation, round(times * capacity)) for times in LOADS}
                peak = max(capacity, *(r["per_second"] for r in runs.values()))
                for times, r in runs.items():
                    samples[times].append((r["per_second"], peak))
                    busy[times].append(100 * r["busy"])
                    lost += r["lost"] + r["failed"]
            name = "READ 4 KiB" if operation == "read" else operation.upper()
            for times in LOADS:
                bench.report("overload", f"{name} answered at {times} x the load that it can carry", "adaptive", "1/s",
                             samples[times], "peak", 0.9 if times > 1 else None)
                bench.report("overload", f"{name} at {times} x: time that the server worked", "adaptive", "%", busy[times],
                             None, None)
            bench.report("overload", f"{name}: connections lost and calls failed", "adaptive", "", [lost], None, 0, "lower")
