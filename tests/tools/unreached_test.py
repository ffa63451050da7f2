#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unreached_test.py PLUGIN COMPILER...: that the plugin takes out what is never reached, and nothing that is."""
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


class Unreached(unittest.TestCase):
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
            self.assertLess(sizes[".cleanup"], sizes[".resume"] / 2, sizes)


unittest.main(argv=sys.argv[:1])
