#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""must_not_compile_test.py SOURCE INCLUDES COMPILER...: mistakes that the compiler has to find.

The sources in must_not_compile/ are read twice. As they stand, each line that ends with `// says: TEXT` gets an error with that
text, and no other line gets one. With MENDED defined there is none: what is wrong with them is the mistake. Only mistakes whose
message is ours belong here, and they share a source: nearly all that a compiler does is to read headers."""
import concurrent.futures
import os
import re
import subprocess
import sys

# GNU's mode as embedders may choose it: the project's own build has the strict one.
FLAGS = ["-std=gnu++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Werror=unused-result"]
MARK = re.compile(r"// says: (.+?)\s*$")
MESSAGE = re.compile(r"^\S.*?:\d+:\d+: (?:fatal )?(error|warning|note): ")
# What g++ says before an error: where it comes from.
CONTEXT = re.compile(r"^\S.*?(?:: In |:\d+:\d+:\s+(?:required from|recursively required from|in 'constexpr' expansion of))|^\s*from |^In file included from ")


def marks(source):
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")
    return {number: mark[1] for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}


def errors(output):
    """Each error with the lines that belong to it."""
    found, before = [], []
    for line in output.split("\n"):
        message = MESSAGE.match(line)
        if message and message[1] != "note":
            found.append(before + [line])
            before = []
        elif CONTEXT.match(line):
            before.append(line)
        elif found and line:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def compiled(command, source, mended):
    run = subprocess.run(command + FLAGS + (["-DMENDED"] if mended else []) + [source], text=True, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"LC_ALL": "C"})
    return run.returncode, run.stdout


def look_at(command, source):
    """What is not as it must be."""
    name = os.path.basename(source)
    expected = marks(source)
    status, output = compiled(command, source, mended=False)
    if not expected:
        yield f"{name}: expects nothing"
    if status == 0:
        yield f"{name}: compiles"
    unexpected = []
    seen = set()
    for error in errors(output):
        of = [n for n, text in expected.items() if text in error and re.search(rf"{re.escape(name)}:{n}:", error)]
        seen.update(of)
        if not of:
            unexpected.append(error)
    for number in sorted(set(expected) - seen):
        yield f"{name}:{number}: the compiler does not say: {expected[number]}"
    for error in unexpected:
        yield f"{name}: an error that no mark expects:\n{error}"
    status, output = compiled(command, source, mended=True)
    if status != 0 or output:
        yield f"{name}: the mended program does not compile:\n{output}"


def main():
    folder, includes, *compiler = sys.argv[1:]
    command = compiler + [f"-I{path}" for path in includes.split(":")]
    if "clang" in os.path.basename(compiler[-1]):
        command.append("-ferror-limit=0")
    sources = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".cpp"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda source: list(look_at(command, source)), sources))
    wrong = [line for outcome in outcomes for line in outcome]
    print("\n".join(wrong))
    print(f"{len(sources) - sum(map(bool, outcomes))} passed, {sum(map(bool, outcomes))} failed")
    sys.exit(bool(wrong) or not sources)


if __name__ == "__main__":
    main()
