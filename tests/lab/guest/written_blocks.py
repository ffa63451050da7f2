#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes blocks of a device whose server comes and goes, and reads them back at the end.

  written_blocks.py DEVICE ROUNDS FOLDER

A block that a write was acknowledged of has those bytes, or those of a later write that failed. In each round FOLDER/N.writes says that
writes succeed, FOLDER/N.killed by somebody else that the server is gone, and FOLDER/N.failed that a write failed since. Then a write
must succeed again, without anything done to the device.
"""
import mmap
import os
import pathlib
import random
import sys
import time

BLOCK = 4096
BLOCKS = 512
PATIENCE = 90


class Writer:
    def __init__(self, device):
        self.device = os.open(device, os.O_RDWR | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, BLOCK)
        self.draw = random.Random(7)
        self.may_be = {}  # block: numbers of the writes that it may have, the acknowledged one first
        self.number = self.acknowledged = self.failed = 0

    def fill(self, number):
        self.buffer[:] = number.to_bytes(8, "big") * (BLOCK // 8)

    def write(self):
        """True if a write of a block that was drawn succeeded."""
        block = self.draw.randrange(BLOCKS)
        self.number += 1
        self.fill(self.number)
        try:
            if os.pwrite(self.device, self.buffer, block * BLOCK) != BLOCK:
                raise OSError("a short write")
        except OSError:
            self.may_be.setdefault(block, [0]).append(self.number)
            self.failed += 1
            return False
        self.may_be[block] = [self.number]
        self.acknowledged += 1
        return True

    def check(self):
        for block, numbers in sorted(self.may_be.items()):
            if os.preadv(self.device, [self.buffer], block * BLOCK) != BLOCK:
                sys.exit(f"block {block}: a short read")
            found = {bytes(self.buffer[i:i + 8]) for i in range(0, BLOCK, 8)}
            number = int.from_bytes(found.pop(), "big")
            if found or number not in numbers:
                sys.exit(f"block {block} has write {number}, but was to have one of {numbers}")


def until(what, done):
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            sys.exit(f"waited {PATIENCE} s for {what}")


def main():
    device, rounds, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(device)

    def again():
        if writer.write():
            return True
        time.sleep(0.05)
        return False

    for n in range(1, rounds + 1):
        until("a write that succeeds", again)
        for _ in range(100):
            writer.write()
        (folder / f"{n}.writes").touch()
        # Writes go on while the server is killed.
        until("the server's end", lambda n=n: [writer.write(), (folder / f"{n}.killed").exists()][1])
        until("a write that fails", lambda: not writer.write())
        (folder / f"{n}.failed").touch()
    until("a write that succeeds", again)
    writer.check()
    if not writer.failed:
        sys.exit("no write failed")
    print(f"{writer.acknowledged} writes acknowledged, {writer.failed} failed; {len(writer.may_be)} blocks are as they must be")


main()
