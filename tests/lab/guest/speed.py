#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same work on two NFS servers in turn; says how fast the first one is as a multiple of the second.

  speed.py JSON SERVER SERVER PAIRS [WORD...]
      a SERVER is a folder that holds an executable `mount` which mounts the server at FOLDER/mounted

Every piece of work gets a mount of its own, so that it starts with cold caches. PAIRS times it runs on both, the order
changing. Printed are a table of medians, one of where the processors' time went (milliseconds of all processors while the work
ran, the medians of each server), and a line of JSON, which goes into the file of that name too. The calls are those that the
kernel's client counted in the first pair. With WORDs only work whose name has one of them runs, and what that needs.
"""
import collections
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

MEBIBYTES = int(os.environ["LAB_MIB"])
FILES = int(os.environ["LAB_NAMES"])
MEGABYTE = 1 << 20
RANDOM_CALLS = 2048


took_by = {} # of the last work, milliseconds


def timed(function, *arguments):
    before, begun = spent(), time.monotonic()
    function(*arguments)
    took, after = time.monotonic() - begun, spent()
    took_by.clear()
    took_by.update({who: after[who] - before[who] for who in after})
    # A scenario does not see the kernel's own threads.
    took_by["the kernel"] = 1000 * took * os.cpu_count() - sum(took_by.values())
    return took


def spent():
    """Milliseconds of processors by whom, since the boot. A softirq's count as those of whom it interrupts."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    by = collections.Counter(client=1000 * (used.ru_utime + used.ru_stime))
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text(encoding="utf-8").strip()
            nanoseconds = sum(int((task / "schedstat").read_text(encoding="ascii").split()[0])
                              for task in (process / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue # gone meanwhile
        by["client" if process.name == str(os.getpid()) else "verbenad" if name == "verbenad" else "others"] += nanoseconds / 1e6
    fields = pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    by["idle"] = (int(fields[4]) + int(fields[5])) * 1000 / os.sysconf("SC_CLK_TCK")
    return by


def write_sequential(folder):
    data = os.urandom(MEGABYTE)
    if os.path.exists(f"{folder}/large"):
        os.unlink(f"{folder}/large")

    def write():
        file = os.open(f"{folder}/large", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        for _ in range(MEBIBYTES):
            os.write(file, data)
        os.fsync(file)
        os.close(file)
    return timed(write)


def read_sequential(folder):
    def read():
        file = os.open(f"{folder}/large", os.O_RDONLY)
        total = 0
        while count := len(os.read(file, MEGABYTE)):
            total += count
        os.close(file)
        if total != MEBIBYTES * MEGABYTE:
            sys.exit(f"speed.py: read {total} octets")
    return timed(read)


def fio(folder, direction):
    """The time that fio measured for its calls, without what its start costs."""
    done = []
    timed(lambda: done.append(subprocess.run(
        ["fio", "--name=random", f"--filename={folder}/large", f"--rw=rand{direction}", "--bs=4k", "--iodepth=32",
         "--ioengine=libaio", "--direct=1", f"--size={MEBIBYTES}M", f"--io_size={RANDOM_CALLS * 4}k", "--randseed=7",
         "--thread", "--overwrite=1", "--output-format=json"], stdout=subprocess.PIPE, check=True)))
    said = json.loads(done[0].stdout)["jobs"][0][direction]
    if said["total_ios"] != RANDOM_CALLS:
        sys.exit(f"speed.py: fio made {said['total_ios']} calls")
    return 1 / said["iops"] # and took_by has what its start cost too


def create(folder):
    data = os.urandom(4096)
    os.mkdir(f"{folder}/small")

    def make():
        for number in range(FILES):
            file = os.open(f"{folder}/small/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.write(file, data)
            os.close(file)
    return timed(make)


def stat_all(folder):
    def look():
        for number in range(FILES):
            if os.stat(f"{folder}/small/{number}").st_size != 4096:
                sys.exit(f"speed.py: {number} has another size")
    return timed(look)


def remove(folder):
    def unlink():
        for number in range(FILES):
            os.unlink(f"{folder}/small/{number}")
        os.rmdir(f"{folder}/small")
    return timed(unlink)


def untar(folder):
    os.mkdir(f"{folder}/tree")
    return timed(lambda: subprocess.run(["tar", "-x", "-f", "tree.tar", "-C", f"{folder}/tree"], check=True))


def remove_tree(folder):
    return timed(lambda: subprocess.run(["rm", "-r", f"{folder}/tree"], check=True))


# In this order: some use what an earlier one left.
WORK = {
    "write 1 MiB": write_sequential,
    "read 1 MiB": read_sequential,
    "random read 4 KiB x 32": lambda folder: fio(folder, "read"),
    "random write 4 KiB x 32": lambda folder: fio(folder, "write"),
    "create, write, close": create,
    "stat": stat_all,
    "remove": remove,
    "untar": untar,
    "rm -r": remove_tree,
}


# What must have run before; or after, so that it can run once more.
NEEDS = {"read 1 MiB": "write 1 MiB", "random read 4 KiB x 32": "write 1 MiB", "random write 4 KiB x 32": "write 1 MiB",
         "create, write, close": "remove", "stat": "create, write, close", "remove": "create, write, close",
         "untar": "rm -r", "rm -r": "untar"}


def chosen(words):
    """The work whose name has one of the words, all without words, and what it needs."""
    names = {work for work in WORK if not words or any(word in work for word in words)}
    if not names:
        sys.exit(f"speed.py: no work is called {' or '.join(words)}; there are: {'; '.join(WORK)}")
    while more := {NEEDS[work] for work in names if work in NEEDS} - names:
        names |= more
    return [work for work in WORK if work in names]


def calls_of(folder):
    """How often the client made each call on the mount, by /proc/self/mountstats."""
    calls, here, listed = {}, False, False
    with open("/proc/self/mountstats", encoding="utf-8") as file:
        for line in file:
            if line.startswith("device "):
                here, listed = f" mounted on {folder} " in line, False
            elif here and line.strip() == "per-op statistics":
                listed = True
            elif listed and ":" in line:
                name, counts = line.split(":")
                if int(counts.split()[0]):
                    calls[name.strip()] = int(counts.split()[0])
    return calls


def run(work, server):
    mounted = f"{os.path.abspath(server)}/mounted"
    subprocess.run([f"{server}/mount"], check=True)
    try:
        seconds = WORK[work](mounted)
        calls = calls_of(mounted)
    finally:
        subprocess.run(["umount", mounted], check=True)
    return seconds, calls


def measure(servers, pairs, words):
    ours, theirs = servers
    results = {work: {"ratios": [], "seconds": {name: [] for name in servers}, "calls": {}, "spent": {name: [] for name in servers}}
               for work in chosen(words)}
    for pair in range(pairs):
        for work, result in results.items():
            took = {}
            for server in (ours, theirs) if pair % 2 == 0 else (theirs, ours):
                took[server], calls = run(work, server)
                result["seconds"][server].append(round(took[server], 6))
                result["spent"][server].append({who: round(time, 1) for who, time in took_by.items()})
                result["calls"].setdefault(server, calls)
            result["ratios"].append(round(took[theirs] / took[ours], 3))
            print(f"  pair {pair + 1}: {work}: {result['ratios'][-1]:.2f}", flush=True)
    return results


def main():
    out, *servers = sys.argv[1:4]
    pairs = int(sys.argv[4])
    results = measure(servers, pairs, sys.argv[5:])
    print(f"| work | {servers[0]} of {servers[1]} | pairs | calls |\n|---|---|---|---|")
    for work, result in results.items():
        result["median"] = round(statistics.median(result["ratios"]), 3)
        low, high = min(result["ratios"]), max(result["ratios"])
        calls = " and ".join(str(sum(result["calls"][server].values())) for server in servers)
        print(f"| {work} | {result['median']:.2f} x | {low:.2f} to {high:.2f} | {calls} |")
    print("\n| work | by | " + " | ".join(servers) + " |\n|---|---|" + "---|" * len(servers))
    for work, result in results.items():
        for who in ("client", "verbenad", "others", "the kernel", "idle"):
            told = [f"{statistics.median(each.get(who, 0) for each in result['spent'][server]):.0f}" for server in servers]
            print(f"| {work} | {who} | {' | '.join(told)} |")
    line = json.dumps({"mebibytes": MEBIBYTES, "files": FILES, "pairs": pairs, "kernel": os.uname().release, "work": results})
    print(f"speed: {line}")
    with open(out, "w", encoding="utf-8") as file:
        file.write(line + "\n")


main()
