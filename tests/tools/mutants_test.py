#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How tests/mutants chooses mutants, what it takes for a mutant that a test sees, and that it leaves sources as they were."""
import os
import select
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mutants"))
import catalogue
import run

ENTRY = """[[mutant]]
name = "{name}"
file = "{file}"
old = "{old}"
new = "{new}"
breaks = "a promise"
test = "unit_a"
cases = "{cases}"
"""
TESTS = ["BOOST_AUTO_TEST_SUITE(a_test)\nBOOST_FIXTURE_TEST_CASE(it_works, fixture)\n",
         'constexpr check all[] = {\n    {"it works, 64 times", "a group", it_works, nullptr},\n};\n']


class InTree(unittest.TestCase):
    """A tree with one source and a folder of mutants."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory() # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        self.mutants = os.path.join(self.top, "mutants")
        os.mkdir(self.mutants)
        self.put("a.cpp", "limit(4);\nwake();\n")

    def put(self, name, content):
        with open(os.path.join(self.top, name), "w", encoding="utf-8") as file:
            file.write(content)

    def list_of(self, *entries):
        whole = [{"name": "a-1", "file": "a.cpp", "old": "limit(4)", "new": "limit(5)", "cases": "a_test/it_works", **e} for e in entries]
        self.put("mutants/a.toml", "".join(ENTRY.format(**e) for e in whole))

    def problems(self):
        return list(catalogue.problems(TESTS, self.top, self.mutants))


class Texts(InTree):
    def test_what_stands_once_is_good(self):
        self.list_of({}, {"name": "a-2", "old": "wake();", "new": "", "cases": "a_test/it_*"})
        self.assertEqual(self.problems(), [])

    def test_a_check_of_the_conformance_kit_is_a_case(self):
        self.list_of({"cases": "a_test/a_group/it_works_64_times"})
        self.assertEqual(self.problems(), [])

    def test_what_does_not_is_told(self):
        self.list_of({"old": "limit(3)"}, {"name": "a-2", "old": ");"}, {"name": "a-3", "file": "b.cpp"}, {"name": "a-4", "new": "limit(4)"})
        self.assertEqual(self.problems(), ["a-1: a.cpp has the piece 0 times", "a-2: a.cpp has the piece 2 times",
                                           "a-4: it changes nothing", "a-3: b.cpp is gone"])

    def test_a_case_that_no_test_has_is_told(self):
        self.list_of({"cases": "a_test/it_worked"}, {"name": "a-2", "cases": "a_test/that_*"})
        self.assertEqual(self.problems(), ["a-1: no test is named it_worked", "a-2: no test is named that_*"])

    def test_a_suite_of_another_program_is_told(self):
        os.makedirs(os.path.join(self.top, "tests", "unit"))
        self.put("tests/unit/meson.build", "groups = {\n  'a': [\n    ['x/b_test.cpp', 'x/c_test.cpp'],\n  ],\n}\n")
        self.list_of({}, {"name": "a-2", "cases": "*"})
        self.assertEqual(self.problems(), ["a-1: unit_a has no suite a_test"])
        self.list_of({"cases": "b_test,c_test"}, {"name": "a-2", "cases": "b_test/it_works,c_test/it_works"})
        self.assertEqual([p for p in self.problems() if "no test is named" not in p], ["a-2: a comma stands between names of one level"])
        self.list_of({})
        self.put("tests/unit/meson.build", "groups = {\n  'a': [\n    ['x/a_test.cpp'],\n  ],\n}\n")
        self.assertEqual(self.problems(), [])

    def test_a_list_that_cannot_be_read_is_told(self):
        self.list_of({}, {})
        self.assertEqual(self.problems(), ["two mutants are named a-1"])
        self.put("mutants/a.toml", "[[mutant]]\nname = 'a-1'\n")
        self.assertEqual(len(self.problems()), 1)


class Changed(InTree):
    def setUp(self):
        super().setUp()
        self.put("b.cpp", "limit(4);\n")
        self.list_of({}, {"name": "b-1", "file": "b.cpp"})
        self.git("init", "--quiet", "--initial-branch", "work")
        self.commit()

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=self.top, check=True,
                       stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", "some")

    def concerned(self, revision="HEAD"):
        return [m["name"] for m in catalogue.concerned(catalogue.read(self.mutants), revision, self.top, self.mutants)]

    def test_mutants_of_a_changed_source_are_run(self):
        self.assertEqual(self.concerned(), [])
        self.put("b.cpp", "limit(4); // more\n")
        self.assertEqual(self.concerned(), ["b-1"])
        self.commit()
        self.assertEqual(self.concerned(), [])
        self.assertEqual(self.concerned("HEAD~1"), ["b-1"])

    def test_mutants_that_are_new_or_differ_are_run(self):
        self.list_of({"new": "limit(6)"}, {"name": "b-1", "file": "b.cpp"}, {"name": "b-2", "file": "b.cpp"})
        self.assertEqual(self.concerned(), ["a-1", "b-2"])
        self.put("b.cpp", "limit(4); // more\n")
        self.assertEqual(self.concerned(), ["a-1", "b-1", "b-2"])
        differing = catalogue.differing(catalogue.read(self.mutants), "HEAD", self.top, self.mutants)
        self.assertEqual([m["name"] for m in differing], ["a-1", "b-2"])

    def test_a_revision_that_does_not_exist_is_no_comparison(self):
        self.assertIsNone(catalogue.concerned([], "nowhere", self.top, self.mutants))

    def test_the_base_is_where_the_branch_left_the_main_one_or_a_tag_or_some_commits_back(self):
        def hash_of(revision):
            return catalogue.git(self.top, "rev-parse", revision).strip()
        self.assertEqual(catalogue.base(self.top), hash_of("HEAD"))
        for _ in range(4):
            self.commit()
        with unittest.mock.patch.object(catalogue, "LANDING", 3):
            self.assertEqual(catalogue.base(self.top), hash_of("HEAD~3"))
        self.git("tag", "v1", "HEAD~3")
        self.assertEqual(catalogue.base(self.top), "v1")
        self.git("branch", "main", "HEAD~2")
        self.assertEqual(catalogue.base(self.top), hash_of("HEAD~2"))


class Planted(run.Copy):
    """A copy whose build and test do as they are told, and see what is planted."""

    def __init__(self, folder, status, builds=True):
        super().__init__(folder)
        self.status, self.builds, self.planted = status, builds, None

    def make(self, tests):
        texts = [catalogue.content_of(os.path.join(self.source, name)) for name in sorted(os.listdir(self.source))]
        self.planted = next((text for text in texts if b"limit(5)" in text), texts[0])
        return self.builds

    def test(self, mutant):
        return self.status


class Outcomes(InTree):
    def outcome(self, status, builds=True):
        self.list_of({})
        os.makedirs(os.path.join(self.top, "source"), exist_ok=True)
        self.put("source/a.cpp", "limit(4);\n")
        copy = Planted(self.top, status, builds)
        outcome, why = copy.plant(catalogue.read(self.mutants)[0])
        self.assertEqual(copy.planted, b"limit(5);\n")
        self.assertEqual(catalogue.content_of(os.path.join(self.top, "source/a.cpp")), b"limit(4);\n")
        self.assertEqual(why == "", outcome == "seen")
        return outcome

    def test_a_test_that_fails_sees_it(self):
        self.assertEqual(self.outcome(201), "seen")
        self.assertEqual(self.outcome(-11), "seen") # a crash

    def test_a_test_that_passes_or_hangs_or_does_not_compile_does_not(self):
        self.assertEqual(self.outcome(0), "UNSEEN")
        self.assertEqual(self.outcome(None), "HANGS")
        self.assertEqual(self.outcome(1, builds=False), "STALE")

    def test_nothing_is_left_of_a_test_that_hangs(self):
        copy = run.Copy(self.top)
        os.mkdir(copy.source)
        pipe = os.path.join(self.top, "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        writer = os.open(pipe, os.O_WRONLY)
        # What the test started holds the pipe too.
        self.assertIsNone(copy.run(["sh", "-c", f"exec 9>{pipe}; sleep 1000 & wait"], limit=0.2))
        os.close(writer)
        self.assertEqual(select.select([reader], [], [], 60)[0], [reader])
        self.assertEqual(os.read(reader, 1), b"") # the last holder is gone
        self.assertEqual(copy.run(["sh", "-c", "exit 3"]), 3)


class Rounds(InTree):
    """Which mutants a run plants that has no time for all."""

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.top, "source"))
        for name in "abc":
            self.put(f"source/{name}.cpp", "limit(4);\n")
        self.list_of(*({"name": f"{file}-{n}", "file": f"{file}.cpp"} for file in "abc" for n in range(5)))
        self.all = catalogue.read(self.mutants)
        self.new = [m for m in self.all if m["name"] in ("b-2", "c-4")]

    def names(self, seed):
        return [[m["name"] for m in some] for some in run.rounds(self.all, self.new, seed)]

    def test_new_ones_are_first_and_then_some_of_each_source_until_all_are_planted(self):
        new, *rest = self.names(1)
        self.assertEqual(new, ["b-2", "c-4"])
        self.assertEqual(sorted(name[0] for some in rest[:3] for name in some[:1]), ["a", "b", "c"])
        self.assertEqual([len({name[0] for name in some}) for some in rest], [1] * len(rest))
        self.assertEqual(sorted(sum([new, *rest], [])), sorted(m["name"] for m in self.all))

    def test_a_seed_draws_the_same_and_another_one_draws_others(self):
        self.assertEqual(self.names(1), self.names(1))
        self.assertGreater(len({str(self.names(seed)) for seed in range(8)}), 1)

    def test_it_ends_when_the_time_is_over_and_tells_how_many_it_planted(self):
        class Told(Planted):
            def test(self, mutant):
                return 0 if self.planted == b"limit(4);\n" else 201
        clock = iter(range(1000))
        copy = Told(self.top, 0)
        with unittest.mock.patch.object(run.time, "monotonic", lambda: next(clock)), unittest.mock.patch("builtins.print"):
            some = run.planted(copy, run.rounds(self.all, self.new, 1), len(self.all), until=12)
            self.assertEqual(next(clock) < 20, True)
            everything = run.planted(Told(self.top, 0), run.rounds(self.all, self.new, 1), len(self.all))
        self.assertEqual(some[1], 0)
        self.assertEqual(some[0], some[2])
        self.assertTrue(0 < some[2] < len(self.all))
        self.assertEqual(everything, (15, 0, 15))

    def test_a_test_that_fails_without_a_mutant_is_a_failure(self):
        with unittest.mock.patch("builtins.print"):
            self.assertEqual(run.planted(Planted(self.top, 201), [self.new], 2), (2, 1, 2))


class Commands(unittest.TestCase):
    def test_a_program_has_a_filter_and_a_script_has_names(self):
        self.assertEqual(run.command_of({"cmd": ["unit_a"]}, "a_test/it_works"), ["unit_a", "--run_test=a_test/it_works"])
        self.assertEqual(run.command_of({"cmd": ["python3", "b.py", "verbenad", "."]}, "B.test_c B.test_d"),
                         ["python3", "b.py", "verbenad", ".", "B.test_c", "B.test_d"])
        self.assertEqual(run.command_of({"cmd": ["python3", "b.py", "verbenad", ".", "--part", "1/2"]}, "B"),
                         ["python3", "b.py", "verbenad", ".", "B"])


if __name__ == "__main__":
    unittest.main()
