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
import unittest
import urllib.request

BINARY = ""
SOURCES = ""
START_LIMIT = 30
STOP_LIMIT = 30


class Daemon:
    """A verbenad that serves until stop(). Its exports and state lie in self.folder."""

    def __init__(self, *arguments, folder, environment=None, before_start=None):
        self.folder = folder
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

    def log(self):
        with open(os.path.join(self.folder, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def port(self, transport):
        for line in self.lines:
            found = re.fullmatch(rf"listening at {transport}://.*:(\d+)", line)
            if found:
                return int(found.group(1))
        raise AssertionError(f"no {transport} listener in {self.lines}")

    def metrics_url(self):
        return next(line.split()[-1] for line in self.lines if line.startswith("metrics at "))

    def scrape(self):
        with urllib.request.urlopen(self.metrics_url(), timeout=10) as answer:
            return answer.read().decode()

    def metric(self, series):
        """The value of a series as Prometheus writes it, or None."""
        for line in self.scrape().splitlines():
            if line.startswith(series + " "):
                return float(line.split()[-1])
        return None

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
            self.process.stdout.close()
            self.errors.close()


class Scraper:
    """Reads the metrics all the time, so that a sanitizer sees readers beside the shards that write."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
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

    def start(self, *more, export="", environment=None, before_start=None):
        least = os.environ.get("VERBENA_TEST_SHARDS") # a test's own number is raised to it
        if least:
            at = more.index("--shards") + 1 if "--shards" in more else None
            shards = max(int(least), int(more[at])) if at else int(least)
            more = (*more[:at - 1], *more[at + 1:]) if at else more
            more = (*more, "--shards", str(shards))
        daemon = Daemon("nfs", "--export", self.data + export, "--state", os.path.join(self.folder, "state"),
                        "--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0",
                        "--metrics", "127.0.0.1:0", "--rpcbind", "no", *more,
                        folder=self.folder, environment=environment, before_start=before_start)
        self.addCleanup(self.end_well, daemon)
        if os.environ.get("VERBENA_TEST_SCRAPES"):
            scraper = Scraper(daemon)
            self.addCleanup(scraper.stop)
        return daemon

    def end_well(self, daemon):
        """Stops it; what it said at the end, and a sanitizer with it, is not lost."""
        status = daemon.stop()
        if status not in (0, -signal.SIGKILL) or re.search(r"Sanitizer:|runtime error:", daemon.log()):
            self.fail(f"verbenad ended with {status}: {daemon.log()[-8000:]}")

    def run_binary(self, *arguments):
        # Names are looked up: a name server that does not answer costs its time.
        return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=4 * START_LIMIT, check=False)

    def run_tool(self, *arguments, **options):
        done = subprocess.run(arguments, capture_output=True, timeout=120, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout


def main():
    """SCRIPT VERBENAD SOURCES [TEST...]"""
    global BINARY, SOURCES
    BINARY, SOURCES = sys.argv[1], sys.argv[2]
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
