# SPDX-License-Identifier: Apache-2.0
"""What scenarios copy: made here and not in the guest, where starting a process costs tens of milliseconds."""
import dataclasses
import hashlib
import os
import pathlib
import random
import shutil

from .common import cache_folder, cache_lock, recipe, read_or_none

# Around the borders of pages, of inline messages, of chunk segments and of the XDR padding.
SIZES = (1, 3, 511, 1024, 3999, 4095, 4096, 4097, 8193, 32767, 65536, 65537)


@dataclasses.dataclass(frozen=True)
class Extent:
    files: int  # of the tree
    mebibytes: int  # of the large file
    names: int  # of a large folder
    storm: int  # files that are created, renamed and removed
    repository: int  # folders of the tree, 25 files each, that git gets
    patience: int = 1  # times the limits of the scenarios

    def variables(self):
        """For scenarios."""
        return {"LAB_MIB": self.mebibytes, "LAB_NAMES": self.names, "LAB_STORM": self.storm,
                "LAB_REPOSITORY": self.repository}


# What git does costs most under emulation, so that CI gives it a part of the tree.
EXTENT = {"smoke": Extent(60, 16, 200, 20, 1), "ci": Extent(300, 32, 600, 60, 3),
          "full": Extent(2000, 256, 20000, 1000, 80, patience=10)}


def prepare(size):
    """A tree of small files, links, an empty file, long names and modes, and one large file."""
    folder = cache_folder() / "data" / size
    folder.parent.mkdir(exist_ok=True)
    made_from = recipe(pathlib.Path(__file__).read_text(encoding="utf-8"))
    with cache_lock():
        if read_or_none(folder.with_suffix(".recipe")) != made_from:
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, random.Random(1), EXTENT[size].files, EXTENT[size].mebibytes)
            sum_of_large = hashlib.sha256((folder / "large").read_bytes()).hexdigest()
            folder.with_suffix(".sha256").write_text(sum_of_large, encoding="ascii")
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
    with open(folder / "large", "wb") as large:
        for _ in range(mebibytes):  # at once would be more bits than Python counts in
            large.write(numbers.randbytes(1 << 20))
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
