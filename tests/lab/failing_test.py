#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That scenarios which hang or fail are told as such, with the guest's log, and don't keep the next from running: the scenarios
in `failing`, begun in one boot. The kernels must be prepared."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

LAB = pathlib.Path(__file__).resolve().parent
SCENARIOS = [str(LAB / "failing/hangs.sh"),
             *(f"{LAB / 'failing/fails.sh'} {how}" for how in ("command", "reason", "kernel", "nothing", "guest")),
             str(LAB / "failing/stuck.sh"), f"{LAB / 'failing/fails.sh'} late"]
LIMIT = 600


class Failing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-failing-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        done = subprocess.run([LAB / "lab", "run", *SCENARIOS, "--kernel", "6.1", "--no-install", "--out", folder], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
        print(done.stdout, flush=True)
        cls.status, cls.output = done.returncode, done.stdout
        cls.lines = done.stdout.split("\n")
        cls.out = folder / "6.1-hangs"

    def told(self, line):
        self.assertIn(line, self.lines)

    def test_it_is_no_success(self):
        self.assertEqual((self.status, self.lines[-2:]), (1, ["2 passed, 6 failed", ""]))

    def test_a_hang_ends_at_its_limit_with_the_log(self):
        self.told("FAIL hangs on 6.1: not finished after 10 s")
        self.told("here is what hangs writes")
        self.told("lab: not finished after 10 s; the end of the kernel log:")
        self.told("sysrq: Show Blocked State")
        log = (self.out / "hangs/log").read_text(encoding="utf-8")
        self.assertEqual(log, "here is what hangs writes\n")
        processes = (self.out / "hangs/processes").read_text(encoding="utf-8")
        self.assertIn("sleep 601\n", processes)
        self.assertIn("sleep 602\n", processes)
        self.assertTrue((self.out / "hangs/sockets").exists())

    def test_a_failure_has_its_reason(self):
        self.told('FAIL fails command on 6.1: line 8 of fails.sh: "[[ 1 == 2 ]]" returned 1')
        self.told("FAIL fails reason on 6.1: a reason of its own")
        self.told("here is what reason writes")

    def test_trouble_of_the_kernel_is_a_failure_of_that_scenario_alone(self):
        self.told("FAIL fails kernel on 6.1: the kernel said: WARNING: made by hand")
        self.assertIn("WARNING: made by hand", (self.out / "fails-kernel/dmesg").read_text(encoding="utf-8"))
        self.assertRegex(self.output, r"\nPASS fails nothing on 6.1 \([\d.]+ s\)\n")

    def test_after_a_guest_that_goes_down_another_goes_on(self):
        self.told("FAIL fails guest on 6.1: the guest stopped while it ran")
        self.told("here is what guest writes")
        self.assertIn("Kernel panic", self.output)
        self.assertIn("Kernel panic", (self.out / "console.1").read_text(encoding="utf-8"))

    def test_what_the_kernel_does_not_let_go_of_is_not_there_for_the_next(self):
        self.told("FAIL stuck on 6.1: not finished after 10 s / a process of it does not end")
        self.assertRegex((self.out / "stuck/processes").read_text(encoding="utf-8"), r" D +\S+ +\\_ touch frozen/file\n")
        self.assertRegex(self.output, r"\nPASS fails late on 6.1 \([\d.]+ s\)\n")


if __name__ == "__main__":
    unittest.main()
