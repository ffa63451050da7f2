# SPDX-License-Identifier: Apache-2.0
"""What scenarios copy: made here and not in the guest, where starting a process costs tens of milliseconds."""
import os
import pathlib
import random
import shutil

from .common import cache_folder, cache_lock, recipe, read_or_none

# Around the borders of pages, of inline messages, of chunk segments and of the XDR padding.
SIZES = (1, 3, 511, 1024, 3999, 4095, 4096, 4097, 8193, 32767, 65536, 65537)
# Files of the tree, and MiB of the large file.
EXTENT = {"smoke": (60, 32), "ci": (300, 32), "full": (2000, 256)}


def prepare(size):
    """A tree of small files, links, an empty file, long names and modes, and one large file."""
    folder = cache_folder() / "data" / size
    folder.parent.mkdir(exist_ok=True)
    made_from = recipe(pathlib.Path(__file__).read_text(encoding="utf-8"))
    with cache_lock():
        if read_or_none(folder.with_suffix(".recipe")) != made_from:
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, random.Random(1), *EXTENT[size])
            folder.with_suffix(".recipe").write_text(made_from, encoding="ascii")
    return folder


def make(folder, numbers, files, mebibytes):
    tree = folder / "tree"
    for count in range(files):
        size = SIZES[count % len(SIZES)]
        path = tree / f"folder {count // 25}" / f"{count}-of-{size}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbers.randbytes(size))
        path.chmod((0o644, 0o600, 0o444, 0o755)[count % 4])
    (tree / "empty").touch()
    (tree / ("n" * 255)).write_bytes(b"a name of 255 octets")
    (tree / "grüße").mkdir(mode=0o2775)
    (tree / "link").symlink_to("folder 0/0-of-1")
    (tree / "dangling").symlink_to("no/" * 300 + "where")
    (folder / "large").write_bytes(numbers.randbytes(mebibytes << 20))
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
