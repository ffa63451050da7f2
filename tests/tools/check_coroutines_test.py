#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_coroutines_test.py TOOL COMPILER...: that verbena-check-coroutines finds each form, and is quiet on the good ones."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOL, COMPILER = sys.argv[1], sys.argv[2:]
tool = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("tool", None))
importlib.machinery.SourceFileLoader("tool", TOOL).exec_module(tool)

# The form, and statements of a coroutine that have it once.
BAD = (
    ("branch of", "auto f = cached ? nullptr : co_await open();"),
    ("branch of", "auto f = cached ? co_await open() : nullptr;"),
    ("branch of", "use(1, is_one ? std::move(a) : (co_await b()).value());"),
    ("branch of", "co_return done ? ok() : co_await rest(x, y ? 1 : 2);"),
    ("what ?: makes", "const bool up = co_await (first ? to_a(n) : to_b(n));"),
    ("initialiser of a new", "kept = new lease(co_await pool.acquire(4096));"),
    ("initialiser of a new", "kept = new a::map<int, lease>(co_await pool.acquire(4096));"),
    ("captures by value", "co_await run([name] { use(name); });"),
    ("captures by value", "co_await run([this, held = std::move(held)]() mutable { use(held); });"),
    ("captures by value", "const auto x = co_await run(\n    1,\n    [=](int n) -> int { return n; });"),
    ("captures by value", "co_await s.run([&a, b](int) noexcept { use(b); }, {});"),
    ("braced temporary", "co_await send(request{name, 7});"),
    ("braced temporary", "co_await message{name};"),
    ("braced temporary", "auto x = co_await server.call(list<std::string>{a, b}, o);"),
    ("braced temporary", "auto x = co_await find({\"cup\"});"),
    ("braced temporary", "(void)co_await server.call(1, {name, 7});"),
    ("braced temporary", "co_await call<int>(o,\n    {.name = name});"),
    ("braced initialiser", "reply r{name, co_await value()};"),
    ("braced initialiser", "reply r = {.name = name, .value = co_await value()};"),
    ("braced initialiser", "std::string all[] = {co_await one(), co_await two()};"),
    ("braced initialiser", "co_return reply{name, (co_await value()).text};"),
    ("behind ||", "while (more()) if (stopped() || !co_await wait()) co_return;"),
    ("behind ||", "while (ready() && co_await wait()) use(1);"),
    ("behind ||", "for (;;) { if (a && (b || co_await wait())) break; }"),
    ("behind ||", "do { if (stopped() || !co_await wait()) break; } while (true);"),
)
GOOD = (
    "const bool x = co_await wait();",
    "auto ask = [name] { use(name); }; co_await run(std::move(ask));",
    "co_await run([&] { use(name); });",
    "co_await run([this, &name] { use(name); });",
    "request r{name, 7}; co_await send(std::move(r));",
    "co_await send({}); co_await send(request{}); co_await run([&] { return f({1}); });",
    "if (cached) { f = nullptr; } else { f = co_await open(); }",
    "const int n = co_await wait() ? 1 : 2;",
    "const int n = a ? 1 : 2; co_await wait();",
    "if (a ? b : c) (void)co_await wait();",
    "co_await (own ? *own : shared).acquire(size); co_await wait(a ? 1 : 2);",
    "auto made = std::make_unique<lease>(co_await pool.acquire(4096)); use(new lease(1), co_await wait());",
    "use(new lease, other(co_await wait())); co_await (first ? to_a : to_b)(n);",
    "if (stopped() || !co_await wait()) co_return;", # in no loop
    "while (co_await wait()) use(1);",
    "for (auto& each : all) { const bool done = co_await each; if (a || !done) co_return; }",
    "spawn([&]() -> task<void> { co_await wait(); });",
    "auto body = [&]() -> task<std::map<int, std::string>> { co_return co_await wait(); };",
    "if (a) { co_await wait(); } else { co_await wait(); } try { co_await wait(); } catch (...) { use(1); }",
    "switch (n) { case 1: co_await wait(); break; case 2: { co_await wait(); break; } default: co_return; }",
    "// cached ? nullptr : co_await open()\nuse(\"x ? a : co_await b\", R\"(? co_await)\", 'x');",
    "co_await send(request{name, 7}); // NOLINT(verbena-coroutines): owns nothing",
    "use(all[co_await index()]); auto& r = *co_await reactor();",
)
# What g++ makes of one that it laid out well, and of one that it did not.
OBJECT = """
.text
.globl f
f: leaq f.actor(%rip), %rdx
movq %rdx, {offset}(%rax)
ret
f.actor: ret
"""


class CheckCoroutines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="verbena-coroutines-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_it(self, *arguments):
        return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)

    def source(self, statements):
        return f"namespace a::b {{\nstruct x : y<int> {{ int n{{7}}; }};\ntask<void> f()\n{{\n{statements}\n}}\n}}\n"

    def found_in(self, statements):
        return tool.findings(self.source(statements))

    def write(self, statements, name="source.cpp"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.source(statements))
        return path

    def test_each_bad_form_is_found_once(self):
        for form, statements in BAD:
            with self.subTest(statements):
                found = self.found_in(statements)
                self.assertEqual(len(found), 1, found)
                self.assertIn(form, tool.FORMS[found[0][1]])
        path = self.write(BAD[0][1])
        done = self.run_it(path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, f"{path}:5: {tool.FORMS['conditional']}\n1 files (0 coroutines in objects of g++), 1 found\n")

    def test_the_line_is_that_of_the_form(self):
        self.assertEqual(self.found_in("use(1);\nauto f = cached\n    ? nullptr\n    : co_await open();"), [(8, "conditional")])

    def test_good_forms_are_not(self):
        for statements in GOOD:
            with self.subTest(statements):
                self.assertEqual(self.found_in(statements), [])
        self.assertEqual(self.run_it(self.write(GOOD[0])).returncode, 0)

    def test_a_folder_is_all_that_is_beneath_it(self):
        self.assertEqual(self.run_it(self.folder).returncode, 2) # nothing there
        os.mkdir(self.folder + "/inner")
        self.write(BAD[0][1], "inner/a.hpp")
        self.write(GOOD[0], "b.cc")
        self.write(BAD[0][1], "c.txt")
        done = self.run_it(self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("inner/a.hpp:5:", done.stdout)
        self.assertTrue(done.stdout.endswith("2 files (0 coroutines in objects of g++), 1 found\n"), done.stdout)

    def test_frames_of_objects(self):
        for offset, status, said in ((0, 0, "1 files (1 coroutines in objects of g++), 0 found"),
                                     (8, 1, "f: the frame begins with a gap of 8 bytes")):
            source = os.path.join(self.folder, "o.s")
            with open(source, "w", encoding="utf-8") as file:
                file.write(OBJECT.format(offset=offset or ""))
            subprocess.run([*COMPILER, "-c", source, "-o", source[:-1] + "o"], check=True)
            done = self.run_it(source[:-1] + "o")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(said, done.stdout)

    def test_what_cannot_be_looked_at(self):
        path = self.write("", "not.o")
        self.assertEqual(self.run_it(path).returncode, 2)
        self.assertEqual(self.run_it(self.folder + "/none.cpp").returncode, 2)
        self.assertEqual(self.run_it().returncode, 2)
        self.assertIn("verbena-check-coroutines PATH...", self.run_it("--help").stdout)
        # Halves of brackets, as macros may leave.
        for text in ("co_await f(", ")) co_await [", "{ co_await x ? {", "co_await"):
            tool.findings(text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
