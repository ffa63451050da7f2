#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That test_targets.py names what the tests of a suite need, and nothing else."""
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import test_targets # beside this file


class Targets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory() # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.build = folder.name
        os.mkdir(os.path.join(self.build, "meson-info"))
        self.put("targets", [{"id": name, "filename": [os.path.join(self.build, "tests", name)]} for name in ("a", "b", "c")])
        self.put("tests", [{"suite": ["verbena:unit"], "depends": ["b", "a"]}, {"suite": ["verbena:unit", "verbena:threads"], "depends": ["a"]},
                           {"suite": ["verbena:sim"], "depends": ["c"]}])

    def put(self, what, content):
        with open(os.path.join(self.build, "meson-info", f"intro-{what}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)

    def test_a_suite_has_what_its_tests_depend_on(self):
        self.assertEqual(test_targets.targets(self.build, "unit"), ["tests/a", "tests/b"])
        self.assertEqual(test_targets.targets(self.build, "threads"), ["tests/a"])
        self.assertEqual(test_targets.targets(self.build, "sim"), ["tests/c"])

    def test_a_suite_without_tests_is_an_error(self): # for ninja no target is all targets
        with self.assertRaises(ValueError):
            test_targets.targets(self.build, "units")


if __name__ == "__main__":
    unittest.main()
