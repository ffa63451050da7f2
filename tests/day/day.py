#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An operator's day: `day.py ROOT PACKAGE NEWER WORK`.

ROOT is a folder with Debian, systemd, Prometheus and nbdkit, and what PACKAGE depends on; NEWER is the same package with a higher version. systemd
boots in it, and each step does what docs/howto says. Clients are on hosts of their own: two network namespaces."""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse

import container
import steps
from container import CLIENT, LIMIT, OTHER, SERVER, SLOW, Failed, command, until
from steps import check, digest

TCP, IWARP = f"nfs+tcp://{SERVER}", f"nfs+iwarp://{SERVER}"
CONFIG = "/etc/verbena/verbenad.toml"
PEER_CONNECTIONS = 8
LEASE = 15
SLOWLY = 2_000_000 // SLOW # bytes a second, of the export /slow as long as it has its filter
LONG = 128 * 2_000_000 # of which no step sees the end before the filter is gone
FILTER = f"""
[[nfs.export.filter]]
name = "limit"
export_bytes = {SLOWLY}
"""
# office.toml of the package, with what this day is about.
BASE = f"""[daemon]
shards = 2
peer_connections = {PEER_CONNECTIONS}

[nfs]
listen = ["tcp://{SERVER}:2049", "iwarp://{SERVER}:20049"]
lease = {LEASE}

[block]
listen = ["iwarp://{SERVER}:1234"]
queue_depth = 64

[[block.device]]
name = "vm1"
path = "/srv/block/vm1.img"
size = "32M"
block_size = 4096
clients = ["10.77.0.0/16"]

[[nfs.export]]
directory = "/srv/data"
pseudo = "/data"
clients = ["10.77.0.0/16"]

[[nfs.export]]
directory = "/srv/disk"
pseudo = "/disk"
clients = ["10.77.0.0/16"]
mountpoint = true

[[nfs.export]]
directory = "/srv/slow"
pseudo = "/slow"
clients = ["10.77.0.0/16"]
"""
NULL = bytes.fromhex("00000000 00000002 000186a3 00000003") + bytes(20) # behind the XID: a call of NFS version 3
PROMETHEUS = """global:
  scrape_interval: 1s
  evaluation_interval: 1s
scrape_configs:
  - job_name: verbena
    static_configs:
      - targets: ['127.0.0.1:9464']
rule_files:
  - /etc/prometheus/verbena-alerts.yml
"""


class Day:
    """The steps, in the order in which they stand here."""

    def __init__(self, root, package, newer, work):
        self.package, self.newer, self.work = package, newer, work
        self.host = container.Container(root, work)
        self.client = os.path.join(work, "client/usr/bin/verbena") # another host has its own
        command("dpkg-deb", "-x", package, os.path.join(work, "client"))
        self.begun = [] # processes on clients' hosts
        self.tree = os.path.join(work, "tree")
        drawn = random.Random(7)
        for number in range(40):
            folder = os.path.join(self.tree, f"folder {number % 4}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"file-{number}"), "wb") as file:
                file.write(drawn.randbytes(drawn.choice((0, 1, 4097, 300_000))))
        self.long = os.path.join(work, "long")
        with open(self.long, "wb") as file:
            for _ in range(128):
                file.write(drawn.randbytes(LONG // 128))

    # --- what steps are made of ---

    def on_client(self, *words, host=None, **options):
        """verbena on a client's host."""
        return command(*self.on(host), self.client, *words, **options)

    @staticmethod
    def on(host):
        return ["nsenter", f"--net=/run/netns/{host}"] if host else []

    def begin(self, *words, host=None):
        """Begins a command of a client, which says what it says into a file."""
        said = open(os.path.join(self.work, f"said-{len(self.begun)}"), "wb") # pylint: disable=consider-using-with
        process = subprocess.Popen([*self.on(host), self.client, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        process.said = lambda: self.text(said.name)
        self.begun.append(process)
        return process

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @staticmethod
    def whole(process):
        """Waits for a client's command to end well."""
        try:
            status = process.wait(4 * LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"{process.args}: it does not end: {process.said()}") from None
        check(status == 0, process.args, status, process.said())

    def same_tree(self, one, other):
        """Compares two folders, names and contents."""
        command("diff", "-r", one, other)

    def admin(self, *words, **options):
        return json.loads(self.host.run("verbena", "--json", "admin", *words, **options))["rows"]

    def metrics(self):
        return self.host.run("curl", "-sS", "--max-time", "10", "http://127.0.0.1:9464/metrics")

    def metric(self, name):
        """The value of a metric, by its name with labels; 0 if it is not there."""
        found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", self.metrics())
        return float(found[1]) if found else 0

    def prometheus(self, path, **query):
        said = self.host.run("curl", "-sS", "--max-time", "10", f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}")
        answer = json.loads(said)
        check(answer["status"] == "success", answer)
        return answer["data"]

    def alerts(self, state="firing"):
        """Names of alerts, with the export if they are of one."""
        return {each["labels"]["alertname"] + each["labels"].get("export", "") for each in self.prometheus("alerts")["alerts"]
                if each["state"] == state}

    def logged(self, text, priority=None):
        """The entry of the journal that has `text`, once it is there."""
        words = ["-p", priority] if priority else []
        return until(f"the journal has {text!r}", lambda: next(
            (entry for entry in self.host.journal(*words) if isinstance(entry["MESSAGE"], str) and text in entry["MESSAGE"]), None))

    def serves(self):
        state, status = self.host.unit("verbenad", "ActiveState", "StatusText")
        return state == "active" and status

    def configure(self, text):
        self.host.write(CONFIG, text)

    def files_of_host(self):
        """All that the package, or a day with it, could leave; not what apt, systemd and Prometheus write of themselves."""
        left_out = "proc sys dev run tmp srv var/lib/dpkg var/lib/apt var/cache var/log var/backups var/tmp var/lib/prometheus var/lib/systemd root"
        words = []
        for each in left_out.split():
            words += ["-o", "-path", f"./{each}"]
        return command("find", ".", "(", *words[1:], ")", "-prune", "-o", "-print", cwd=self.host.root).splitlines()

    # --- the day ---

    def install(self):
        """apt-get install, which starts nothing."""
        self.host.boot()
        self.before = self.files_of_host()
        for package, name in ((self.package, "verbena.deb"), (self.newer, "newer.deb")):
            shutil.copyfile(package, self.host.path(f"/root/{name}"))
        self.host.run("apt-get", "install", "-y", "-q", "./verbena.deb", limit=4 * LIMIT)
        state, enabled = self.host.unit("verbenad", "ActiveState", "UnitFileState")
        check((state, enabled) == ("inactive", "disabled"), "after the installation the unit is", state, enabled)

    def configuration(self):
        """A mistake is found before a start, and by it; the unit does not start again by itself."""
        for folder in ("data", "disk", "slow", "block"):
            os.mkdir(self.host.path(f"/srv/{folder}"))
        for folder in ("data", "slow"):
            self.host.run("chown", "nobody:nogroup", f"/srv/{folder}")
        with open(self.host.path("/etc/fstab"), "a", encoding="utf-8") as file:
            file.write("/dev/disk0 /srv/disk ext4 nofail 0 0\n")
        self.host.run("mount", "/srv/disk")
        self.host.run("chown", "nobody:nogroup", "/srv/disk")
        self.configure(BASE.replace("shards", "shads") + FILTER)
        said = self.host.run("verbenad", "serve", CONFIG, "--check", "--quiet", code=None)
        check(said.returncode == 2 and "did you mean shards?" in said.stderr, said)
        said = self.host.run("systemctl", "enable", "--now", "verbenad", code=None)
        check(said.returncode != 0, "a start with a mistake succeeds")
        state, result, again, status = self.host.unit("verbenad", "ActiveState", "Result", "NRestarts", "ExecMainStatus")
        check((state, result, again, status) == ("failed", "exit-code", "0", "2"), state, result, again, status)
        self.logged("did you mean shards?", "err")
        self.configure(BASE + FILTER)
        said = self.host.run("verbenad", "serve", CONFIG, "--check", "--quiet")
        check(said == "", said)

    def start(self):
        """systemctl enable --now: it is active when it serves, and says what."""
        self.host.run("systemctl", "enable", "--now", "verbenad")
        kind, state, status = self.host.unit("verbenad", "Type", "ActiveState", "StatusText")
        check((kind, state) == ("notify", "active"), kind, state)
        check(SERVER in status, "status:", status)
        self.logged("ready")
        check(self.host.run("curl", "-sS", "http://127.0.0.1:9464/healthz").strip() == "ok", "/healthz")
        check([row["state"] for row in self.admin("exports")] == ["up"] * 3, self.admin("exports"))

    def export(self):
        """Files go there and come back by both transports, and the host has them."""
        self.on_client("doctor", TCP + "/data")
        for number, url in enumerate((TCP, IWARP)):
            back = os.path.join(self.work, f"back{number}")
            self.on_client("-q", "cp", "-r", "--checksum", self.tree, f"{url}/data/tree{number}")
            self.on_client("-q", "cp", "-r", f"{url}/data/tree{number}", back)
            self.same_tree(self.tree, back)
            self.same_tree(self.tree, self.host.path(f"/srv/data/tree{number}"))
        self.on_client("-q", "cp", self.tree + "/folder 0/file-0", TCP + "/disk/file")

    def block(self):
        """A block device for verbena block, and by nbdkit for whatever speaks NBD."""
        device = f"rnbd+iwarp://{SERVER}/vm1"
        self.on_client("-q", "block", "verify", "--write", "--read", device)
        image = os.path.join(self.work, "image")
        with open(image, "wb") as file:
            file.write(random.Random(3).randbytes(32 << 20))
        shutil.copyfile(image, self.host.path("/root/image"))
        self.host.run("sh", "-ec", f"""
            nbdkit -P /run/nbdkit.pid -U /run/nbd.sock verbena url={device}
            nbdcopy --flush /root/image nbd+unix:///?socket=/run/nbd.sock
            kill $(cat /run/nbdkit.pid); rm /root/image""", limit=2 * LIMIT)
        self.on_client("-q", "block", "read", device, os.path.join(self.work, "read"))
        check(digest(image) == digest(os.path.join(self.work, "read")), "the device has something else")

    def monitor(self):
        """Prometheus with the alert rules of the package: nothing to tell."""
        shutil.copyfile(self.host.path("/usr/share/verbena/alerts.yml"), self.host.path("/etc/prometheus/verbena-alerts.yml"))
        self.host.write("/etc/prometheus/prometheus.yml", PROMETHEUS)
        self.host.run("promtool", "check", "config", "/etc/prometheus/prometheus.yml")
        self.host.run("systemctl", "restart", "prometheus")
        until("Prometheus scrapes", lambda: self.host.ask("curl", "-sS", "http://127.0.0.1:9090/-/ready").returncode == 0 and
              [each["health"] for each in self.prometheus("targets")["activeTargets"]] == ["up"])
        names = {rule["name"] for group in self.prometheus("rules")["groups"] for rule in group["rules"]}
        check({"VerbenaExportDown", "VerbenaClientsRefused", "VerbenaReloadFailed"} <= names, names)
        until("the rules are evaluated", lambda: all(rule["lastEvaluation"][:4] > "0001" and rule["health"] == "ok"
                                                      for group in self.prometheus("rules")["groups"] for rule in group["rules"]))
        check(not self.alerts(), self.alerts())

    def unmounted(self):
        """A disk that goes: its export is down, and the others are served."""
        self.host.run("umount", "-l", "/srv/disk")
        until("the export is down", lambda: self.metric('verbena_export_up{export="/disk"}') == 0)
        entry = self.logged("an export is not served", "warning")
        check("export=/disk" in entry["MESSAGE"] and "why=" in entry["MESSAGE"], entry)
        down = {row["path"]: row for row in self.admin("exports")}["/disk"]
        check(down["state"] == "down" and "mount" in down["why_down"], down)
        self.on_client("ls", TCP + "/data")
        until("Prometheus has seen it", lambda: "VerbenaExportDown/disk" in self.alerts("pending") | self.alerts())

    def refused(self):
        """A host with more connections than it may have: a line that names the host, the limit and the cure, and an alert."""
        held = []
        try:
            for number in range(PEER_CONNECTIONS):
                held.append(socket.create_connection((SERVER, 2049), timeout=LIMIT))
                held[-1].sendall(bytes.fromhex("80000028") + number.to_bytes(4, "big") + NULL)
                check(len(held[-1].recv(64)) == 28, "no answer to NULL")
            said = self.on_client("--soft", "--timeout", "1", "ls", TCP + "/data", code=None)
            check(said.returncode == 3, said)
        finally:
            for each in held:
                each.close()
        entry = self.logged("turned away", "warning")
        check(entry["PRIORITY"] == "4" and entry["SYSLOG_IDENTIFIER"] == "verbenad" and entry["_SYSTEMD_UNIT"] == "verbenad.service", entry)
        for field in (f"peer={CLIENT}", "reason=peer_connections", f'limit="peer_connections of [daemon]: {PEER_CONNECTIONS}"', "cure="):
            check(field in entry["MESSAGE"], field, entry["MESSAGE"])
        until("the alert of refusals fires", lambda: "VerbenaClientsRefused" in self.alerts())
        until("its connections are gone", lambda: self.on_client("--soft", "--timeout", "1", "ls", TCP + "/data", code=None).returncode == 0)

    def evict(self):
        """A client is evicted, kept out, and let in again: it goes on. Another one notices nothing."""
        copy = self.begin("cp", self.long, TCP + "/slow/evicted", host="other")
        target = self.host.path("/srv/slow/evicted")
        until("it copies", lambda: os.path.exists(target) and os.path.getsize(target) > 0)
        clients = self.admin("clients")
        check(any(OTHER in row["address"] and row["in_use"] for row in clients), clients)
        rows = self.admin("evict", OTHER, "600")
        check(rows, "evict says nothing")
        size = os.stat(target).st_blocks
        said = self.on_client("--soft", "--timeout", "1", "ls", TCP + "/data", host="other", code=None)
        check(said.returncode == 3, said)
        self.on_client("ls", TCP + "/data")
        self.logged("reason=evicted", "warning")
        check(os.stat(target).st_blocks == size, "it writes though it is kept out")
        check(copy.poll() is None, copy.said())
        self.admin("evict", OTHER, "0")
        until("it goes on", lambda: os.stat(target).st_blocks > size or copy.poll() is not None)
        check(copy.poll() is None, copy.said())
        copy.terminate()
        copy.wait(LIMIT)
        self.on_client("-q", "rm", TCP + "/slow/evicted")

    def reload(self):
        """A file with a mistake changes nothing, and an alert says so until it is mended."""
        before = self.admin("config"), self.host.unit("verbenad", "MainPID")
        bad = BASE.replace('pseudo = "/data"', 'pseudo = "/data"\nread_onyl = true') + FILTER
        self.configure(bad)
        said = self.host.run("systemctl", "reload", "verbenad", code=None)
        check(said.returncode != 0, "a bad file is taken")
        self.logged("did you mean read_only?", "warning")
        check(self.serves() and (self.admin("config"), self.host.unit("verbenad", "MainPID")) == before, "something has changed")
        self.on_client("-q", "mkdir", TCP + "/data/made")
        check(self.metric("verbena_config_last_reload_successful") == 0, "the metric")
        until("the alert of the reload fires", lambda: "VerbenaReloadFailed" in self.alerts())
        os.mkdir(self.host.path("/srv/new"))
        good = BASE + FILTER + '[[nfs.export]]\ndirectory = "/srv/new"\npseudo = "/new"\nclients = ["10.77.0.0/16"]\n'
        self.configure(good)
        told = self.admin("check")
        check([(row["what"], row["needs_restart"]) for row in told] == [("export /new", False)], told)
        self.host.run("systemctl", "reload", "verbenad")
        self.logged("the configuration was reloaded")
        self.on_client("ls", TCP + "/new")
        check(self.host.unit("verbenad", "MainPID") == before[1] and self.serves(), "it was started again")
        until("the alert is resolved", lambda: "VerbenaReloadFailed" not in self.alerts("pending") | self.alerts())

    def mounted(self):
        """The alert of the disk; a client that waits for it; the disk is back, and all goes on without a restart."""
        until("the alert of the export fires", lambda: "VerbenaExportDown/disk" in self.alerts(), 2 * LIMIT)
        waits = self.begin("cat", TCP + "/disk/file")
        until("the client says that it waits", lambda: "puts off what it is asked" in waits.said())
        check(waits.poll() is None, waits.said())
        check(os.listdir(self.host.path("/srv/disk")) == [], "something was written beneath")
        (pid,) = self.host.unit("verbenad", "MainPID")
        self.host.run("mount", "/srv/disk")
        until("the export is up", lambda: self.metric('verbena_export_up{export="/disk"}') == 1)
        self.whole(waits)
        self.logged("an export is served")
        check(self.host.unit("verbenad", "MainPID") == [pid], "it was started again")
        until("the alert is resolved", lambda: "VerbenaExportDown/disk" not in self.alerts("pending") | self.alerts())

    def fill_log(self):
        """Calls at trace until lines are dropped. None waits for the journal, which has stopped."""
        dropped = self.metric("verbena_log_dropped_lines_total")
        for _ in range(20):
            said = json.loads(self.on_client("--json", "ping", "-c", "5000", "-d", "8", TCP, limit=2 * LIMIT))
            check(said["answered"] == 5000, said)
            if self.metric("verbena_log_dropped_lines_total") > dropped:
                return
        raise Failed("100,000 calls at trace drop no line: somebody reads the log")

    def full_log(self):
        """A journal that takes nothing keeps no call and no stop."""
        try:
            self.admin("loglevel", "trace")
            self.host.run("systemctl", "kill", "-s", "STOP", "systemd-journald")
            self.fill_log()
            self.on_client("-q", "cp", "-r", self.tree, TCP + "/data/unlogged")
            self.host.run("systemctl", "kill", "-s", "CONT", "systemd-journald")
            self.logged("lines were dropped", "warning")
            self.host.run("systemctl", "kill", "-s", "STOP", "systemd-journald")
            self.fill_log()
            self.host.run("systemctl", "stop", "verbenad")
            state, result, status = self.host.unit("verbenad", "ActiveState", "Result", "ExecMainStatus")
            check((state, result, status) == ("inactive", "success", "0"), state, result, status)
        finally:
            self.host.run("systemctl", "kill", "-s", "CONT", "systemd-journald")
        self.host.run("systemctl", "start", "verbenad")
        self.same_tree(self.tree, self.host.path("/srv/data/unlogged"))

    def recovered(self, copy, target):
        """The copy goes on with the daemon that has been started, takes back what it had open, and is whole."""
        check(copy.poll() is None, "the copy ended too early:", copy.said())
        until("the client takes back what it had open", lambda: self.metric('verbena_nfs4_reclaims_total{outcome="granted"}') > 0 or
              copy.poll() is not None)
        self.whole(copy)
        check(self.metric('verbena_nfs4_reclaims_total{outcome="granted"}') > 0, "nothing was taken back")
        check(digest(self.long) == digest(self.host.path(target)), "the copy is another file")
        self.on_client("-q", "rm", TCP + target.replace("/srv", ""))

    def slow_copy(self, name):
        """A copy that ends after a restart only, as the filter that keeps it slow goes with that."""
        copy = self.begin("cp", self.long, TCP + "/slow/" + name)
        target = self.host.path("/srv/slow/" + name)
        until("it copies", lambda: os.path.exists(target) and os.path.getsize(target) > 0)
        self.configure(BASE)
        return copy

    def upgrade(self):
        """apt-get install of a newer package while a client writes one file, and another one many."""
        copy = self.slow_copy("upgrade")
        loop = os.path.join(self.work, "loop")
        # A command that begins while nobody listens fails at once (3, no connection) and is given again.
        writer = subprocess.Popen([*self.on("other"), "sh", "-c", f"""n=0; while [ ! -e '{loop}' ]; do
            '{self.client}' -q cp -r --checksum '{self.tree}' {TCP}/data/loop$((n + 1)) >'{loop}.said' 2>&1 || {{ [ $? = 3 ] && continue; exit 1; }}
            n=$((n + 1)); echo $n >'{loop}.next'; mv '{loop}.next' '{loop}.count'; done"""])
        self.begun.append(writer)
        until("the loop runs", lambda: os.path.exists(loop + ".count"))
        (pid,) = self.host.unit("verbenad", "MainPID")
        self.host.run("apt-get", "install", "-y", "-q", "./newer.deb", limit=4 * LIMIT)
        state, now = self.host.unit("verbenad", "ActiveState", "MainPID")
        check(state == "active" and now != pid, "after the upgrade it is", state, pid, now)
        check(self.host.read(CONFIG) == BASE, "the upgrade has changed the configuration")
        self.recovered(copy, "/srv/slow/upgrade")
        count = self.text(loop + ".count")
        until("the loop goes on", lambda: self.text(loop + ".count") != count or writer.poll() is not None, 2 * LIMIT)
        with open(loop, "wb"):
            pass
        check(writer.wait(2 * LIMIT) == 0, "the loop failed:", self.text(loop + ".said"))
        for number in range(1, int(self.text(loop + ".count")) + 1):
            self.same_tree(self.tree, self.host.path(f"/srv/data/loop{number}"))

    def reboot(self):
        """The host boots again: the daemon is there without a hand, with its key and its list of clients."""
        self.configure(BASE + FILTER)
        self.host.run("systemctl", "restart", "verbenad")
        key = digest(self.host.path("/var/lib/verbena/handle.key"))
        copy = self.slow_copy("reboot")
        self.host.reboot()
        until("it serves", self.serves)
        check(digest(self.host.path("/var/lib/verbena/handle.key")) == key, "another key")
        self.recovered(copy, "/srv/slow/reboot")

    def remove(self):
        """A removal keeps configuration and state, and nothing is left of what was purged."""
        self.host.run("apt-get", "remove", "-y", "-q", "verbena", limit=2 * LIMIT)
        check(self.host.ask("systemctl", "is-active", "verbenad").stdout.strip() != "active", "it still runs")
        for kept in (CONFIG, "/var/lib/verbena/handle.key"):
            check(os.path.exists(self.host.path(kept)), "the removal takes", kept)
        self.host.run("apt-get", "purge", "-y", "-q", "verbena", limit=2 * LIMIT)
        os.remove(self.host.path("/etc/prometheus/verbena-alerts.yml"))
        left = sorted(set(self.files_of_host()) ^ set(self.before))
        check(not left, "left, or gone:", left)

    def end(self):
        for process in self.begun:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.host.end()


def told(day):
    """What a reader of a failure wants to see."""
    return "\n".join(day.host.ask(*words).stdout for words in (
        ("systemctl", "status", "verbenad", "--no-pager", "-n", "0"), ("journalctl", "-u", "verbenad", "--no-pager", "-n", "40", "-o", "cat")))


if __name__ == "__main__":
    container.alone(os.path.abspath(__file__))
    sys.exit(steps.run("day", Day(*map(os.path.abspath, sys.argv[1:])), [
        Day.install, Day.configuration, Day.start, Day.export, Day.block, Day.monitor, Day.unmounted, Day.refused, Day.evict, Day.reload, Day.mounted,
        Day.full_log, Day.upgrade, Day.reboot, Day.remove], told))
