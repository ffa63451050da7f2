#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unreached_test.py PLUGIN COMPILER...: that the plugin takes out what is never reached and calls of what is trivial, and nothing that
a sanitizer looks at."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

PLUGIN, COMPILER = sys.argv[1], sys.argv[2:]

# Uses what is no longer there in front of the first suspension (0), behind one (1), or where it is destroyed while it
# waits (2); or not (3).
SOURCE = """
#include <coroutine>
#include <cstdlib>
#include <exception>
struct task {
    struct promise_type {
        task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};
int* gone() { int* p = new int(1); delete p; return p; }
struct last_use { int* p; ~last_use() { if (p != nullptr) { ++*p; } } };
task body(int where) {
    int* p = gone();
    if (where == 0) { ++*p; }
    last_use l{where == 2 ? p : nullptr};
    co_await std::suspend_always{};
    if (where == 1) { ++*p; }
    co_await std::suspend_always{};
}
int main(int, char** words) {
    const int where = std::atoi(words[1]);
    task t = body(where);
    if (where != 2) { t.handle.resume(); t.handle.resume(); }
    t.handle.destroy();
}
"""

# Each goes wrong in a trivial function or by what one returns; 0 does not.
TRIVIAL = """
#include <cstdlib>
struct inner { int value = 1; int& get() { return value; } };
struct outer { inner* held; int& get() { return held->get(); } int read() const { return held->get(); } };
inline const int& same(const int& value) { return value; }
inline void compare(outer& o) { (void)(o.held->value == 3); }
inline int at(const int* numbers, int place) { return numbers[place]; }
inline int* forget(int* place) { return place; }
inline int* of_its_own() { int gone = 4; return forget(&gone); }
int main(int, char** words) {
    const int what = std::atoi(words[1]);
    outer o{new inner};
    int numbers[2] = {1, 2};
    const int* kept = numbers;
    if (what >= 1 && what <= 3) { delete o.held; }
    if (what == 1) { return o.get(); }
    if (what == 2) { o.read(); }
    if (what == 3) { o.get() = 2; }
    if (what == 4) { return at(numbers, what); }
    if (what == 5) { { const int passing = what; kept = &same(passing); } return *kept; }
    if (what == 6) { int* p = of_its_own(); return *p; }
    if (what == 7) { { int passing = what; kept = forget(&passing); } return at(kept, 0); }
    if (what == 8) { delete o.held; (void)(o.held->value == 3); }
    if (what == 9) { delete o.held; (void)(o.get() == 3); }
    if (what == 10) { delete o.held; compare(o); }
    if (what == 0) { delete o.held; }
    return 0;
}
"""
REPORTS = [None, "heap-use-after-free", "heap-use-after-free", "heap-use-after-free", "stack-buffer-overflow", "stack-use-after-scope",
           "stack-use-after-return", "stack-use-after-scope", "heap-use-after-free", "heap-use-after-free",
           "heap-use-after-free"]


class Unreached(unittest.TestCase):
    def test_what_is_wrong_in_trivial_functions_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "trivial.cpp"), os.path.join(folder, "trivial")
            with open(source, "w") as out:
                out.write(TRIVIAL)
            subprocess.run([*COMPILER, "-std=c++20", "-O0", "-fsanitize=address", f"-fpass-plugin={PLUGIN}", source,
                            "-o", program], check=True)
            for what, report in enumerate(REPORTS):
                run = subprocess.run([program, str(what)], capture_output=True, text=True,
                                     env={**os.environ, "ASAN_OPTIONS": "detect_stack_use_after_return=1"})
                with self.subTest(what=what):
                    if report:
                        self.assertNotEqual(run.returncode, 0)
                        self.assertIn(report, run.stderr)
                    else:
                        self.assertEqual((run.returncode, run.stderr), (0, ""))
            symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
            # Each is a function where the plugin does nothing. One whose result is dropped stays a call.
            for gone in ("inner::get()", "outer::get()", "same(int const&)", "at(int const*, int)", "forget(int*)"):
                self.assertNotIn(gone, symbols)
            self.assertIn("outer::read() const", symbols)

    def test_what_is_reached_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "body.cpp"), os.path.join(folder, "body")
            with open(source, "w") as out:
                out.write(SOURCE)
            subprocess.run([*COMPILER, "-std=c++20", "-O0", "-fsanitize=address", f"-fpass-plugin={PLUGIN}", source,
                            "-o", program], check=True)
            for where in range(4):
                run = subprocess.run([program, str(where)], capture_output=True, text=True)
                with self.subTest(where=where):
                    if where < 3:
                        self.assertNotEqual(run.returncode, 0)
                        self.assertIn("heap-use-after-free", run.stderr)
                    else:
                        self.assertEqual((run.returncode, run.stderr), (0, ""))
            symbols = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
            sizes = {part: int(size, 16) for size, part in re.findall(r"^\w+ (\w+) . _Z4bodyi(\.\w+)$", symbols, re.M)}
            # Each has the whole body where the plugin does nothing.
            self.assertLess(sizes[".destroy"], sizes[".resume"] / 2, sizes)
            self.assertNotIn(".cleanup", sizes) # for frames in their caller's, which there are none of at -O0


unittest.main(argv=sys.argv[:1])
