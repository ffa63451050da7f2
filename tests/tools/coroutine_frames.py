#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coroutine_frames.py BUILD: looks for coroutines that g++ 12 laid out wrongly, in an -O0 build.

A frame begins with the address of its resume function; std::coroutine_handle relies on that. For
`while (...) if (a || !co_await b) co_return ...;` g++ 12.2 was seen to leave a gap of 8 bytes in front, and
the first resumption reads a wrong state. The layout is the front end's, so -O0 shows it for every level.
The cure: name the awaited value first, `const bool x = co_await b;`."""
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
ACTOR = re.compile(r"\sleaq\s.*\.actor>$")
STORE = re.compile(r"\smovq\s+%r\w+, (0x[0-9a-f]+)?\(%rax\)$")


def frames(objects):
    text = subprocess.run(["llvm-objdump-19", "-d", "--no-show-raw-insn", *objects], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.splitlines()
    function = ""
    for line, following in zip(text, text[1:]):
        begins = FUNCTION.match(line)
        if begins:
            function = begins.group(1)
        elif ACTOR.search(line) and not function.endswith((".actor", ".destroy")):
            store = STORE.search(following)
            if store:
                yield function, store.group(1)


def main():
    good = bad = 0
    objects = sorted(str(path) for path in pathlib.Path(sys.argv[1]).rglob("*.o")
                     if "tests" not in path.parts)
    for function, gap in frames(objects):
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
