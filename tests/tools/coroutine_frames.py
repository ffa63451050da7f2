#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coroutine_frames.py BUILD: looks for coroutines that g++ 12 laid out wrongly, in an -O0 build.

A frame begins with the address of its resume function; std::coroutine_handle relies on that. For
`while (...) if (a || !co_await b) co_return ...;` g++ 12.2 was seen to leave a gap of 8 bytes in front, and
the first resumption reads a wrong state; so does `if (!co_await b) co_return error(...); co_return ...;`, though seldom. The layout is the front end's, so -O0 shows it for every level.
The cure: name the awaited value first, `const bool x = co_await b;`. Authors have the same as verbena-check-coroutines."""
import importlib.machinery
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
TOOL = pathlib.Path(__file__).resolve().parents[2] / "core/tools/verbena-check-coroutines"
tool = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("tool", None))
importlib.machinery.SourceFileLoader("tool", str(TOOL)).exec_module(tool)


def main():
    good = bad = 0
    objects = sorted(str(path) for path in pathlib.Path(sys.argv[1]).rglob("*.o")
                     if "tests" not in path.parts)
    for function, gap in tool.frames(*objects):
        if gap:
            bad += 1
            print(f"{function}: the frame begins with a gap of {gap} bytes")
        else:
            good += 1
    if good + bad == 0:
        print("no coroutine found")
        bad = 1
    print(f"{good} passed, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
