#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same I/O on two servers' block devices in turn; says how fast the first is as a multiple of the second.

  block_speed.py JSON PAIRS NAME=OURS:THEIRS...     OURS and THEIRS are block devices

Each piece of work runs PAIRS times for two seconds on both, the order changing. Printed are a table of medians, and a line of JSON,
which is added to the file of that name too.
"""
import json
import statistics
import subprocess
import sys

WORK = (("randread", "4k", 1), ("randread", "4k", 32), ("randwrite", "4k", 1), ("randwrite", "4k", 32), ("read", "124k", 8),
        ("write", "124k", 8))


def run(device, pattern, size, depth):
    """Operations per second."""
    done = subprocess.run(["fio", "--name=speed", f"--filename={device}", f"--rw={pattern}", f"--bs={size}", f"--iodepth={depth}",
                           "--ioengine=libaio", "--direct=1", "--time_based", "--runtime=2", "--ramp_time=0.3", "--randseed=7",
                           "--thread", "--output-format=json"], stdout=subprocess.PIPE, check=True)
    job = json.loads(done.stdout)["jobs"][0]
    if job["error"]:
        sys.exit(f"block_speed.py: fio: error {job['error']} on {device}")
    return job["write" if "write" in pattern else "read"]["iops"]


def main():
    file, pairs = sys.argv[1], int(sys.argv[2])
    rows = []
    for word in sys.argv[3:]:
        name, _, devices = word.rpartition("=")
        ours, _, theirs = devices.partition(":")
        for pattern, size, depth in WORK:
            samples = []
            for i in range(pairs):
                order = (ours, theirs) if i % 2 == 0 else (theirs, ours)
                got = {device: run(device, pattern, size, depth) for device in order}
                samples.append((got[ours], got[theirs]))
            ratios = [a / b for a, b in samples]
            rows.append({"device": name, "work": f"{pattern} {size} x {depth}", "ours": statistics.median(a for a, _ in samples),
                         "theirs": statistics.median(b for _, b in samples), "ratio": statistics.median(ratios),
                         "least": min(ratios), "most": max(ratios)})
            r = rows[-1]
            print(f"{name:24} {r['work']:18} {r['ours']:9.0f}/s {r['theirs']:9.0f}/s  {r['ratio']:.2f} x "
                  f"({r['least']:.2f} to {r['most']:.2f})", flush=True)
    with open(file, "a", encoding="ascii") as out:
        print(json.dumps(rows), file=out)


main()
