#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint, judged by promtool and scraped by a real Prometheus."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import daemon


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class OddNames(daemon.DaemonTest):
    """Whatever peers and administrators call things, a scrape is one that Prometheus takes."""

    ODD = (b"\xff\xfe", b"\x01\x7f", b'quo"te\\back', b"two\nlines", b"\xc2\x85\xed\xa0\x80", b"x" * 250 + b"\xff")

    def test_odd_names(self):
        words = []
        for name in self.ODD:
            words += ["--device", os.fsdecode(name) + "=4M"]
        self.daemon = self.run_daemon("block", "--metrics", "127.0.0.1:0", "--state", os.path.join(self.folder, "state"),
                                      "--listen", "iwarp://127.0.0.1:0", *words, "--device", "plain=4M", exactly=True)
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for name in self.ODD:
            session = name.replace(b".", b"_").replace(b"/", b"_")
            subprocess.run([client, "-q", "block", "read", "--length", "4K", "--session", session,
                            f"rnbd+iwarp://127.0.0.1:{self.daemon.port('iwarp')}/plain"], check=True, timeout=60 * daemon.SLOW,
                           stdout=subprocess.DEVNULL)
        self.check("verbena_rnbd_device_operations_total", "verbena_rtrs_path_requests_total", "verbena_blocking_threads")
        self.assertEqual(len(re.findall(r'^verbena_rtrs_path_requests_total\{.*kind="read"', self.daemon.scrape(), re.M)), len(self.ODD))

    def test_odd_exports(self):
        os.mkdir(os.fsencode(self.data) + b"/\xff\x01")
        self.daemon = self.start(export=os.fsdecode(b"/\xff\x01"))
        self.check("verbena_blocking_threads", "verbena_nfs_read_bytes_total")

    def check(self, *families):
        text = self.daemon.scrape()
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        for family in families:
            self.assertRegex(text, rf"(?m)^{family}[ {{]")


class Metrics(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("--shards", "3", "--manage-gids")
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(bytes(100_000))
        self.run_tool("nfs-cp", self.daemon.nfs_url("file"), os.path.join(self.folder, "copy"))

    def test_promtool_has_no_complaint(self):
        text = self.daemon.scrape()
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                              timeout=60 * daemon.SLOW, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_every_family_of_a_scrape_is_documented(self):
        with open(os.path.join(daemon.SOURCES, "docs/reference/metrics.md"), encoding="utf-8") as file:
            documented = set(re.findall(r"^\| `(\w+)`", file.read(), re.M))
        scraped = set(re.findall(r"^# TYPE (\w+)", self.daemon.scrape(), re.M))
        self.assertIn("verbena_rpc_calls_total", scraped)
        self.assertIn("verbena_scrapes_total", scraped)
        self.assertEqual(scraped - documented, set())
        # A row without a family is out of date, unless it is about a device, a filter or a program that isn't here.
        absent = ("verbena_rdma_", "verbena_memfs_", "verbena_delay_", "verbena_error_", "verbena_limit_", "verbena_rpc_program_errors_", "verbena_rpcrdma_client_",
                  "verbena_rtrs_",
                  "verbena_rnbd_", "verbena_block_", "verbena_fileblk_", "verbena_nfs4_",
                  "verbena_nfs_errors_") # as they occur
        self.assertEqual({name for name in documented - scraped if not name.startswith(absent)}, set())

    def test_connections_that_say_nothing_keep_no_scrape_out(self):
        where = urllib.parse.urlsplit(self.daemon.metrics_url())
        silent = [socket.create_connection((where.hostname, where.port)) for _ in range(80)]
        try:
            self.assertIn("verbena_rpc_calls_total", self.daemon.scrape())
        finally:
            for connection in silent:
                connection.close()

    def test_calls_are_counted_by_procedure_and_transport(self):
        labels = '{program="nfs",version="3",procedure="%s",transport="tcp"}'
        self.assertGreaterEqual(self.daemon.metric("verbena_rpc_calls_total" + labels % "READ"), 1)
        self.assertGreaterEqual(self.daemon.metric("verbena_rpc_sent_bytes_total" + labels % "READ"), 100_000)
        self.assertEqual(self.daemon.metric("verbena_rpc_latency_seconds_count" + labels % "READ"),
                         self.daemon.metric("verbena_rpc_calls_total" + labels % "READ"))
        self.assertEqual(self.daemon.metric("verbena_nfs_read_bytes_total"), 100_000)

    def test_prometheus_scrapes_it(self):
        target = urllib.parse.urlsplit(self.daemon.metrics_url()).netloc
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: verbena\n"
                       f"  static_configs: [{{targets: ['{target}']}}]\n")
        port = free_port()
        binary = shutil.which("prometheus")
        self.assertIsNotNone(binary, "needs the package prometheus")
        with open(os.path.join(self.folder, "prometheus.log"), "wb") as log:
            prometheus = subprocess.Popen(
                [binary, "--config.file", config, "--storage.tsdb.path", os.path.join(self.folder, "tsdb"),
                 "--web.listen-address", f"127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            value = self.query(port, 'sum(verbena_rpc_calls_total{job="verbena",program="nfs"})')
            self.assertGreaterEqual(value, 1)
            # One scrape may have been too slow for its second.
            self.assertEqual(self.query(port, 'max_over_time(up{job="verbena"}[1m])'), 1)
            self.assertEqual(self.query(port, "count(verbena_shard_turns_total)"), 3)
            quantile = self.query(port, "histogram_quantile(0.5, sum by (le) (verbena_rpc_latency_seconds_bucket))")
            self.assertTrue(0 < quantile < 10, quantile)
        finally:
            prometheus.terminate()
            try:
                prometheus.wait(30 * daemon.SLOW)
            except subprocess.TimeoutExpired: # it waits for a disk
                prometheus.kill()
                prometheus.wait()

    def query(self, port, expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        limit = time.monotonic() + 60 * daemon.SLOW
        while time.monotonic() < limit:
            try:
                with urllib.request.urlopen(url, timeout=5 * daemon.SLOW) as answer:
                    result = json.load(answer)["data"]["result"]
                if result:
                    return float(result[0]["value"][1])
            except (OSError, ValueError):
                pass # not up yet, or slow
            time.sleep(0.2)
        raise AssertionError(f"Prometheus has no answer to {expression}")


if __name__ == "__main__":
    daemon.main()
