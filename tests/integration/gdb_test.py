# SPDX-License-Identifier: Apache-2.0
"""`verbena tasks` of gdb, on a running process, on a core file and on a stripped verbenad: gdb_test.py PROGRAM SCRIPT [CLASS...]"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = SCRIPT = ""
LIMIT = 240


def gdb(*words, program=()):
    command = ["gdb", "--batch", "-nx", "-iex", "set debuginfod enabled off"]
    for word in words:
        command += ["-ex", word]
    # The program of a sanitizer's build looks for leaks at its end, which it can't when it is traced.
    environment = {**os.environ, "LSAN_OPTIONS": "detect_leaks=0",
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    done = subprocess.run([*command, "--args", *(program or [PROGRAM])], capture_output=True, text=True, timeout=LIMIT, check=False,
                          env=environment)
    return done.stdout + done.stderr


class Looks(unittest.TestCase):
    def look_at(self, text):
        plain = re.sub(r" 0x[0-9a-f]+", "", text)
        def has(*lines):
            self.assertRegex(plain, "\n".join(lines), text)
        place = r"\(hung_tasks.cpp:\d+\)"
        has(r"shard 0, thread \d+ \(LWP \d+\):")
        has(r"shard 1, thread \d+ \(LWP \d+\):")
        has(rf"    hung::serve(<verbena::semaphore>)? {place}",
            rf"      hung::read_block {place}",
            rf"        hung::take_permit {place} waits for semaphore\n")
        has(rf"    hung::both {place}",
            r"      verbena::when_all(<void, int>)? \(combine.hpp:\d+\) waits for scope",
            r"        verbena::detail::keep(<void>)? \(combine.hpp:\d+\)",
            rf"          hung::wait_for {place} waits for event",
            r"        verbena::detail::keep(<int>)? \(combine.hpp:\d+\)",
            rf"          hung::read_block {place}",
            rf"            hung::take_permit {place} waits for semaphore\n")
        has(rf"    hung::block {place} waits for a blocking call in lane slow disk\n")
        has(rf"    main::.*operator\(\) {place} waits for a sleep\n")
        has(rf"    hung::ask {place}", r"      verbena::shard::run.* waits for a call on shard 1\n")
        # Of shard 1, and not by itself but below what joins it.
        has(r"    verbena::detail::remote_run::serve \(shard.cpp:\d+\) waits for scope",
            r"      verbena::detail::remote_call.*::body \(shard.hpp:\d+\)",
            rf"        hung::ask.*operator\(\) {place}",
            rf"          hung::wait_for {place} waits for event\n")
        self.assertNotIn("hung::ends", text)
        self.assertNotIn("midst of a change", text)


class Core(Looks):
    """Not of a sanitizer's build, whose shadow memory takes gdb minutes to look through."""

    def test_core_file(self):
        folder = tempfile.mkdtemp(prefix="verbena-test-")
        self.addCleanup(shutil.rmtree, folder)
        core = os.path.join(folder, "core")
        said = gdb("handle SIGUSR2 stop nopass", "run", f"generate-core-file {core}", "kill")
        self.assertTrue(os.path.exists(core), said)
        self.look_at(gdb(f"core-file {core}", f"source {SCRIPT}", "verbena tasks"))


class Process(Looks):
    def test_running_process(self):
        self.look_at(gdb("handle SIGUSR2 stop nopass", "run", f"source {SCRIPT}", "verbena tasks", "kill"))

    def test_no_process(self):
        self.assertIn("verbena tasks: no process is running and no core file is loaded",
                      gdb(f"source {SCRIPT}", "verbena tasks"))

    def test_another_program(self):
        done = subprocess.run(["gdb", "--batch", "-nx", "-ex", f"source {SCRIPT}", "-ex", "verbena tasks", "/bin/true"],
                              capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertIn("there is no verbena in this program", done.stdout + done.stderr)


class Stripped(unittest.TestCase):
    """PROGRAM is verbenad."""

    def test_tasks_of_a_stripped_program(self):
        folder = tempfile.mkdtemp(prefix="verbena-test-")
        self.addCleanup(shutil.rmtree, folder)
        program, config = os.path.join(folder, "verbenad"), os.path.join(folder, "config.toml")
        subprocess.run(["strip", "-o", program, PROGRAM], check=True, timeout=LIMIT)
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{folder}/state"
shards = 2
[metrics]
listen = "off"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{folder}"
pseudo = "/export"
""")
        # It waits for a signal once it serves.
        text = gdb("set breakpoint pending on", "break sigwait", "run", f"source {SCRIPT}", "verbena tasks", "kill",
                   program=[program, "serve", config])
        for shard in (0, 1):
            self.assertRegex(text, rf"shard {shard}, thread \d+ \(LWP \d+\):\n  (no tasks|scope )", text)


if __name__ == "__main__":
    PROGRAM, SCRIPT = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
