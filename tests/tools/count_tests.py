#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a `meson test` run did: `count_tests.py LOGFILE.json [SUITE]` prints "PASSED FAILED" first and
then one line for each test that failed, of all suites or of one, with the lines of its output that say where
beneath it: whoever reads this may not have the log.

A Boost.Test executable counts with its cases (BOOST_TEST_REPORT_LEVEL=short makes it print them),
anything else counts as one. A test that was skipped, ran into its time limit, died, or says that it
ran no case has failed: the suite promised to run it. So has a case that checked nothing
(BOOST_TEST_LOG_LEVEL=message makes Boost.Test say so) and a Python test with skipped cases in it.
"""
import json
import re
import sys

CASES = re.compile(r"^\s*(\d+) test cases? out of (\d+) (passed|failed|skipped|aborted)", re.M)
NOTHING_CHECKED = re.compile(r"Test case (.+?) did not check any assertions")
SKIPPED = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.M)

# What Boost.Test, a sanitizer, unittest and Python say first of a failure.
WHERE = re.compile(r"(?:: (?:fatal )?error: in \"|: runtime error: |^==\d+==ERROR: |^WARNING: ThreadSanitizer: |^SUMMARY: "
                   r"|^(?:FAIL|ERROR): |^[\w.]*(?:Error|Exception): )")
SHOWN = 12  # such lines of one test


def count(record):
    """(passed, failed) of one line of meson's log."""
    output = record.get("stdout", "") + record.get("stderr", "")
    ok = record["result"] in ("OK", "EXPECTEDFAIL")
    passed, total, skipped = 0, 0, 0
    for number, of, what in CASES.findall(output):
        total = int(of)
        if what == "passed":
            passed = int(number)
        elif what == "skipped":
            skipped = int(number)
    # A test that is a part of its program runs the suites that it names; the others are other tests' (tests/unit/meson.build).
    if any(word.startswith("--run_test=") for word in record.get("command", [])):
        total -= skipped
    if "Test module" not in output:
        return (1, 0) if ok and not SKIPPED.search(output) else (0, 1)
    if total == 0:
        return 0, 1
    empty = min(len(NOTHING_CHECKED.findall(output)), passed) if ok else 0
    passed -= empty
    failed = total - passed
    return passed, failed if ok else max(failed, 1)


def why(record):
    """What is wrong with a test that Meson calls good."""
    output = record.get("stdout", "") + record.get("stderr", "")
    for case in NOTHING_CHECKED.findall(output):
        yield f"{case} checked nothing"
    for number in SKIPPED.findall(output):
        yield f"{number} skipped"


def where(record):
    """The lines of a failed test's output that tell what failed and where."""
    lines = (record.get("stdout", "") + "\n" + record.get("stderr", "")).splitlines()
    found = [line.strip() for line in lines if WHERE.search(line)]
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return found[:SHOWN] + more


def is_of(suite, record):
    """Meson names a test "PROJECT:SUITE+SUITE / NAME"."""
    return suite in re.split("[:+]", record["name"].split(" / ")[0])[1:]


def main():
    passed = failed = 0
    bad = []
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            record = json.loads(line)
            if len(sys.argv) > 2 and not is_of(sys.argv[2], record):
                continue
            good, wrong = count(record)
            passed += good
            failed += wrong
            if wrong:
                bad.append(", ".join([f"{record['name']}: {record['result']} after {record['duration']:.1f} s",
                                      *why(record)]))
                bad += ("  " + line for line in where(record))
    print(passed, failed)
    for line in bad:
        print(line)


if __name__ == "__main__":
    main()
