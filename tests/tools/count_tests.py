#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a `meson test` run did: `count_tests.py LOGFILE.json` prints "PASSED FAILED" first and
then one line for each test that failed.

A Boost.Test executable counts with its cases (BOOST_TEST_REPORT_LEVEL=short makes it print them),
anything else counts as one. A test that was skipped, ran into its time limit, died, or says that it
ran no case has failed: the suite promised to run it.
"""
import json
import re
import sys

CASES = re.compile(r"^\s*(\d+) test cases? out of (\d+) (passed|failed|skipped|aborted)", re.M)


def count(record):
    """(passed, failed) of one line of meson's log."""
    output = record.get("stdout", "") + record.get("stderr", "")
    ok = record["result"] in ("OK", "EXPECTEDFAIL")
    passed, total = 0, 0
    for number, of, what in CASES.findall(output):
        total = int(of)
        if what == "passed":
            passed = int(number)
    if "Test module" not in output:
        return (1, 0) if ok else (0, 1)
    if total == 0:
        return 0, 1
    failed = total - passed
    return passed, failed if ok else max(failed, 1)


def main():
    passed = failed = 0
    bad = []
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            record = json.loads(line)
            good, wrong = count(record)
            passed += good
            failed += wrong
            if wrong:
                bad.append(f"{record['name']}: {record['result']} after {record['duration']:.1f} s")
    print(passed, failed)
    for line in bad:
        print(line)


main()
