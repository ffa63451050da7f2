#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`files.py`, but that a file is committed before it is truncated. A kernel's client that finds another write verifier when it truncates
a file sends the page where it ends once more, with the length that it had before (docs/internals/lab.md): beside a server that is
killed `files.py` would find files that are longer than they were made."""
import os

import files

truncate = os.ftruncate


def truncate_committed(file, size):
    os.fsync(file)
    truncate(file, size)


os.ftruncate = truncate_committed
files.__file__ = __file__ # what it starts for its processes
files.main()
