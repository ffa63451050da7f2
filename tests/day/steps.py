# SPDX-License-Identifier: Apache-2.0
"""Steps of which each needs those before it."""
import hashlib
import subprocess
import time

from container import Failed


FAILURES = (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired)


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(map(str, what)))


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(name, of, steps, tell):
    """Runs the steps of `of`, and ends it. After one that fails there are no more: those behind it have failed, too, and `tell` says what a
    reader wants to see."""
    done = 0
    try:
        for step in steps:
            begun = time.monotonic()
            try:
                step(of)
            except FAILURES as error:
                print(f"{name}: {step.__name__}: FAILED after {time.monotonic() - begun:.0f} s: {error}", flush=True)
                try:
                    print("\n".join(line[:300] for line in tell(of).splitlines()[-60:]), flush=True)
                except FAILURES as told:
                    print(told, flush=True)
                break
            done += 1
            print(f"{name}: {step.__name__}: {time.monotonic() - begun:.0f} s: {step.__doc__}", flush=True)
    finally:
        try:
            of.end()
        except FAILURES as error:
            print(f"{name}: the end: FAILED: {error}", flush=True)
            done = min(done, len(steps) - 1)
    print(f"{done} passed, {len(steps) - done} failed", flush=True)
    return 0 if done == len(steps) else 1
