# SPDX-License-Identifier: Apache-2.0
"""Runs verbenad on free ports of 127.0.0.1 for a test."""
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

BINARY = ""
SOURCES = ""
SLOW = int(os.environ.get("VERBENA_SLOW", "1")) # times limits: `./check --slow`
START_LIMIT = 30 * SLOW
STOP_LIMIT = 30 * SLOW
SANITIZER = r"Sanitizer:|runtime error:" # what a sanitizer's reports say


def shards(own=0):
    """How many shards a daemon has that wants `own`: at least what the suite asks for (VERBENA_TEST_SHARDS)."""
    return max(own, int(os.environ.get("VERBENA_TEST_SHARDS", "0")))


def as_the_suite_asks(words):
    """A command line of `verbenad nfs` with the suite's shards, and with metrics if it scrapes."""
    words = list(words)
    own = 0
    if "--shards" in words:
        at = words.index("--shards")
        own = int(words[at + 1])
        del words[at:at + 2]
    if shards(own):
        words += ["--shards", str(shards(own))]
    if scraped():
        words = ["127.0.0.1:0" if before == "--metrics" and word == "off" else word
                 for before, word in zip([None, *words], words)]
    return words


def scraped():
    """Whether the suite wants metrics read all the time (VERBENA_TEST_SCRAPES)."""
    return bool(os.environ.get("VERBENA_TEST_SCRAPES"))


seen_commands = set()


def light(arguments):
    """The environment of a command that is run for what it says. With ASan half of a short command's processor time goes into looking for leaks
    and for uses of what is no longer on the stack, so only the first run of each verb (`cp`, `block read`) in a test file looks."""
    verb = next((word for word in arguments if re.fullmatch("[a-z]+", word)), "")
    if verb not in seen_commands:
        seen_commands.add(verb)
        return dict(os.environ)
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:detect_stack_use_after_return=0"
            ":malloc_context_size=2"}


class Daemon:
    """A verbenad that serves until stop(). Its exports and state lie in self.folder. It has the shards and the scrapes that
    the suite asks for, unless its command line is to stay as it is (`exactly`)."""

    def __init__(self, *arguments, folder, environment=None, before_start=None, exactly=False):
        self.folder = folder
        self.scraper = None
        if arguments[0] == "nfs" and not exactly:
            arguments = as_the_suite_asks(arguments)
        self.errors = open(os.path.join(folder, "stderr"), "wb")
        self.process = subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, **(environment or {})}, text=True,
                                        preexec_fn=before_start) # pylint: disable=subprocess-popen-preexec-fn
        self.lines = []
        watchdog = threading.Timer(START_LIMIT, self.process.kill)
        watchdog.start()
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if self.lines[-1] == "ready":
                break
        watchdog.cancel()
        if not self.lines or self.lines[-1] != "ready":
            self.process.wait()
            raise AssertionError(f"verbenad did not start ({self.process.returncode}): {self.log()}")
        if not exactly:
            has = int(re.search(r": (\d+) shards?, policy", self.lines[0])[1])
            if has < shards():
                self.stop()
                raise AssertionError(f"{has} shards, and the suite asks for {shards()}: {arguments}")
            if scraped():
                self.scraper = Scraper(self)

    def log(self):
        with open(os.path.join(self.folder, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def log_with(self, pattern):
        """The log once it has what `pattern` says. A thread of the daemon writes it, some time after the line was made."""
        end = time.monotonic() + STOP_LIMIT
        while not re.search(pattern, text := self.log()):
            if time.monotonic() > end:
                raise AssertionError(f"no line with {pattern}: {text}")
            time.sleep(0.01)
        return text

    def port(self, transport):
        for line in self.lines:
            found = re.fullmatch(rf"listening at {transport}://.*:(\d+)", line)
            if found:
                return int(found.group(1))
        raise AssertionError(f"no {transport} listener in {self.lines}")

    def metrics_url(self):
        return next(line.split()[-1] for line in self.lines if line.startswith("metrics at "))

    def scrape(self):
        with urllib.request.urlopen(self.metrics_url(), timeout=10 * SLOW) as answer:
            return answer.read().decode()

    def metric(self, series):
        """The value of a series as Prometheus writes it, or None."""
        for line in self.scrape().splitlines():
            if line.startswith(series + " "):
                return float(line.split()[-1])
        return None

    def metrics(self, wanted):
        """The values of these series at one moment, of those that there are."""
        starts = tuple(series + " " for series in wanted)
        return [float(line.split()[-1]) for line in self.scrape().splitlines() if line.startswith(starts)]

    def nfs_url(self, path, pseudo="/export"):
        port = self.port("tcp")
        return f"nfs://127.0.0.1{pseudo}/{path}?version=3&nfsport={port}&mountport={port}"

    def stop(self, number=signal.SIGTERM):
        """Ends it; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"verbenad did not stop: {self.log()}") from None
        finally:
            if self.scraper:
                self.scraper.stop()
            self.process.stdout.close()
            self.errors.close()


class Scraper:
    """Reads the metrics all the time, so that a sanitizer sees readers beside the shards that write."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.ended = threading.Event()
        daemon.metrics_url() # there is one
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.02):
            try:
                self.daemon.scrape()
            except (OSError, http.client.HTTPException):
                return  # it has been stopped

    def stop(self):
        self.ended.set()
        self.thread.join()


def memory_factor():
    """How much more memory a build takes than a plain one: sanitizers
    keep shadows, redzones and a quarantine."""
    with open(BINARY, "rb") as file:
        return 16 if re.search(rb"__[at]san_init\b", file.read()) else 1


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="verbena-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data, 0o777)
        os.chmod(self.folder, 0o755)
        os.chmod(self.data, 0o777)

    def start(self, *more, export="", **options):
        return self.run_daemon("nfs", "--export", self.data + export, "--state", os.path.join(self.folder, "state"),
                               "--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0",
                               "--metrics", "127.0.0.1:0", "--rpcbind", "no", *more, **options)

    def run_daemon(self, *arguments, **options):
        """A Daemon that has to end well when the test is over."""
        daemon = Daemon(*arguments, **{"folder": self.folder, **options})
        self.addCleanup(self.end_well, daemon)
        return daemon

    def end_well(self, daemon):
        """Stops it; what it said at the end, and a sanitizer with it, is not lost."""
        status = daemon.stop()
        if status not in (0, -signal.SIGKILL) or re.search(SANITIZER, daemon.log()):
            self.fail(f"verbenad ended with {status}: {daemon.log()[-8000:]}")

    def run_binary(self, *arguments):
        # Names are looked up: a name server that does not answer costs its time.
        return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=4 * START_LIMIT, check=False,
                              env=light(arguments))

    def run_tool(self, *arguments, **options):
        done = subprocess.run(arguments, capture_output=True, timeout=120 * SLOW, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout


def main():
    """SCRIPT VERBENAD SOURCES [--part N/PARTS] [TEST...]: all tests, or those named; of these every PARTS-th from the N-th on."""
    global BINARY, SOURCES
    BINARY, SOURCES = sys.argv[1], sys.argv[2]
    if sys.argv[3:4] == ["--part"]:
        part, parts = map(int, sys.argv[4].split("/"))
        here, named = sys.modules["__main__"], sys.argv[5:]
        load = unittest.defaultTestLoader
        tests = [test for case in (load.loadTestsFromNames(named, here) if named else load.loadTestsFromModule(here)) for test in case]
        done = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(tests[part - 1::parts]))
        sys.exit(0 if done.testsRun and done.wasSuccessful() else 1)
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
