#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants known bugs, one at a time, and sees whether the tests notice them.

  tests/mutants/run.py [--build FOLDER] [NAME...]     all, or those whose name begins so
  tests/mutants/run.py --list

Each `tests/mutants/LAYER.toml` holds mutants of that layer:

  [[mutant]]
  name = "..."     one word
  file = "..."     the source that it changes
  old = "..."      a piece of it that stands there once ...
  new = "..."      ... and what takes its place
  breaks = "..."   the promise that is broken then
  test = "..."     the program that must fail: a unit test or a simulation
  cases = "..."    its --run_test, so that nothing else can fail

A copy of the sources lies in FOLDER (build-mutants) with a build of its own, whose libraries are not optimised. What a
mutant touches is built again there, and its test is run. A mutant whose piece is not found once, or that does not
compile, is stale and fails; so does a test that fails without a mutant. Needs what a build needs, and Python 3.11. The
last line is `N passed, N failed`."""
import argparse
import os
import subprocess
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, "..", ".."))
TEST_LIMIT = 20 # seconds; a test that does not end has failed
FIELDS = {"name", "file", "old", "new", "breaks", "test", "cases"}


def read_mutants():
    mutants = []
    for name in sorted(os.listdir(HERE)):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(HERE, name), "rb") as file:
            for mutant in tomllib.load(file)["mutant"]:
                if set(mutant) != FIELDS:
                    sys.exit(f"{name}: {mutant.get('name')}: has {sorted(mutant)}, and must have {sorted(FIELDS)}")
                mutants.append(mutant)
    names = [m["name"] for m in mutants]
    for name in names:
        if names.count(name) > 1:
            sys.exit(f"two mutants are named {name}")
    # Those of one file follow each other: it is compiled once to mend one and to plant the next.
    return sorted(mutants, key=lambda m: (m["file"], m["test"]))


def content_of(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


class Copy:
    """The sources and their build, where mutants are planted."""

    def __init__(self, folder):
        self.source = os.path.join(folder, "source")
        self.build = os.path.join(folder, "build")
        self.log = os.path.join(folder, "log")

    def refresh(self):
        """Copies what differs, so that only that is built again; and takes away what a run that was stopped left."""
        listed = subprocess.run(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=TOP, check=True,
                                stdout=subprocess.PIPE).stdout.decode().split("\0")
        names = {name for name in listed if name and os.path.isfile(os.path.join(TOP, name))}
        for name in names:
            content = content_of(os.path.join(TOP, name))
            if content != content_of(os.path.join(self.source, name)):
                write(os.path.join(self.source, name), content)
        for folder, _, files in os.walk(self.source):
            for file in files:
                path = os.path.join(folder, file)
                if os.path.relpath(path, self.source) not in names:
                    os.unlink(path)

    def run(self, command, limit=None, **environment):
        """Whether it succeeds; its output goes to the log."""
        with open(self.log, "wb") as log:
            try:
                return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.source,
                                      env={**os.environ, **environment}, timeout=limit, check=False).returncode == 0
            except subprocess.TimeoutExpired:
                return False

    def log_end(self, lines=15):
        text = (content_of(self.log) or b"").decode(errors="replace").splitlines()
        errors = [line for line in text if "error:" in line]
        return "\n".join("    " + line for line in (errors or text)[-lines:])

    def configure(self):
        if os.path.exists(os.path.join(self.build, "build.ninja")):
            return True
        return self.run(["meson", "setup", self.build, self.source, "-Doptimization=0", "-Ddebug=false",
                         "-Dexamples=disabled", "-Dbench=disabled"],
                        CXX=os.environ.get("CXX", "clang++-19"), CXX_LD=os.environ.get("CXX_LD", "lld"))

    @staticmethod
    def target(test):
        return f"tests/{'sim' if test.startswith('sim_') else 'unit'}/{test}"

    def make(self, tests):
        return self.run(["ninja", "-C", self.build, *sorted(self.target(test) for test in tests)])

    def passes(self, mutant):
        return self.run([os.path.join(self.build, self.target(mutant["test"])), "--run_test=" + mutant["cases"]],
                        limit=TEST_LIMIT)

    def plant(self, mutant):
        """What becomes of it: seen, UNSEEN or STALE, and why. Leaves the source as it was."""
        path = os.path.join(self.source, mutant["file"])
        good = content_of(path)
        old = mutant["old"].encode()
        if good is None or good.count(old) != 1:
            times = "is gone" if good is None else f"has the piece {good.count(old)} times"
            return "STALE", f"    {mutant['file']} {times}\n"
        write(path, good.replace(old, mutant["new"].encode()))
        try:
            if not self.make([mutant["test"]]):
                return "STALE", f"    it does not compile:\n{self.log_end()}\n"
            if self.passes(mutant):
                return "UNSEEN", f"    breaks: {mutant['breaks']}\n"
            return "seen", ""
        finally:
            write(path, good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="FOLDER", default=os.path.join(TOP, "build-mutants"))
    parser.add_argument("--list", action="store_true", help="names the mutants and what they break")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    mutants = [m for m in read_mutants() if not options.name or m["name"].startswith(tuple(options.name))]
    if options.list:
        for m in mutants:
            print(f"{m['name']}\n  {m['file']}\n  {m['breaks']}\n  {m['test']} --run_test={m['cases']}")
        return 0
    passed = failed = 0

    copy = Copy(os.path.abspath(options.build))
    copy.refresh()
    print(f"building {len({m['test'] for m in mutants})} tests in {options.build}", flush=True)
    if not copy.configure() or not copy.make({m["test"] for m in mutants}):
        print(f"  they do not build:\n{copy.log_end()}\n0 passed, 1 failed")
        return 1
    # A test that fails by itself would see everything.
    asked = {(m["test"], m["cases"]): m for m in mutants}
    for (test, cases), mutant in asked.items():
        if not copy.passes(mutant):
            print(f"  {test} --run_test={cases} fails without a mutant:\n{copy.log_end()}", flush=True)
            failed += 1
    for number, mutant in enumerate(mutants, 1):
        begun = time.monotonic()
        outcome, why = copy.plant(mutant)
        print(f"[{number}/{len(mutants)}] {outcome:6} {mutant['name']} ({mutant['test']}, "
              f"{time.monotonic() - begun:.0f} s)\n{why}", end="", flush=True)
        passed += outcome == "seen"
        failed += outcome != "seen"
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
