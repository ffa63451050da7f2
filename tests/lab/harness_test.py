#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the lab makes of what a guest left behind, without a boot; failing_test.py is the same with one."""
import contextlib
import datetime
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True

from harness import boot, cells, data, packages, runner, scenario  # noqa: E402
from harness.common import SOURCE, LabError  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-harness-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text=""):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def replace(self, *what):
        patch = mock.patch.object(*what)
        patch.start()
        self.addCleanup(patch.stop)

    def refused(self, words, function, *arguments):
        with self.assertRaises(LabError) as caught:
            function(*arguments)
        for word in words:
            self.assertIn(word, str(caught.exception))


class Verdicts(InFolder):
    def verdict(self, ended="", host_part=None, **files):
        for path in self.folder.iterdir():
            path.unlink()
        for name, text in files.items():
            self.write(name, text)
        return runner.verdict(self.folder, host_part, ended)

    def test_a_status_of_zero_passes_and_no_other(self):
        self.assertIsNone(self.verdict(begun="", result="0 1.2\n"))
        self.assertIsNone(self.verdict(begun="", result="0 1.2\n", reason="\n"))
        self.assertEqual(self.verdict(begun="", result="3 1.2\n"), "ended with status 3")

    def test_a_reason_fails_whatever_the_status(self):
        self.assertEqual(self.verdict(begun="", result="0 1.2\n", reason="the kernel said: WARNING: x\n"),
                         "the kernel said: WARNING: x")
        self.assertEqual(self.verdict(begun="", result="137 5.0\n", reason="not finished after 5 s\nmore\n"),
                         "not finished after 5 s / more")

    def test_without_a_result_it_says_how_far_it_came(self):
        self.assertEqual(self.verdict(begun=""), "the guest went down while it ran")
        self.assertEqual(self.verdict("qemu failed: x", begun=""), "qemu failed: x while it ran")
        self.assertEqual(self.verdict(), "not reached: the guest went down before")
        self.assertEqual(self.verdict("qemu failed: x"), "not reached: qemu failed: x")

    def test_the_host_part_goes_first(self):
        part = types.SimpleNamespace(failure="the host part has ended")
        self.assertEqual(self.verdict(host_part=part, begun="", result="1 1.0\n"), "the host part has ended")
        part.failure = None
        self.assertIsNone(self.verdict(host_part=part, begun="", result="0 1.0\n"))

    def test_of_two_guests_the_one_that_failed_by_itself(self):
        ended = "it went down while it ran"
        self.assertIsNone(runner.of_two(None, None))
        self.assertEqual(runner.of_two("one", None), "one")
        self.assertEqual(runner.of_two(None, "two"), "second guest: two")
        self.assertEqual(runner.of_two("that of this", "two"), "that of this")
        self.assertEqual(runner.of_two(ended, "two"), "second guest: two")
        self.assertEqual(runner.of_two("that of this", ended), "that of this")
        self.assertEqual(runner.of_two(ended, None), ended)

    def test_a_failure_is_printed_with_the_logs(self):
        path = self.write("some.sh")
        some = scenario.Scenario(path, ["siw"], 300, "none")
        for name, text in {"some-siw/log": "guest\n", "peer/some-siw/log": "other\n", "some-siw/host.log": "host\n",
                           "some-siw/result": "1 2.5\n"}.items():
            self.write(name, text)
        kernel = types.SimpleNamespace(series="6.1")

        def printed(reason, shown):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(runner.report(kernel, some, self.folder, reason, shown), "2.5")
            return out.getvalue().split("\n")[:-1]
        self.assertEqual(printed("x", False), ["    guest", "    host", "    other", "FAIL some siw on 6.1: x"])
        self.assertEqual(printed("x", True), ["    host", "    other", "FAIL some siw on 6.1: x"])
        self.assertEqual(printed(None, False), ["PASS some siw on 6.1 (2.5 s)"])


class Boots(InFolder):
    def run_boot(self, boots):
        """Runs three scenarios where each of BOOTS comes to those that it names; returns their reasons."""
        scenarios = [scenario.Scenario(self.write(f"{name}.sh"), [], 300, "none") for name in ("one", "two", "three")]
        out = self.folder / "out"
        args = types.SimpleNamespace(net=None, size="smoke")

        def boot(*_):
            for name in boots.pop(0):
                (out / name / "begun").touch()
                (out / name / "result").write_text("0 1.0\n")
            (out / "console").write_text("")
            return "it went down"
        self.replace(runner.boot, "run", boot)
        self.replace(runner.data, "prepare", lambda size: self.folder)
        kernel = types.SimpleNamespace(series="6.1", release="6.1.0")
        with contextlib.redirect_stdout(io.StringIO()):
            rows = runner.run_boot(kernel, scenarios, out, self.folder, args, False)
        self.assertEqual(boots, [])
        return [reason for _, _, reason, _ in rows]

    def test_what_a_boot_did_not_come_to_has_another(self):
        self.assertEqual(self.run_boot([("one",), ("two", "three")]), [None, None, None])
        self.assertTrue((self.folder / "out/console.1").exists())

    def test_of_two_guests_one_that_does_not_boot_has_another_try_and_one_that_goes_down_has_none(self):
        for files, came in ((("one/begun", "one/result", "two/begun"), True), (("one/begun",), True),
                            (("one/begun", "one/result"), False), ((), False)):
            for path in self.folder.rglob("*/*"):
                path.unlink()
            for name in files:
                self.write(name)
            self.assertEqual(runner.came_to_two(self.folder / "one", self.folder / "two"), came)

    def test_a_guest_that_does_not_boot_has_one_more_try(self):
        self.assertEqual(self.run_boot([(), ("one", "two", "three")]), [None, None, None])
        self.assertEqual(self.run_boot([("one", "two"), (), ()]), [None, None, "not reached: it went down"])


class Limits(InFolder):
    """A guest that does not end by itself, whose part a shell plays."""

    def follow(self, scripts, limit, tend=lambda: None):
        guests = []
        for number, script in enumerate(scripts):
            out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
            (out / "console").write_text(f"kernel {number}\n", encoding="utf-8")
            guests.append(boot.Guest(["bash", "-c", script.format(out)], out, False))
        self.addCleanup(lambda: self.assertFalse(boot.Guest.running))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                boot.follow(guests, limit, tend)
            finally:
                ended = [guest.end() for guest in guests]
        return ended, said.getvalue()

    def test_the_time_is_over(self):
        self.replace(boot, "BOOT_SECONDS", 0)
        ended, said = self.follow(["exec sleep 600"], 0)
        self.assertEqual(ended, ["the guest did not finish in time"])
        self.assertIn("    kernel 0", said)

    def test_a_guest_that_does_not_boot_is_ended_long_before(self):
        self.replace(boot, "BOOT_SECONDS", 0.3)
        self.assertEqual(self.follow(["exec sleep 600"], 600)[0], ["the guest did not boot"])
        self.assertEqual(self.follow(["touch {0}/booted; exec sleep 600", "exec sleep 600"], 600)[0], ["a guest did not boot"] * 2)
        # However busy the machine: one that boots must not be ended for that.
        self.replace(boot, "BOOT_SECONDS", 60)
        self.assertEqual(self.follow(["touch {0}/booted {0}/finished; exec sleep 1"], 600)[0], [""])

    def test_one_guest_is_not_left_waiting_for_the_other(self):
        self.replace(boot, "ALONE_SECONDS", 1)
        finished = "touch {0}/finished"
        ended, said = self.follow([finished, "exec sleep 600"], 300)
        self.assertEqual(ended, ["", "the other guest had ended"])
        self.assertEqual(said.count("the end of its kernel's messages"), 1)

    def test_what_ends_before_its_plan_or_with_a_status_has_failed(self):
        self.assertEqual(self.follow(["true"], 300)[0], ["the guest stopped"])
        self.assertEqual(self.follow(["echo bad option >&2; exit 1"], 300)[0], ["qemu failed: bad option"])

    def test_a_guest_that_has_ended_takes_its_qemu_along(self):
        self.replace(boot, "ALONE_SECONDS", 0.1)
        self.assertEqual(self.follow(["exec >&-; exec sleep 600"], 300)[0], ["qemu did not end with its guest"])

    def test_who_tends_it_may_end_it(self):
        self.assertEqual(self.follow(["exec sleep 600"], 300, lambda: "the host part has ended")[0],
                         ["the host part has ended"])


class Reports(InFolder):
    CELL, OTHER = "work iwarp siw", "work-host"

    def setUp(self):
        super().setUp()
        self.path = self.folder / "interop.md"
        self.answers = {"rev-parse": "abc1234\n", "status": ""}
        self.replace(cells, "command", lambda *words: self.answers[next(word for word in words if word in self.answers)])
        self.replace(cells, "say", lambda _: None)

    def page(self):
        report = cells.Report(self.path, "ci")
        report.add([("6.1.0-1", self.CELL, None, "12.5")])
        report.add([("6.1.0-1", self.OTHER, "a | b", "3.0")])
        self.assertEqual([row[2] for row in report.results], [None, "a | b"])
        return self.path.read_text(encoding="utf-8")

    def test_the_page(self):
        page = self.page()
        today = datetime.date.today()
        self.assertIn(f"{cells.WORK} | 6.1.0-1 | passed | 12.5 | {today}, abc1234, ci |", page)
        self.assertIn(f"| 6.1.0-1 | failed: a \\| b | 3.0 | {today}, abc1234, ci |", page)
        self.assertIn("None of this ran on 6.12,", page)
        self.assertNotIn("None of this ran on 6.1,", page)

    def not_run(self, page):
        """The rows of what has not run, by kernel release."""
        found = {}
        for part in page.split("## What has not run\n")[1].split("\nOn ")[1:]:
            found[part.split(":")[0]] = [line for line in part.split("\n") if line.startswith("| ") and not line.startswith("| client")]
        return found

    def test_it_says_what_has_not_run(self):
        page = self.page()
        of_page = self.not_run(page)
        self.assertEqual(list(of_page), ["6.1"])
        left = [cell for cell in cells.CELLS if cell.scenario not in (self.CELL, self.OTHER)]
        self.assertEqual(of_page["6.1"], sorted(f"| {cell.client} | {cell.server} | {cell.wire} | {cell.work} |"
                                                    for cell in (*left, cells.POWER_FILES, cells.POWER_BLOCKS)))
        for row in ("| Linux NFSv4.1 | verbenad `rdma` in the guest | rxe | a tree both ways,", "| Linux RNBD | `verbenad block`",
                    "| Linux NFSv4.0 |", "| Linux NFSv4.2 |"):
            self.assertTrue([line for line in of_page["6.1"] if line.startswith(row)], row)
        for words in cells.NOWHERE.split():
            self.assertIn(words, page.split("## What has not run\n")[1])

    def test_what_has_not_run_is_of_each_kernel(self):
        report = cells.Report(self.path, "ci")
        report.add([("6.1.0-1", self.CELL, None, "1.0")])
        report.add([("6.12.0-1", self.OTHER, None, "1.0")])
        of_page = self.not_run(self.path.read_text(encoding="utf-8"))
        by_name = {cell.scenario: f"| {cell.client} | {cell.server} | {cell.wire} | {cell.work} |" for cell in cells.CELLS}
        self.assertNotIn(by_name[self.CELL], of_page["6.1"])
        self.assertIn(by_name[self.CELL], of_page["6.12"])
        self.assertIn(by_name[self.OTHER], of_page["6.1"])
        self.assertNotIn(by_name[self.OTHER], of_page["6.12"])

    def test_each_cell_of_a_run_has_its_row(self):
        report = cells.Report(self.path, "ci")
        report.add([("6.1.0-1", cell.scenario, None, "1.0") for cell in cells.CELLS])
        report.add([("6.1.0-1", "power lost 50 times, 9 operations acknowledged", None, "2.0"),
                    ("6.1.0-1", "power lost 10 times, 8 operations of a block device acknowledged", "lost", "3.0")])
        page = self.path.read_text(encoding="utf-8")
        for cell in cells.CELLS:
            self.assertIn(f"| {cell.client} | {cell.server} | {cell.wire} | {cell.work} | 6.1.0-1 | passed | 1.0 | ", page)
        self.assertIn("| verbena `tcp`, `iwarp` | verbenad on ext4 | TCP | power lost 50 times, 9 operations acknowledged |", page)
        self.assertIn("| verbena `rnbd+iwarp` | `verbenad block`, a file on ext4 | TCP | power lost 10 times, 8 operations of a block device", page)
        self.assertEqual(self.not_run(page), {})

    def test_rows_stand_until_their_cell_runs_again(self):
        self.page()
        self.answers["rev-parse"] = "def5678\n"
        power = "power lost {} times, 9 operations acknowledged"
        report = cells.Report(self.path, "full")
        self.assertEqual([cell.scenario for cell in report.unrun(["6.1"])],
                         [cell.scenario for cell in cells.CELLS if cell.scenario not in (self.CELL, self.OTHER)])
        self.assertIn(self.CELL, [cell.scenario for cell in report.unrun(["6.1", "6.12"])])
        report.add([("6.1.0-2", self.OTHER, None, "4.0"), ("6.1.0-2", power.format(7), None, "2.0"), ("6.12.0-1", self.CELL, None, "5.0")])
        report.add([("6.1.0-2", power.format(8), None, "3.0")])
        cells.Report(self.path, "full").write()
        table = self.path.read_text(encoding="utf-8").split("## What has not run")[0]
        rows = [line.split(" | ")[3:] for line in table.split("\n") if " passed " in line or " failed" in line]
        today = datetime.date.today()
        self.assertEqual(sorted(rows), sorted([
            [cells.WORK, "6.1.0-1", "passed", "12.5", f"{today}, abc1234, ci |"],
            [cells.WORK, "6.12.0-1", "passed", "5.0", f"{today}, def5678, full |"],
            [cells.WORK, "6.1.0-2", "passed", "4.0", f"{today}, def5678, full |"],
            [power.format(8), "6.1.0-2", "passed", "3.0", f"{today}, def5678, full |"]]))

    def test_a_cell_that_is_no_more_leaves_the_page(self):
        page = self.page()
        self.path.write_text(page.replace(cells.WORK, "what nobody tests any more"), encoding="utf-8")
        cells.Report(self.path, "ci").write()
        self.assertNotIn("what nobody", self.path.read_text(encoding="utf-8"))

    def test_its_prose_is_not_wider_than_others(self):
        self.assertEqual([line for line in self.page().split("\n") if len(line) > 120 and not line.startswith("|")], [])

    def test_it_leaves_what_others_write_there(self):
        section = "\n## pynfs\n\nA table.\n"
        self.path.write_text(f"# An older page\n{section}", encoding="utf-8")
        page = self.page()
        self.assertTrue(page.endswith(f"\n{section}"))
        self.assertNotIn("An older page", page)
        self.assertEqual(page.count("A table."), 1)

    def test_it_tells_of_what_is_not_committed(self):
        self.answers["status"] = " M core/x.cpp\n"
        self.assertIn("abc1234 and what is not committed, ci |", self.page())


class Packages(InFolder):
    def setUp(self):
        super().setUp()
        stub = self.write("dpkg-query", '#!/bin/sh\ncase $* in *qemu-system*) exit 1 ;; *) printf installed ;; esac\n')
        stub.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        patch = mock.patch.dict(os.environ, PATH=path)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_lab_names_the_package_that_is_missing(self):
        self.refused(["packages are missing: qemu-system-x86\n", "apt-get install --no-install-recommends qemu-system-x86"],
                     packages.prepare, False)

    def test_check_does_so_and_fails(self):
        done = subprocess.run([SOURCE / "check", "--no-install", "--only", "lab"], text=True, capture_output=True, check=False)
        self.assertIn("cannot run without these Debian packages: qemu-system-x86\n", done.stdout)
        self.assertEqual(done.returncode, 1, done.stdout)


class Scenarios(InFolder):
    def setUp(self):
        super().setUp()
        self.real = scenario.FOLDER
        self.replace(scenario, "FOLDER", self.folder)

    def test_what_its_line_says(self):
        self.write("plain.sh", "# no more\n")
        self.write("both.sh", "# SPDX\n# lab: limit=40 net=user\n. x\n")
        plain, both = scenario.parse("plain"), scenario.parse("both a 'b c'")
        self.assertEqual((plain.limit, plain.net, plain.arguments), (scenario.LIMIT, "none", []))
        self.assertEqual((both.limit, both.net, both.arguments), (40, "user", ["a", "b c"]))
        self.assertEqual((both.title, both.folder), ("both a b c", "both-a-b-c"))
        self.assertEqual(scenario.parse("both", 7).limit, 7)
        self.assertEqual(scenario.parse(str(self.folder / "plain.sh")).path, plain.path)

    def test_its_parts(self):
        for name in ("one.sh", "two.sh", "two.peer.sh", "three.sh", "three.host.sh"):
            self.write(name)
        one, two, three = map(scenario.parse, ("one", "two", "three"))
        self.assertEqual((one.host_part, one.peer_part), (None, None))
        self.assertEqual((two.host_part, two.peer_part), (None, self.folder / "two.peer.sh"))
        self.assertEqual((three.host_part, three.peer_part), (self.folder / "three.host.sh", None))
        self.assertEqual(scenario.names(), ["one", "three", "two"])

    def test_what_cannot_be(self):
        self.write("one.sh", "# lab: limits=40\n")
        self.refused(["one.sh", "limit, net", "'limits'"], scenario.parse, "one")
        self.refused(["no scenario two", "there are: one"], scenario.parse, "two")
        self.refused(["without a name"], scenario.parse, " ")

    def test_each_cell_is_one(self):
        self.replace(scenario, "FOLDER", self.real)
        for cell in cells.CELLS: # the report finds a cell by the title of what ran
            self.assertEqual(scenario.parse(cell.scenario).title, cell.scenario)
        self.assertEqual(len({scenario.parse(cell.scenario).folder for cell in cells.CELLS}), len(cells.CELLS))


if __name__ == "__main__":
    unittest.main()
