#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A load that takes errors, and remembers what was acknowledged.

acknowledged.py FOLDER LEDGER STOP   writes and syncs files in FOLDER until there is a file STOP; keeps some hundreds, and removes older
                                     ones when they have their data, behind the cache. A line of LEDGER for each that was synced
                                     (its name and SHA-256) and for each error ("error", its name)
acknowledged.py --check LEDGER FOLDER...   every file that was acknowledged and kept has its data in each FOLDER; prints the counts
"""
import collections
import errno
import hashlib
import os
import pathlib
import random
import sys
import time


KEPT = 400 # files, 40 MB


def write(path, data):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.sha256(file.read()).hexdigest()


def compare(path, wanted):
    if digest(path) != wanted:
        sys.exit(f"{path}: other data than were acknowledged")


def load(folder, ledger, stop):
    draw, number, kept = random.Random(1), 0, {}
    with open(ledger, "a", encoding="ascii") as out:
        while not os.path.exists(stop):
            number += 1
            data = draw.randbytes(draw.choice((1, 5000, 70_000, 300_000)))
            try:
                old = pathlib.Path(folder, str(number - KEPT))
                if number - KEPT in kept:
                    compare(old, kept.pop(number - KEPT))
                if number > KEPT: # also one that was begun and had an error
                    old.unlink(missing_ok=True)
                write(os.path.join(folder, str(number)), data)
                kept[number] = hashlib.sha256(data).hexdigest()
                line = f"{number} {kept[number]}"
            except OSError as failed:
                line = f"error {errno.errorcode.get(failed.errno, failed.errno)}"
                time.sleep(0.2)
            print(line, file=out, flush=True)


def check(ledger, folders):
    lines = [line.split() for line in pathlib.Path(ledger).read_text(encoding="ascii").splitlines()]
    errors = collections.Counter(what for name, what in lines if name == "error")
    written = {int(name): what for name, what in lines if name != "error"}
    # Each number has a line. One more may have been begun, and a file removed for it.
    looked_at = {name: what for name, what in written.items() if name > len(lines) + 1 - KEPT}
    for name, what in looked_at.items():
        for folder in folders:
            compare(os.path.join(folder, str(name)), what)
    print(f"{len(written)} files acknowledged, of {len(looked_at)} kept all whole; errors: {dict(errors) or 'none'}")
    if not written:
        sys.exit("nothing was acknowledged")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3:])
    else:
        load(*sys.argv[1:])
