#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus and Grafana are given: the alert rules, the board, and the queries of docs/howto/monitor.md. Each metric that they name is
there; each query has data; each rule is silent on a daemon that is well, and true once what it is about has been done to it."""
import base64
import hashlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import bad_disks_test
import daemon
import hung_disk
import peers
import pnfs_client
from peers import TcpPeer, opaque

MIB = 1 << 20
GETATTR = 1
BLOCK = 65536 # of memfs
# Rules that nothing here makes true; promtool has tests of them. Memory is taken back from peers before it is short, and whether a turn is what
# a stopped process stands in is chance.
NO_FAULT = {"VerbenaExportSuspended", "VerbenaMemoryShort", "VerbenaNotScraped", "VerbenaReloadFailed", "VerbenaShardStalled",
            "VerbenaStateNotWritten"}
# Rules of how long something takes: a busy machine makes them true of a daemon that is well.
OF_TIMES = {"VerbenaDiskHangs", "VerbenaShardStalled", "VerbenaSlowCalls"}
# What daemons with an RDMA device alone have.
NEEDS_DEVICE = re.compile(r"verbena_rdma_|other_device")
# Metrics that a daemon has once it can reload its configuration. They are looked at if they are there.
NOT_YET = {"verbena_config_last_reload_successful"}


def source(*names):
    with open(os.path.join(daemon.SOURCES, *names), encoding="utf-8") as file:
        return file.read()


def rules():
    """The expressions of the alert rules by their names, as far as this file writes them: one line, or folded ones."""
    found = {}
    for part in re.split(r"\n\s*- alert: ", source("services/monitoring/alerts.yml"))[1:]:
        name, rest = part.split("\n", 1)
        expression = re.search(r"\bexpr: (?:>-\n)?(.*?)\n\s*(?:for|labels):", rest, re.S)[1]
        found[name] = " ".join(expression.split())
    return found


def board():
    """The queries of the board, with what stands for its variables."""
    for panel in json.loads(source("services/monitoring/dashboard.json"))["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")


def page():
    """The queries of the page on monitoring: the code in its tables that names a metric."""
    for line in source("docs/howto/monitor.md").splitlines():
        if line.startswith("|"):
            for code in re.findall(r"`([^`]*)`", line.replace(r"\|", "|")):
                if re.search(r"\b(verbena|process)_\w+[ {\[)]|^(verbena|process)_\w+$", code):
                    yield code


def series_of(text):
    """The labels of the series of a scrape, by name."""
    found = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? [^ ]+$", text, re.M):
        found.setdefault(name, []).append(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
    return found


def fits(labels, matchers):
    for name, how, value in re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', matchers):
        if name in ("job", "instance"): # Prometheus adds them
            continue
        own = labels.get(name, "")
        same = re.fullmatch(value, own) is not None if "~" in how else own == value
        if same == how.startswith("!"):
            return False
    return True


class Loaded(daemon.DaemonTest):
    """A daemon that has everything, and clients of everything."""
    more = ""

    def serve(self, nfs="", exports="", block=""):
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = 2
drain_seconds = 1
control = "off"
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
{nfs}
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
root_squash = false
[[nfs.export]]
pseudo = "/layouts"
backend = "memfs"
pnfs = true
{exports}
[block]
listen = ["iwarp://127.0.0.2:0"]
[[block.device]]
name = "disk"
backend = "ramblk"
size = "8M"
[[block.device]]
name = "file"
path = "{self.folder}/device"
size = "1M"
{block}
""")
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = {}
        for line in self.daemon.lines:
            found = re.fullmatch(r"listening at (tcp|iwarp)://(.*):(\d+)", line)
            if found:
                self.ports["block" if found[2] == "127.0.0.2" else found[1]] = int(found[3])

    def client(self, *words, status=0):
        binary = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([binary, "-q", *words], capture_output=True, timeout=120 * daemon.SLOW, check=False, env=daemon.light(words))
        self.assertEqual(done.returncode, status, done.stderr)

    def url(self, path, transport="tcp"):
        return f"nfs+{transport}://127.0.0.1:{self.ports[transport]}{path}"

    def device(self, name):
        return f"rnbd+iwarp://127.0.0.2:{self.ports['block']}/{name}"

    def load(self):
        """By version 3, 4.2, a layout, and as a block client; each has an answer that is an error, too."""
        caller = TcpPeer(self.ports["tcp"])
        root = caller.mount()
        file = caller.create(root, "by3")
        self.assertEqual(caller.nfs(GETATTR, opaque(root)).nfs_status(), 0)
        for _ in range(10):
            self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(file, 0, bytes(5000))).nfs_status(), 0)
            self.assertEqual(caller.nfs(peers.READ, peers.read_arguments(file, 0, 5000)).nfs_status(), 0)
        self.assertNotEqual(caller.call(peers.LOOKUP, opaque(root) + opaque(b"absent")).nfs_status(), 0)
        caller.close()
        local = os.path.join(self.folder, "local")
        with open(local, "wb") as out:
            out.write(os.urandom(MIB))
        for transport in ("tcp", "iwarp"):
            self.client("cp", local, self.url("/export/by4", transport))
            self.client("cp", self.url("/export/by4", transport), os.path.join(self.folder, "back"))
        self.client("block", "write", self.device("disk"), local)
        self.client("block", "read", "--length", "64K", self.device("disk"), os.path.join(self.folder, "back"))
        if not hasattr(self, "pnfs"):
            self.pnfs = pnfs_client.Client(self.ports["tcp"], b"layouts").connect()
            self.addCleanup(self.pnfs.close)
            folder = self.pnfs.look_up(b"layouts")
            handle, stateid = self.pnfs.open(folder, b"file")
            self.pnfs.write(handle, stateid, 0, bytes(BLOCK))
            layout = self.pnfs.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=BLOCK)
            data = pnfs_client.DataConnection(pnfs_client.endpoint(*self.pnfs.device(layout.extents[0].device)), self.pnfs,
                                              layout.extents[0].device)
            self.addCleanup(data.close)
            data.put(layout, 0, b"content")


class Names(Loaded):
    """In `./check`, as it needs no Prometheus."""

    def test_each_metric_that_is_named_is_there(self):
        self.serve()
        self.load()
        there = series_of(self.daemon.scrape())
        queries = [*rules().values(), *board(), *page()]
        self.assertGreater(len(queries), 80)
        missing = []
        for query in queries:
            grouped, selected = set(), []
            if NEEDS_DEVICE.search(query):
                continue
            for name, matchers in re.findall(r"\b((?:verbena|process)_\w+)(?:\{([^}]*)\})?", query):
                if name in NOT_YET and name not in there:
                    continue
                fitting = [labels for labels in there.get(name, []) if fits(labels, matchers)]
                if not fitting:
                    missing.append(f"{query}: no series {name} of {matchers}")
                selected += fitting
            for labels in re.findall(r"\b(?:by|on|without) \(([^)]*)\)", query):
                grouped |= {word.strip() for word in labels.split(",")}
            for label in grouped - {"instance", "job"}:
                if not any(label in labels for labels in selected):
                    missing.append(f"{query}: no series has {label}")
        self.assertEqual(missing, [])

    def test_a_browser_is_shown_a_page_of_its_own(self):
        self.serve()
        self.load()
        with urllib.request.urlopen(self.daemon.metrics_url().replace("/metrics", "/"), timeout=10 * daemon.SLOW) as answer:
            headers, shown = answer.headers, answer.read().decode()
        self.assertEqual(shown, source("services/monitoring/front_page.html"))
        self.assertEqual((headers["Content-Type"], headers["Cache-Control"], headers["X-Content-Type-Options"]),
                         ("text/html; charset=utf-8", "no-store", "nosniff"))
        # Nothing comes from elsewhere, and what stands in the page alone is run.
        self.assertNotRegex(shown, r"(?i)\b(https?|wss?|ftp):|[\"'(]//|@import|\bsrc=")
        self.assertEqual(re.findall(r'href="([^"]*)"', shown), ["data:,", "/metrics", "/healthz", "/readyz", "/metrics"])
        self.assertEqual(re.findall(r'fetch\(([^,]*),|\bask\(("[^"]*")', shown),
                         [("path", ""), ("", '"/healthz"'), ("", '"/readyz"'), ('"/metrics"', "")])
        self.assertNotRegex(shown, r"\beval\(|innerHTML|\bon\w+=|style=")
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        self.assertEqual(policy["default-src"], "'self'")
        for tag, directive in (("script", "script-src"), ("style", "style-src")):
            (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", shown, re.S)
            self.assertEqual(policy[directive], f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'")
        # Each family that it reads is documented, and there.
        named = set(re.findall(r"\b(?:verbena|process)_\w+", shown))
        self.assertGreater(len(named), 25)
        documented = set(re.findall(r"^\| `(\w+)` \|", source("docs/reference/metrics.md"), re.M))
        self.assertEqual(named - documented, set())
        there = series_of(self.daemon.scrape())
        self.assertEqual({name for name in named if name not in there and name + "_bucket" not in there}, set())
        # And each label by which it tells lines apart.
        for name, label in re.findall(r'"(verbena_\w+)", (?:\.?\d+, )?l => [^\n]*?\bl\.(\w+)', shown):
            series = there.get(name) or there[name + "_bucket"]
            self.assertIn(label, series[0], name)

    def test_what_calls_do_is_told_by_operation_and_by_export(self):
        self.serve(exports='[[nfs.export]]\npseudo = "/media"\nbackend = "memfs"\nread_only = true\n')
        caller = TcpPeer(self.ports["tcp"])
        self.addCleanup(caller.close)
        root = caller.mount()
        file = caller.create(root, "by3")
        before = self.daemon.metric('verbena_export_operations_total{export="/export",kind="other"}')
        self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(file, 0, bytes(5000))).nfs_status(), 0)
        self.assertEqual(caller.nfs(peers.READ, peers.read_arguments(file, 0, 4000)).nfs_status(), 0)
        self.assertEqual(caller.call(peers.LOOKUP, opaque(root) + opaque(b"absent")).nfs_status(), bad_disks_test.NOENT)
        of3 = self.told()
        self.assertEqual(of3, (1, 1, before + 1, 4000, 5000))
        self.assertEqual(self.daemon.metric('verbena_nfs_errors_total{version="3",operation="LOOKUP",status="NFS3ERR_NOENT"}'), 1)
        other = pnfs_client.Client(self.ports["tcp"], b"one").connect()
        self.addCleanup(other.close)
        folder = other.look_up(b"export")
        handle, stateid = other.open(folder, b"by4")
        other.write(handle, stateid, 0, bytes(300))
        self.assertEqual(len(other.read(handle, stateid, 0, 200)), 200)
        with self.assertRaises(pnfs_client.Refused):
            other.look_up(b"export", b"absent")
        reads, writes, others, read, written = self.told()
        # OPEN, and three LOOKUPs: two that lead to the export, and one in it. PUTFH, GETFH and SEQUENCE count nowhere.
        self.assertEqual((reads, writes, others, read, written), (2, 2, of3[2] + 4, 4200, 5300))
        self.assertEqual(self.daemon.metric('verbena_nfs_errors_total{version="4",operation="LOOKUP",status="NFS4ERR_NOENT"}'), 1)
        for operation, times in (("READ", 1), ("WRITE", 1), ("OPEN", 1)):
            self.assertEqual(self.daemon.metric(f'verbena_nfs4_operation_seconds_count{{operation="{operation}"}}'), times)
        self.assertIsNone(self.daemon.metric('verbena_nfs4_operation_seconds_count{operation="PUTFH"}'))
        self.assertEqual(self.daemon.metric('verbena_export_operations_total{export="/layouts",kind="write"}'), 0)
        # statvfs(3) of the same file system.
        there = os.statvfs(self.data)
        self.assertEqual(self.daemon.metric('verbena_export_size_bytes{export="/export"}'), there.f_blocks * there.f_frsize)
        self.assertLess(self.daemon.metric('verbena_export_room_age_seconds{export="/export"}'), 60 * daemon.SLOW)
        # A device that nobody has opened: a rate sees its first failure.
        self.assertEqual(self.daemon.metric('verbena_rnbd_device_failed_operations_total{device="file",reason="io"}'), 0)
        # Nobody can write to the media, which have no room left as long as they are: no alert. No disk is beneath them that could go.
        there = series_of(self.daemon.scrape())
        told_of = {name: {labels["export"] for labels in there[name]} for name in there if name.startswith("verbena_export_")}
        self.assertEqual({name for name, exports in told_of.items() if "/media" not in exports},
                         {"verbena_export_" + part for part in
                          ("size_bytes", "free_bytes", "available_bytes", "files", "free_files", "room_age_seconds", "suspended")})

    def told(self):
        of = '{export="/export",%s}'
        return tuple(self.daemon.metric(name + of % label) for name, label in
                     [("verbena_export_operations_total", f'kind="{kind}"') for kind in ("read", "write", "other")]
                     + [("verbena_export_bytes_total", f'direction="{way}"') for way in ("read", "write")])


class Rules(daemon.DaemonTest):
    def test_the_rules_have_tests_that_they_pass(self):
        folder = os.path.join(daemon.SOURCES, "services/monitoring")
        self.run_tool("promtool", "check", "rules", os.path.join(folder, "alerts.yml"))
        self.run_tool("promtool", "test", "rules", os.path.join(folder, "alerts_test.yml"))
        tested = set(re.findall(r"alertname: (\w+)\n\s*exp_alerts:\n", source("services/monitoring/alerts_test.yml")))
        self.assertEqual(tested, set(rules()))


class Alerts(Loaded):
    """With a real Prometheus: not in `./check`, which has no minute for it."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise AssertionError("these tests mount file systems: run them as root")
        bad_disks_test.own_mounts()

    def setUp(self):
        super().setUp()
        self.folders = {}
        for name in ("small", "gone", "hung"):
            self.folders[name] = os.path.join(self.folder, name)
            os.mkdir(self.folders[name])
        for name in ("small", "gone"):
            self.run_tool("mount", "-t", "tmpfs", "-o", "size=2m,mode=0777", "none", self.folders[name])
            self.addCleanup(subprocess.run, ["umount", "-l", self.folders[name]], check=False, capture_output=True)
        self.disk = hung_disk.HungDisk(self.folders["hung"])
        self.addCleanup(self.disk.close)
        self.serve(nfs="[nfs.limits]\nsessions = 10\n", exports=f"""[[nfs.export]]
directory = "{self.folders['small']}"
pseudo = "/small"
[[nfs.export]]
directory = "{self.folders['gone']}"
pseudo = "/gone"
mountpoint = true
[[nfs.export]]
directory = "{self.folders['hung']}"
pseudo = "/hung"
[[nfs.export]]
pseudo = "/others"
backend = "memfs"
clients = ["192.0.2.0/24"]
[[nfs.export]]
pseudo = "/failing"
backend = "memfs"
[[nfs.export.filter]]
name = "error"
operations = ["write"]
code = "EIO"
every = 1
""", block="""[[block.device]]
name = "failing"
backend = "ramblk"
size = "1M"
[[block.device.filter]]
name = "error"
operations = ["write"]
code = "EIO"
every = 1
""")
        self.addCleanup(self.disk.close) # before the daemon is waited for, whatever has failed
        self.unread = self.serve_unread()
        self.start_prometheus()

    def serve_unread(self):
        """Another daemon, whose standard error is a pipe that nobody reads."""
        folder = os.path.join(self.folder, "unread")
        os.mkdir(folder)
        reads, writes = os.pipe()
        d = self.run_daemon("nfs", "--export", ":/memory,backend=memfs", "--state", os.path.join(folder, "state"), "--listen", "tcp://127.0.0.1:0",
                            "--metrics", "127.0.0.1:0", "--rpcbind", "no", "--shards", "1", "--log-level", "trace",
                            folder=folder, exactly=True, before_start=lambda: os.dup2(writes, 2))
        os.close(writes)
        self.addCleanup(os.close, reads)
        return d

    def start_prometheus(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        targets = [urllib.parse.urlsplit(d.metrics_url()).netloc for d in (self.daemon, self.unread)]
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                       f"rule_files: [{daemon.SOURCES}/services/monitoring/alerts.yml]\n"
                       f"scrape_configs:\n- job_name: verbena\n  static_configs: [{{targets: {json.dumps(targets)}}}]\n")
        with open(os.path.join(self.folder, "prometheus.log"), "wb") as log:
            prometheus = subprocess.Popen( # pylint: disable=consider-using-with
                [shutil.which("prometheus"), "--config.file", config, "--storage.tsdb.path", os.path.join(self.folder, "tsdb"),
                 "--web.listen-address", f"127.0.0.1:{self.port}"], stdout=log, stderr=log)

        def end():
            prometheus.terminate()
            try:
                prometheus.wait(30 * daemon.SLOW)
            except subprocess.TimeoutExpired: # it waits for a disk
                prometheus.kill()
                prometheus.wait()
        self.addCleanup(end)

    def ask(self, what, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?" + urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(url, timeout=30 * daemon.SLOW) as answer:
            return json.load(answer)["data"]

    def result(self, query):
        return self.ask("query", query=query)["result"]

    def until(self, holds, what, limit=120):
        end = time.monotonic() + limit * daemon.SLOW
        while True:
            try:
                if holds():
                    return
            except OSError: # Prometheus is not up yet, or slow
                pass
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.5)

    def test_queries_have_data_and_faults_fire_rules(self):
        self.until(lambda: len(self.result("up == 1")) == 2, "Prometheus scrapes both")
        told = {rule["name"]: rule["query"] for group in self.ask("rules")["groups"] for rule in group["rules"]}
        self.assertEqual(set(told), set(rules()))
        # Twice: a rate needs two values of a series, and some are born with the first call.
        for _ in range(2):
            self.load()
            time.sleep(3)
        firing = {name: self.result(query) for name, query in told.items() if name not in OF_TIMES}
        self.assertEqual({name: found for name, found in firing.items() if found}, {}, "a daemon that is well has no alerts")
        for query in board():
            self.until(lambda query=query: self.result(query), f"no data: {query}", 30)
        for query in page():
            # What is watched has no data while all is well: then the sides of its comparison have.
            for part in re.split(r" (?:==|<|>|>=|<=) (?![^()]*\))", query):
                if not NEEDS_DEVICE.search(part) and not re.fullmatch(r"[0-9.]+", part):
                    self.until(lambda part=part: self.result(part), f"no data: {part} of {query}", 30)

        self.fired = set()
        self.faults()
        for name in sorted(set(told) - NO_FAULT - self.fired):
            self.fires(name)
        found = {one["metric"].get("export") for one in self.result(told["VerbenaExportFull"])}
        self.assertEqual(found, {"/small"})

    def fires(self, name):
        self.until(lambda: self.result(rules()[name]), f"{name} is not true after its fault")
        self.fired.add(name)

    def faults(self):
        # A full disk, by version 4.2.
        large = os.path.join(self.folder, "large")
        with open(large, "wb") as out:
            out.write(os.urandom(4 * MIB))
        self.client("cp", large, self.url("/small/large"), status=1)
        self.client("cp", large, self.url("/failing/large"), status=1)
        # A device that fails from its first operation.
        self.client("block", "write", self.device("failing"), os.path.join(self.folder, "back"), status=1)
        # A disk that hangs.
        caller = TcpPeer(self.ports["tcp"])
        self.addCleanup(caller.close)
        hung = caller.mount("/hung")
        self.disk.hang()
        caller.send(peers.call_message(4711, GETATTR, opaque(hung)))
        self.disk.wait_for(1)
        # A disk that is not mounted.
        subprocess.run(["umount", "-l", self.folders["gone"]], check=True)
        # A client that may not.
        refused = TcpPeer(self.ports["tcp"])
        self.addCleanup(refused.close)
        self.assertNotEqual(refused.call(1, opaque(b"/others"), program=peers.MOUNT).nfs_status(), 0)
        # A block client that goes without a word.
        binary = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        with subprocess.Popen([binary, "-q", "block", "bench", "--seconds", "60", self.device("disk")], stdout=subprocess.DEVNULL) as gone:
            self.until(lambda: self.daemon.metric("verbena_rtrs_paths"), "a path")
            gone.kill()
        self.until(lambda: self.result("sum(verbena_rtrs_paths) == 0"), "the path is gone")
        # As many sessions as there may be.
        for number in range(9):
            client = pnfs_client.Client(self.ports["tcp"], b"many %d" % number).connect()
            self.addCleanup(client.close)
        # Few descriptors.
        used = int(self.daemon.metric("process_open_fds"))
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (used + 2, used + 2))
        self.fires("VerbenaDescriptorsShort") # before others close theirs
        # A log that nobody reads.
        talker = TcpPeer(self.unread.port("tcp"))
        self.addCleanup(talker.close)
        root = talker.mount("/memory")
        for _ in range(100):
            for xid in range(100):
                talker.send(peers.call_message(10000 + xid, GETATTR, opaque(root)))
            for xid in range(100):
                talker.receive()
        self.fires("VerbenaLogLinesDropped")
        # The hung disk gives its calls back, which took long.
        self.fires("VerbenaDiskHangs")
        self.disk.close()
        self.assertEqual(caller.receive().xid, 4711)
        self.unread.process.kill()
        self.fires("VerbenaDown")


if __name__ == "__main__":
    daemon.main()
