#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tutorial.py files FOLDER | run FOLDER: what docs/howto/tutorial.md shows is what works.

files   writes the files that the page shows, those of blocks with title="NAME", into FOLDER
run     runs the commands of its `console` blocks there, one after the other, and compares what they print. A line `...` stands for any
        number of lines. A command that ends in & goes on while its block and those below run, until all are done, and is waited for up to
        the last line that the page shows of it; at the end it must have ended by itself, with status 0
"""
import os
import pathlib
import re
import subprocess
import sys
import threading

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/howto/tutorial.md"
LIMIT = 300 * int(os.environ.get("VERBENA_SLOW", "1"))


def blocks(page):
    """(language, title or "", text) of each fenced block."""
    for language, title, text in re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', page, re.M | re.S):
        yield language, title, text


def steps(text):
    """(command, lines that it prints) of a console block."""
    made = []
    for line in text.splitlines():
        if line.startswith("$ "):
            made.append((line[2:], []))
        else:
            made[-1][1].append(line)
    return made


def fits(shown, printed):
    """Whether the lines printed are those shown."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(fits(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and shown[0].rstrip() == printed[0].rstrip() and fits(shown[1:], printed[1:])


def fail(command, shown, printed):
    sys.exit("\n".join([f"$ {command}", "the page shows:", *shown, "but it prints:", *printed]))


def begin(command, shown, folder):
    """Runs a command that goes on, when it has printed the last line that is shown."""
    process = subprocess.Popen(["bash", "-c", "exec env " + command.rstrip("& ")], cwd=folder, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    timer = threading.Timer(LIMIT, process.kill)
    timer.start()
    printed = []
    for line in process.stdout:
        printed.append(line.rstrip("\n"))
        if printed[-1] == shown[-1]:
            break
    if not fits(shown, printed):
        process.kill()
        timer.cancel()
        fail(command, shown, printed)
    threading.Thread(target=process.stdout.read, daemon=True).start() # so that it never waits for a reader
    return command, process, timer


def run(page, folder, beside):
    """Runs the commands of the console blocks, and adds those that go on to `beside`. Returns how many there were."""
    ran = 0
    for language, _, text in page:
        if language != "console":
            continue
        for command, shown in steps(text):
            print(f"$ {command}", flush=True)
            ran += 1
            if command.endswith("&"):
                beside.append(begin(command, shown, folder))
                continue
            done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
            printed = done.stdout.splitlines()
            # Only what the page shows to fail may fail: it says so in a line that begins with the program's name.
            if not fits(shown, printed) or done.returncode != (1 if shown and shown[-1].startswith("votes: ") else 0):
                fail(command, shown, [*printed, f"status {done.returncode}"])
    return ran


def main():
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    page = list(blocks(PAGE.read_text(encoding="utf-8")))
    if what == "files":
        files = {title: text for _, title, text in page if title}
        if len(files) < 8:
            sys.exit(f"{PAGE}: only {len(files)} files")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return
    beside = []
    try:
        ran = run(page, folder, beside)
        for command, process, _ in beside:
            if (status := process.wait()) != 0:
                sys.exit(f"{command}: status {status}")
    finally:
        for _, process, timer in beside:
            timer.cancel()
            process.kill()
    if ran < 12 or not beside:
        sys.exit(f"{PAGE}: only {ran} commands")
    print(f"{ran} commands")


if __name__ == "__main__":
    main()
