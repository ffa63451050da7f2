#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants known bugs, one at a time, and sees whether the tests notice them.

  tests/mutants/run.py [--build FOLDER] [NAME...]     all, or those whose name begins so
  tests/mutants/run.py --changed[=REVISION]           those of sources that differ from REVISION, and those that are new or differ themselves
  tests/mutants/run.py --seconds N [--seed S] ...     as many of those as N seconds are enough for, builds included: first the new ones, then
                                                      some of each source
  tests/mutants/run.py --list                         what there is

Each `tests/mutants/LAYER.toml` holds mutants of that layer:

  [[mutant]]
  name = "..."     one word
  file = "..."     the source that it changes
  old = "..."      a piece of it that stands there once ...
  new = "..."      ... and what takes its place
  breaks = "..."   the promise that is broken then
  test = "..."     the Meson test that must fail: a unit test, a simulation or an integration test
  cases = "..."    its --run_test, or a Python test's classes and methods (`Class.test_method Class2`), so that nothing else can fail

A copy of the sources lies in FOLDER (build-mutants) with a build of its own, whose libraries are not optimised. The run builds again what a
mutant touches, and runs its test. A mutant whose piece is not found once, or that does not compile, is stale and fails. So does one whose
test does not end, and a test that fails without a mutant. Without REVISION, `--changed` compares with the commit where this branch left the
main one, else with the newest tag, else with some commits back. With `--seconds` the rest is drawn by a seed, and the run says how many mutants
it left out and how to draw the same ones again. Needs what a build needs, and Python 3.11. The last line is `N passed, N failed`."""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import catalogue # beside this file
from catalogue import TOP, content_of

SLOW = int(os.environ.get("VERBENA_SLOW", "1")) # times limits: `./check --slow`
BOOST_LIMIT, PYTHON_LIMIT = 20 * SLOW, 120 * SLOW # seconds; a test that has not ended by then hangs
AT_ONCE = 3 # mutants of one source that follow each other where not all can run


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def command_of(test, cases):
    """The command line of a Meson test (of `meson introspect --tests`) for some of its cases."""
    command = list(test["cmd"])
    if len(command) == 1:
        return [*command, "--run_test=" + cases]
    if "--part" in command: # which runs some of all cases
        at = command.index("--part")
        del command[at:at + 2]
    return [*command, *cases.split()]


class Copy:
    """The sources and their build, where mutants are planted."""

    def __init__(self, folder):
        self.source = os.path.join(folder, "source")
        self.build = os.path.join(folder, "build")
        self.log = os.path.join(folder, "log")
        self.tests = {}    # what Meson knows of each
        self.programs = {} # the file of each target

    def refresh(self):
        """Copies what differs, so that only that is built again; and takes away what a run that was stopped left."""
        listed = subprocess.run(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=TOP, check=True,
                                stdout=subprocess.PIPE).stdout.decode().split("\0")
        names = {name for name in listed if name and os.path.isfile(os.path.join(TOP, name))}
        for name in names:
            path = os.path.join(self.source, name)
            content = content_of(os.path.join(TOP, name))
            if content != content_of(path):
                write(path, content)
            os.chmod(path, os.stat(os.path.join(TOP, name)).st_mode & 0o777) # the build runs scripts
        for folder, _, files in os.walk(self.source):
            for file in files:
                path = os.path.join(folder, file)
                if os.path.relpath(path, self.source) not in names:
                    os.unlink(path)

    def run(self, command, limit=None, folder=None, **environment):
        """Its exit status, or None if it had not ended after `limit` seconds; its output goes to the log. Ends all that it started."""
        with open(self.log, "wb") as log, \
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder or self.source,
                                 env={**os.environ, **environment}, start_new_session=True) as process:
            try:
                return process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def log_end(self, lines=15):
        text = (content_of(self.log) or b"").decode(errors="replace").splitlines()
        errors = [line for line in text if "error:" in line]
        return "\n".join("    " + line for line in (errors or text)[-lines:])

    def configure(self):
        ninja = os.path.join(self.build, "build.ninja")
        done = (self.run(["ninja", "-C", self.build, "build.ninja"]) if os.path.exists(ninja) else
                self.run(["meson", "setup", self.build, self.source, "-Doptimization=0", "-Ddebug=false",
                          "-Dexamples=disabled", "-Dbench=disabled"],
                         CXX=os.environ.get("CXX", "clang++-19"), CXX_LD=os.environ.get("CXX_LD", "lld")))
        if done != 0:
            return False
        for what, into, key in (("tests", self.tests, "name"), ("targets", self.programs, "id")):
            for entry in json.loads(content_of(os.path.join(self.build, "meson-info", f"intro-{what}.json"))):
                into[entry[key]] = entry
        # A program whose suites are several tests is one test here, which `cases` asks for some.
        for test in list(self.tests.values()):
            if len(test["cmd"]) == 2 and test["cmd"][1].startswith("--run_test="):
                self.tests[os.path.basename(test["cmd"][0])] = {**test, "cmd": test["cmd"][:1]}
        return True

    def make(self, tests):
        """Builds the programs that these tests need."""
        targets = {target for test in tests for target in self.tests[test]["depends"]}
        files = {os.path.relpath(file, self.build) for target in targets for file in self.programs[target]["filename"]}
        return self.run(["ninja", "-C", self.build, *sorted(files)]) == 0

    def test(self, mutant):
        """The exit status of a mutant's test; None if it hangs."""
        command = command_of(self.tests[mutant["test"]], mutant["cases"])
        return self.run(command, limit=BOOST_LIMIT if len(self.tests[mutant["test"]]["cmd"]) == 1 else PYTHON_LIMIT, folder=self.build)

    def plant(self, mutant):
        """What becomes of it: seen, UNSEEN, HANGS or STALE, and why. Leaves the source as it was."""
        path = os.path.join(self.source, mutant["file"])
        good = content_of(path)
        if why := catalogue.why_stale(mutant, good):
            return "STALE", f"    {why}\n"
        write(path, good.replace(mutant["old"].encode(), mutant["new"].encode()))
        try:
            if not self.make([mutant["test"]]):
                return "STALE", f"    it does not compile:\n{self.log_end()}\n"
            status = self.test(mutant)
            if status is None:
                return "HANGS", f"    its test comes to no end, and tells nobody that this is broken: {mutant['breaks']}\n"
            return ("UNSEEN", f"    breaks: {mutant['breaks']}\n") if status == 0 else ("seen", "")
        finally:
            write(path, good)


def chosen(options):
    """The mutants that the command line asks for, and those of them that are new or differ themselves."""
    mutants = [m for m in catalogue.read() if not options.name or m["name"].startswith(tuple(options.name))]
    if options.changed is None:
        return mutants, []
    revision = options.changed or catalogue.base()
    some = catalogue.concerned(mutants, revision) if revision else None
    if some is None:
        sys.exit(f"git knows no revision {revision or 'to compare with'}: name one, as in --changed=HEAD~5")
    print(f"changed since {revision}: what {len(some)} of {len(mutants)} mutants are about")
    return some, catalogue.differing(some, revision)


def rounds(mutants, first, seed):
    """The mutants in the order in which a run without the time for all plants them, as lists: those of `first`, then of each source
    some, until none is left. Mutants of one source stand together, which compiles it less often."""
    drawn = random.Random(seed)
    new = [m for m in mutants if m in first]
    if new:
        yield new
    left = {}
    for mutant in mutants:
        if mutant not in first:
            left.setdefault(mutant["file"], []).append(mutant)
    for of_file in left.values():
        drawn.shuffle(of_file)
    while left:
        files = list(left)
        drawn.shuffle(files)
        for file in files:
            some, left[file] = left[file][:AT_ONCE], left[file][AT_ONCE:]
            if not left[file]:
                del left[file]
            yield sorted(some, key=lambda m: m["test"])


def planted(copy, rounds_of, count, until=None):
    """Plants what these lists hold, until a time of the monotonic clock if one is given; prints each outcome. How many passed and failed, and how
    many were planted."""
    passed = failed = number = 0
    good = set() # tests and cases that pass without a mutant
    for some in rounds_of:
        if until is not None and time.monotonic() >= until:
            break
        # A test that fails by itself would see everything.
        asked = {(m["test"], m["cases"]): m for m in some if (m["test"], m["cases"]) not in good}
        if asked and not copy.make({test for test, _ in asked}):
            print(f"  they do not build:\n{copy.log_end()}", flush=True)
            return passed, failed + 1, number
        for (test, cases), mutant in asked.items():
            if until is not None and time.monotonic() >= until:
                break
            good.add((test, cases))
            if (status := copy.test(mutant)) != 0:
                print(f"  {test} {cases} {'hangs' if status is None else 'fails'} without a mutant:\n{copy.log_end()}", flush=True)
                failed += 1
        for mutant in some:
            begun = time.monotonic()
            if until is not None and begun >= until:
                break
            number += 1
            outcome, why = copy.plant(mutant)
            print(f"[{number}/{count}] {outcome:6} {mutant['name']} ({mutant['test']}, "
                  f"{time.monotonic() - begun:.0f} s)\n{why}", end="", flush=True)
            passed += outcome == "seen"
            failed += outcome != "seen"
    return passed, failed, number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="FOLDER", default=os.path.join(TOP, "build-mutants"))
    parser.add_argument("--list", action="store_true", help="names the mutants and what they break")
    parser.add_argument("--changed", metavar="REVISION", nargs="?", const="", help="only those that concern what has changed")
    parser.add_argument("--seconds", metavar="N", type=int, help="builds and plants for so long: the new ones first, then drawn ones")
    parser.add_argument("--seed", metavar="S", type=int, help="of the draw")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    mutants, new = chosen(options)
    if options.list:
        for m in mutants:
            print(f"{m['name']}\n  {m['file']}\n  {m['breaks']}\n  {m['test']} {m['cases']}")
        return 0
    if not mutants and options.changed is not None:
        print("1 passed, 0 failed") # the comparison: a suite without any test has failed
        return 0

    begun = time.monotonic()
    copy = Copy(os.path.abspath(options.build))
    copy.refresh()
    tests = {m["test"] for m in mutants}
    print(f"{len(tests)} tests in {options.build}", flush=True)
    if not copy.configure():
        print(f"  Meson refuses:\n{copy.log_end()}\n0 passed, 1 failed")
        return 1
    if unknown := tests - set(copy.tests):
        print(f"  Meson has no test {', '.join(sorted(unknown))} in this build\n0 passed, 1 failed")
        return 1
    if options.seconds is None:
        passed, failed, number = planted(copy, [mutants], len(mutants))
    else:
        seed = random.randrange(1 << 32) if options.seed is None else options.seed
        passed, failed, number = planted(copy, rounds(mutants, new, seed), len(mutants), begun + options.seconds)
        if number < len(mutants):
            print(f"{len(mutants) - number} of {len(mutants)} were left out, since {options.seconds} s were over (--seed {seed} draws the same)")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
