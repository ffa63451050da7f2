#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena top` of a real verbenad: one interval without a terminal, and the screen in one."""
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import daemon

WIDTH, HEIGHT = 100, 24


class Terminal:
    """A program in a terminal of its own, a VT52: that has the fewest sequences."""

    def __init__(self, words, term="vt52"):
        self.seen = b""
        self.cells, self.row, self.column = [[" "] * WIDTH for _ in range(HEIGHT)], 0, 0
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ["TERM"] = term
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
            os.execv(words[0], words)
        self.pid = pid

    def read(self, limit):
        if select.select([self.fd], [], [], limit)[0]:
            try:
                part = os.read(self.fd, 65536)
            except OSError: # it has ended
                return False
            self.seen += part
            return bool(part)
        return True

    def text(self):
        """What stands there, as a person sees it."""
        self.cells, self.row, self.column = [[" "] * WIDTH for _ in range(HEIGHT)], 0, 0
        for sequence in re.findall(rb"\x1bY..|\x1b[^Y]|[^\x1b]", self.seen, re.S):
            self.take(sequence)
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def take(self, sequence):
        row, column = self.row, self.column
        if sequence.startswith(b"\x1bY"):
            row, column = sequence[2] - 32, sequence[3] - 32
        elif sequence == b"\x1bH":
            row, column = 0, 0
        elif sequence in (b"\x1bJ", b"\x1bK"):
            self.cells[row][column:] = [" "] * (WIDTH - column)
            for line in self.cells[row + 1:] if sequence == b"\x1bJ" else ():
                line[:] = [" "] * WIDTH
        elif sequence in (b"\x1bA", b"\x1bI"):
            row -= 1
        elif sequence in (b"\x1bB", b"\n"):
            row += 1
        elif sequence == b"\x1bC":
            column += 1
        elif sequence in (b"\x1bD", b"\b"):
            column -= 1
        elif sequence == b"\r":
            column = 0
        elif sequence == b"\t":
            column = column // 8 * 8 + 8
        elif len(sequence) == 1 and sequence >= b" ":
            self.cells[row][column] = chr(sequence[0])
            column += 1
        self.row, self.column = min(max(row, 0), HEIGHT - 1), min(max(column, 0), WIDTH - 1)

    def until(self, pattern):
        end = time.monotonic() + daemon.START_LIMIT
        while not re.search(pattern, self.text()):
            if time.monotonic() > end or not self.read(1):
                raise AssertionError(f"no {pattern} in\n{self.text()}\n{self.seen}")

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self, limit=daemon.STOP_LIMIT):
        """Its exit code; one that does not end is killed, and what it showed is told."""
        end = time.monotonic() + limit
        is_late = False
        while not is_late and self.read(max(end - time.monotonic(), 0)):
            is_late = time.monotonic() > end
        if is_late:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if is_late:
            raise AssertionError(f"it does not end\n{self.text()}\n{self.seen}")
        return code

    def hang_up(self):
        """The terminal is gone. One that does not end by that is killed."""
        os.close(self.fd)
        end = time.monotonic() + daemon.STOP_LIMIT
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it does not end\n{self.text()}\n{self.seen}")
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Falls_silent(http.server.ThreadingHTTPServer):
    """Answers the first scrape, and lets all others wait."""
    daemon_threads = True

    def __init__(self):
        self.asked = threading.Event()  # a scrape waits
        self.ended = threading.Event()
        server, scrapes = self, []

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/metrics":
                    scrapes.append(self)
                    if len(scrapes) > 1:
                        server.asked.set()
                        server.ended.wait()
                        return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"verbena_connections{transport=\"tcp\"} 7\n" if self.path == "/metrics" else b"ok\n")

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Page)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/metrics"

    def __exit__(self, *_):
        self.ended.set()
        self.shutdown()
        self.server_close()


class Top(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")

    def serve(self, *more):
        self.daemon = self.start(*more)
        self.control = os.path.join(self.folder, "state", "control")

    def run_client(self, *words, code=0):
        words = [self.client, *words]
        done = subprocess.run(words, capture_output=True, check=False, timeout=120 * daemon.SLOW, env=daemon.light(words))
        self.assertEqual(done.returncode, code, done)
        return done.stdout.decode(), done.stderr.decode()

    def with_load(self, work):
        """Runs `work` while a client asks."""
        words = [self.client, "--json", "ping", "-c", "10000000", f"nfs+tcp://127.0.0.1:{self.daemon.port('tcp')}?vers=3"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, env=daemon.light(words)) as load:
            try:
                end = time.monotonic() + daemon.START_LIMIT
                null = 'verbena_rpc_calls_total{program="nfs",version="3",procedure="NULL",transport="tcp"}'
                while not self.daemon.metric(null):
                    self.assertLess(time.monotonic(), end)
                return work()
            finally:
                load.kill()

    def test_one_interval(self):
        self.serve()
        told = json.loads(self.with_load(
            lambda: self.run_client("--json", "top", "--once", "--interval", "0.5", "--socket", self.control))[0])
        operations = {row["name"]: row for row in told["operations"]}
        null = operations["nfs 3 NULL tcp"]
        self.assertGreater(null["calls_per_second"], 0)
        self.assertEqual(null["errors_per_second"], 0)
        self.assertGreater(null["p50_seconds"], 0)
        self.assertGreaterEqual(null["p99_seconds"], null["p50_seconds"])
        self.assertGreaterEqual(told["interval_seconds"], 0.5)
        self.assertEqual(told["health"], "healthy")
        self.assertGreaterEqual(told["connections"]["tcp"], 1)
        self.assertEqual([(row["name"], row["up"]) for row in told["exports"]], [("/export", 1)])
        # For people, and by the address of the metrics.
        text, _ = self.run_client("top", "--once", "-i", "0.1", "--url", self.daemon.metrics_url())
        self.assertRegex(text, r"^verbenad \S+, up 00:\d\d:\d\d, healthy\n")
        self.assertRegex(text, r"(?m)^export +ops/s +read/s +written/s +errors/s +up\n/export +0 ")

    def test_the_screen(self):
        self.serve()
        def look():
            shown = Terminal([self.client, "top", "-i", "0.2", "--socket", self.control])
            shown.until(r"(?m)^connections: .*tcp 1; calls in flight: ")
            shown.until(r"(?m)^operation +calls/s +errors/s +p50 +p99\nnfs 3 NULL tcp +[1-9]")
            shown.until(r"(?m)^/export +0 +0 B +0 B +0 +1$")
            shown.until(r"(?m)^q quit  s sort: calls/s, ops/s  i show idle  arrows")
            shown.press(b"s")
            shown.until("s sort: errors/s, read/s  ")
            shown.press(b"i")
            shown.until("i hide idle")
            shown.press(b"jkq")
            self.assertEqual(shown.end(), 0, shown.seen)
        self.with_load(look)

    def test_the_terminal_is_given_back(self):
        self.serve()
        for end in (lambda shown: shown.press(b"q"), lambda shown: os.kill(shown.pid, signal.SIGTERM),
                    lambda shown: shown.press(b"\x1c")): # Ctrl-\, SIGQUIT
            shown = Terminal([self.client, "top", "--socket", self.control], term="xterm")
            limit = time.monotonic() + daemon.START_LIMIT
            while b"q quit" not in shown.seen:
                if time.monotonic() > limit or not shown.read(1):
                    os.kill(shown.pid, signal.SIGKILL)
                    self.fail(shown.seen)
            self.assertIn(b"\x1b[?1049h", shown.seen) # smcup
            end(shown)
            self.assertEqual(shown.end(), 0, shown.seen)
            self.assertIn(b"\x1b[?1049l", shown.seen) # rmcup

    def test_the_screen_goes_on_when_the_daemon_does_not(self):
        self.serve()
        shown = Terminal([self.client, "top", "-i", "0.2", "--url", self.daemon.metrics_url()])
        shown.until("up 00:")
        self.daemon.stop()
        shown.until("Connection refused")
        shown.press(b"q")
        self.assertEqual(shown.end(), 0, shown.seen)

    def test_a_daemon_that_does_not_answer_holds_up_no_key(self):
        for end in (lambda shown: shown.press(b"q"), lambda shown: os.kill(shown.pid, signal.SIGTERM)):
            with Falls_silent() as server:
                shown = Terminal([self.client, "top", "-i", "0.1", "--url", server.url])
                shown.until("tcp 7")
                if not server.asked.wait(daemon.START_LIMIT):
                    os.kill(shown.pid, signal.SIGKILL)
                    self.fail(shown.text())
                fcntl.ioctl(shown.fd, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 1))
                os.kill(shown.pid, signal.SIGWINCH)
                shown.press(b"i")
                shown.until("i hide idle") # is shown meanwhile
                end(shown)
                self.assertEqual(shown.end(10), 0, shown.seen) # it has 15 s of patience with the answer

    def test_a_terminal_that_is_gone_ends_it(self):
        with Falls_silent() as server:
            # nohup has this one ignored, so that the loss of the terminal alone is seen.
            shown = Terminal(["/usr/bin/env", "--ignore-signal=HUP", self.client, "top", "--interval", "3600", "--url", server.url])
            shown.until("tcp 7")
            os.kill(shown.pid, signal.SIGHUP)
            shown.press(b"i")
            shown.until("i hide idle")
            shown.hang_up()

    def test_an_answer_that_is_cut_is_no_answer(self):
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"a 1\n")

            def log_message(self, *_):
                pass
        with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            _, said = self.run_client("top", "--once", "--url", f"http://127.0.0.1:{server.server_port}/metrics", code=3)
            server.shutdown()
        self.assertIn("it ended in the middle", said)

    def test_what_is_not_there(self):
        self.serve()
        _, said = self.run_client("top", "--socket", self.control, code=2)
        self.assertIn("--once", said) # this is no terminal
        self.run_client("--json", "top", "--socket", self.control, code=2)
        self.run_client("top", "--once", "--socket", self.control, "--url", self.daemon.metrics_url(), code=2)
        self.run_client("top", "--once", "--interval", "0", code=2)
        _, said = self.run_client("top", "--once", "--interval", "nan", code=2)
        self.assertIn("no number", said)
        # A variable that is not set does not mean another daemon, or none.
        for words in (("top", "--once", "--url", ""), ("top", "--once", "--socket", ""), ("admin", "--socket", "", "status"),
                      ("doctor", "--config", ""), ("doctor", "--config", self.folder, "--peer", "")):
            _, said = self.run_client(*words, code=2)
            self.assertIn("is empty: it needs", said)
        _, said = self.run_client("top", "--once", "--socket", self.folder + "/nobody", code=3)
        self.assertIn("--url", said)
        _, said = self.run_client("top", "--once", "--url", "http://localhost/metrics", code=3)
        self.assertIn("http://ADDRESS:PORT/metrics", said)
        shown = Terminal([self.client, "top", "--socket", self.control], term="no-such-terminal")
        self.assertEqual(shown.end(), 2, shown.seen)
        self.assertIn(b"set TERM", shown.seen)

    def test_what_answers_is_no_daemon(self):
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<html>")

            def log_message(self, *_):
                pass
        with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            _, said = self.run_client("top", "--once", "--url", f"http://127.0.0.1:{server.server_port}/metrics", code=3)
            server.shutdown()
        self.assertIn("what answers there are no metrics: line 1: a sample begins with a name", said)

    def test_a_daemon_without_metrics(self):
        self.daemon = self.run_daemon("nfs", "--export", self.data, "--state", os.path.join(self.folder, "state"), "--listen",
                                      "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no", exactly=True)
        _, said = self.run_client("top", "--once", "--socket", os.path.join(self.folder, "state", "control"), code=1)
        self.assertIn("set listen in [metrics]", said)


if __name__ == "__main__":
    daemon.main()
