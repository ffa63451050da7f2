#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That a test which checked nothing does not count as passed."""
import unittest

import count_tests

REPORT = "\nTest module \"m\" has passed with:\n  3 test cases out of 3 passed\n  9 assertions out of 9 passed\n"
EMPTY = "Test case suite/second did not check any assertions\n"


def record(result="OK", stdout="", stderr=""):
    return {"name": "t", "result": result, "duration": 0.1, "stdout": stdout, "stderr": stderr}


class Counts(unittest.TestCase):
    def test_cases_count_when_they_checked_something(self):
        self.assertEqual(count_tests.count(record(stderr=REPORT)), (3, 0))
        self.assertEqual(count_tests.count(record(stdout=EMPTY, stderr=REPORT)), (2, 1))
        self.assertEqual(list(count_tests.why(record(stdout=EMPTY))), ["suite/second checked nothing"])

    def test_failures_stay_failures(self):
        failed = "Test module \"m\" has failed with:\n  2 test cases out of 3 passed\n  1 test case out of 3 failed\n"
        self.assertEqual(count_tests.count(record("FAIL", stderr=failed)), (2, 1))
        self.assertEqual(count_tests.count(record("FAIL", EMPTY, failed)), (2, 1))
        self.assertEqual(count_tests.count(record("TIMEOUT")), (0, 1))
        self.assertEqual(count_tests.count(record("SKIP")), (0, 1))

    def test_a_failure_says_where(self):
        case = '../tests/a.cpp(7): error: in "suite/second": check a == b has failed [1 != 2]'
        self.assertEqual(count_tests.where(record("FAIL", "all is well\n", "before\n" + case + "\nafter\n")), [case])
        for line in ("a.cpp:3:4: runtime error: signed integer overflow", "==12==ERROR: AddressSanitizer: heap-use-after-free",
                     "FAIL: test_reads (mounts.Mounts)", "AssertionError: 1 != 2", "subprocess.CalledProcessError: no",
                     '../tests/a.cpp(7): fatal error: in "suite/second": critical check a has failed'):
            self.assertEqual(count_tests.where(record("FAIL", line)), [line])
        many = count_tests.where(record("FAIL", "\n".join([case] * 20)))
        self.assertEqual(many, [case] * 12 + ["and 8 more"])

    def test_skipped_python_cases_fail_their_file(self):
        self.assertEqual(count_tests.count(record(stderr="Ran 4 tests in 1.000s\n\nOK\n")), (1, 0))
        self.assertEqual(count_tests.count(record(stderr="Ran 4 tests in 1.000s\n\nOK (skipped=1)\n")), (0, 1))
        self.assertEqual(count_tests.count(record("FAIL", stderr="FAILED (failures=1, skipped=2)\n")), (0, 1))

    def test_a_part_of_a_program_counts_what_it_names(self):
        part = "\nTest module \"m\" has passed with:\n  2 test cases out of 9 passed\n  7 test cases out of 9 skipped\n"
        self.assertEqual(count_tests.count({**record(stderr=part), "command": ["m", "--run_test=a,b"]}), (2, 0))
        self.assertEqual(count_tests.count({**record(stderr=part), "command": ["m"]}), (2, 7))

    def test_one_suite_of_several(self):
        for suite, name, of in (("unit", "verbena:unit / t", True), ("threads", "verbena:unit+threads / t", True),
                                ("unit", "verbena:unit+threads / t", True), ("sim", "verbena:unit / sim", False),
                                ("verbena", "verbena:unit / t", False)):
            self.assertEqual(count_tests.is_of(suite, {**record(), "name": name}), of, (suite, name))


if __name__ == "__main__":
    unittest.main()
