#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_targets.py BUILD SUITE: prints the targets of ninja that the tests of this Meson suite need."""
import json
import os
import sys


def targets(build, suite):
    """The files of these targets, as ninja names them. ValueError where no test is of the suite."""
    known = {}
    for what in ("tests", "targets"):
        with open(os.path.join(build, "meson-info", f"intro-{what}.json"), encoding="utf-8") as file:
            known[what] = json.load(file)
    # With its project in front: `verbena:unit`.
    asked = [test for test in known["tests"] if suite in {name.rpartition(":")[2] for name in test["suite"]}]
    if not asked:
        raise ValueError(f"{build} has no test of the suite {suite}")
    files = {target["id"]: target["filename"] for target in known["targets"]}
    needed = {file for test in asked for target in test["depends"] for file in files[target]}
    return sorted(os.path.relpath(file, os.path.abspath(build)) for file in needed)


if __name__ == "__main__":
    try:
        print(*targets(*sys.argv[1:]), sep="\n")
    except (TypeError, ValueError) as wrong:
        sys.exit(f"test_targets.py BUILD SUITE: {wrong}")
