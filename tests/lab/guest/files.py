#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work on files of a mount that no single command does; each kind checks what it did and ends with 1 if it differs.

  files.py storm FOLDER COUNT            creates, renames, links, changes and removes COUNT files, folders and links
  files.py names FOLDER COUNT            creates COUNT names
  files.py list FOLDER COUNT             lists them, twice, with attributes, and removes them
  files.py ranges FILE KIB COUNT [direct]  COUNT writes, reads and truncations at odd offsets, of odd sizes
  files.py processes FOLDER N COUNT      N processes that storm, and N with ranges, each with its own
  files.py writers FOLDER N COUNT        only those with ranges: each of their calls may be repeated
"""
import os
import random
import stat
import subprocess
import sys
import zlib


def expect(condition, what):
    if not condition:
        sys.exit(f"files.py: {what}")


def write_file(path, data, flags=os.O_CREAT | os.O_EXCL):
    with open(os.open(path, os.O_WRONLY | flags, 0o640), "wb", buffering=0) as file:
        file.write(data)


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def storm(folder, count):
    numbers = random.Random(zlib.crc32(folder.encode()))
    os.mkdir(folder)
    for i in range(count):
        path = f"{folder}/{i}"
        data = numbers.randbytes(numbers.choice((0, 1, 100, 5000)))
        write_file(path, data)
        # Every second name exists already when something is renamed to it.
        target = f"{folder}/renamed {i}"
        if i % 2:
            write_file(target, b"replaced")
        os.rename(path, target)
        expect(not os.path.lexists(path), f"{path} is there after it was renamed")
        os.link(target, path)
        expect(os.stat(path).st_nlink == 2, f"{path} has not two names")
        os.chmod(path, 0o444)
        os.utime(path, (1_600_000_000 + i, 1_500_000_000 + i))
        now = os.stat(target)
        expect((stat.S_IMODE(now.st_mode), now.st_mtime, now.st_size) == (0o444, 1_500_000_000 + i, len(data)),
               f"{target} has other attributes: {now}")
        os.unlink(path)
        expect(read_file(target) == data, f"{target} has other data")
        os.symlink("x" * (i % 1000 + 1), path)
        expect(os.readlink(path) == "x" * (i % 1000 + 1), f"{path} leads elsewhere")
        os.mkdir(f"{folder}/folder {i}")
    expect(len(os.listdir(folder)) == 3 * count, f"{folder} holds {len(os.listdir(folder))} names, not {3 * count}")
    for i in range(count):
        os.unlink(f"{folder}/renamed {i}")
        os.unlink(f"{folder}/{i}")
        os.rmdir(f"{folder}/folder {i}")
    expect(os.listdir(folder) == [], f"{folder} is not empty")
    os.rmdir(folder)


def name_of(number):
    # Of many lengths, so that pages of a listing end everywhere.
    return f"{number:06}" + "n" * (number % 97)


def names(folder, count):
    os.mkdir(folder)
    for i in range(count):
        os.close(os.open(f"{folder}/{name_of(i)}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def list_names(folder, count):
    wanted = [name_of(i) for i in range(count)]
    expect(sorted(os.listdir(folder)) == wanted, f"{folder} lists other names than were created")
    with os.scandir(folder) as entries:
        seen = sorted((entry.name, entry.inode(), entry.stat().st_ino) for entry in entries)
    expect([name for name, _, _ in seen] == wanted, f"{folder} lists other names the second time")
    expect(all(listed == asked for _, listed, asked in seen), "an inode number differs from the listed one")
    for name in wanted:
        os.unlink(f"{folder}/{name}")
    os.rmdir(folder)


def difference(got, wanted):
    if got == wanted:
        return "all is right"
    if len(got) != len(wanted):
        return f"{len(got)} of {len(wanted)} came"
    wrong = [i for i, (a, b) in enumerate(zip(got, wanted)) if a != b]
    zeros = sum(got[i] == 0 for i in wrong)
    return f"{len(wrong)} from {wrong[0]} to {wrong[-1]} are wrong, {zeros} of them zero"


def ranges(path, kibibytes, count, direct=""):
    """What the file must hold is kept here; now and then it is looked at behind the cache."""
    numbers = random.Random(zlib.crc32(path.encode()))
    limit = kibibytes * 1024
    model = bytearray()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | (os.O_DIRECT if direct else 0), 0o600)
    for step in range(count):
        # Sizes spread over the orders of magnitude; borders of pages and what is one beside them come often.
        size = min(int(2 ** numbers.uniform(0, limit.bit_length())), limit)
        offset = numbers.randrange(limit - size + 1)
        if numbers.random() < 0.3:
            offset = max(0, offset // 4096 * 4096 + numbers.choice((-1, 0, 1)))
        kind = numbers.random()
        if kind < 0.5:
            data = numbers.randbytes(size)
            expect(os.pwrite(file, data, offset) == size, f"a short write at {offset}")
            model.extend(bytes(max(0, offset - len(model))))
            model[offset:offset + size] = data
        elif kind < 0.55:
            os.ftruncate(file, offset)
            model[offset:] = bytes(max(0, offset - len(model)))
        else:
            wanted = model[offset:offset + size]
            got = os.pread(file, size, offset)
            if got != wanted:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                behind = os.pread(file, size, offset)
                expect(False, f"step {step}: {size} octets at {offset} are others than were written: {difference(got, wanted)}; "
                       f"behind the cache {difference(behind, wanted)}; the file has {os.fstat(file).st_size} of {len(model)}")
        if step % 16 == 15:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    got = read_file(path)
    expect(got == model, f"{path} holds other data than was written: {difference(got, model)}; "
           f"the second time {difference(read_file(path), model)}")
    try:
        os.unlink(path)
    except FileNotFoundError:
        # A REMOVE done by a server that could not answer any more is repeated to the next one, as NFS version 3 has it.
        expect(not os.path.exists(path), f"{path} is there, and could not be removed")


def processes(folder, number, count, storms=True):
    """Others beside this one, as separate programs: they share nothing but the mount."""
    running = []
    for i in range(number):
        kinds = [["storm", f"{folder}/storm {i}", str(count)]] if storms else []
        for words in (*kinds, ["ranges", f"{folder}/ranges {i}", "512", str(count * 2)]):
            running.append(subprocess.Popen([sys.executable, __file__, *words]))
    statuses = [process.wait() for process in running]
    expect(not any(statuses), f"statuses of the processes: {statuses}")


def writers(folder, number, count):
    processes(folder, number, count, storms=False)


def main():
    kinds = {"storm": storm, "names": names, "list": list_names, "ranges": ranges, "processes": processes,
             "writers": writers}
    if len(sys.argv) < 4 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](sys.argv[2], *(int(word) if word.isdigit() else word for word in sys.argv[3:]))


if __name__ == "__main__":
    main()
