#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A load that takes errors, and remembers what was acknowledged.

acknowledged.py FOLDER LEDGER STOP   writes and syncs files in FOLDER until there is a file STOP, and removes all but the last
                                     hundreds. A line of LEDGER for each that was synced (its name and SHA-256) and for each
                                     error ("error", its name)
acknowledged.py --check LEDGER FOLDER...   of the last hundreds every file acknowledged has its data in each FOLDER; prints the counts
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


def load(folder, ledger, stop):
    draw, number = random.Random(1), 0
    with open(ledger, "a", encoding="ascii") as out:
        while not os.path.exists(stop):
            number += 1
            data = draw.randbytes(draw.choice((1, 5000, 70_000, 300_000)))
            try:
                if number > KEPT:
                    pathlib.Path(folder, str(number - KEPT)).unlink(missing_ok=True)
                write(os.path.join(folder, str(number)), data)
                line = f"{number} {hashlib.sha256(data).hexdigest()}"
            except OSError as failed:
                line = f"error {errno.errorcode.get(failed.errno, failed.errno)}"
                time.sleep(0.2)
            print(line, file=out, flush=True)


def check(ledger, folders):
    lines = [line.split() for line in pathlib.Path(ledger).read_text(encoding="ascii").splitlines()]
    errors = collections.Counter(what for name, what in lines if name == "error")
    written = {int(name): what for name, what in lines if name != "error"}
    # One more may have been begun, and one removed for it.
    last = max(written, default=0)
    looked_at = {name: what for name, what in written.items() if name > last + 1 - KEPT}
    for name, what in looked_at.items():
        for folder in folders:
            if hashlib.sha256(pathlib.Path(folder, str(name)).read_bytes()).hexdigest() != what:
                sys.exit(f"{folder}/{name}: other data than were acknowledged")
    print(f"{len(written)} files acknowledged, {len(looked_at)} looked at and whole; errors: {dict(errors) or 'none'}")
    if not written:
        sys.exit("nothing was acknowledged")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3:])
    else:
        load(*sys.argv[1:])
