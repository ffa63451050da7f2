# SPDX-License-Identifier: Apache-2.0
"""A host that systemd boots: systemd-nspawn on a folder, in namespaces of its own, with a network to two more hosts.

All of it lives in the namespaces of one process, so that it ends with that process, however that ends."""
import fcntl
import json
import os
import shlex
import struct
import subprocess
import sys
import time

SLOW = int(os.environ.get("VERBENA_SLOW", "1")) # times limits: `./check --slow`
LIMIT = 60 * SLOW
SERVER, CLIENT, OTHER = "10.77.0.1", "10.77.0.2", "10.77.1.2"
BESIDE = "10.77.1.1" # the server, on the other's network
# What the unit allows and systemd-nspawn does not by itself. A host has no such filter.
CALLS = "io_uring_setup io_uring_enter io_uring_register name_to_handle_at open_by_handle_at"
WANTS_REBOOT = 133 # status of systemd-nspawn with --keep-unit
LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LO_FLAGS_AUTOCLEAR = 0x4C0A, 0x4C82, 4


class Failed(Exception):
    """A step did not come out as it should."""


def until(what, ask, limit=LIMIT):
    """Asks until the answer is true, and returns it."""
    end = time.monotonic() + limit
    while not (answer := ask()):
        if time.monotonic() > end:
            raise Failed(f"{limit} s passed without: {what}")
        time.sleep(0.1)
    return answer


def command(*words, limit=LIMIT, code=0, **options):
    """Runs it, and returns its standard output; `code` None takes whatever comes and returns all of it."""
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit, check=False, stdin=subprocess.DEVNULL, **options)
    if code is None:
        return done
    if done.returncode != code:
        raise Failed(f"{shlex.join(words)}: {done.returncode} and not {code}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def alone(script):
    """Runs `script` anew in namespaces of its own, waits for it, and removes what would outlive it. Returns only there."""
    group = f"verbena-day-{os.getpid()}"
    if "VERBENA_DAY" in os.environ:
        return
    inner = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, script, *sys.argv[1:]]
    try:
        with open("/proc/self/ns/net", "rb") as net:
            status = subprocess.run(inner, env={**os.environ, "VERBENA_DAY": group, "VERBENA_DAY_NET": str(net.fileno())}, check=False,
                                    pass_fds=[net.fileno()]).returncode
    finally:
        # The kernel keeps groups of processes that nobody is in.
        command("unshare", "--mount", "sh", "-ec", f"mount -t cgroup2 none /sys/fs/cgroup; cd /sys/fs/cgroup; [ ! -d {group} ] || "
                f"find {group} -depth -type d -exec rmdir {{}} +", code=None)
    sys.exit(status)


def outside(*words, **options):
    """command(), where packages can be fetched."""
    net = int(os.environ["VERBENA_DAY_NET"])
    return command("nsenter", f"--net=/proc/self/fd/{net}", *words, pass_fds=[net], **options)


def attach(path):
    """A block device of the file at `path`, which is free again when the last one closes it; and what keeps it."""
    for _ in range(20):
        with open("/dev/loop-control", "rb") as control:
            device = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
        kept = open(device, "r+b", buffering=0) # pylint: disable=consider-using-with
        with open(path, "r+b", buffering=0) as file:
            try:
                # struct loop_config: fd, block size, struct loop_info64, whose flags are its 13th word
                fcntl.ioctl(kept, LOOP_CONFIGURE, struct.pack("=II52xI176x64x", file.fileno(), 0, LO_FLAGS_AUTOCLEAR))
                return device, kept
            except OSError: # somebody was faster
                kept.close()
    raise Failed("no loop device is free")


def network():
    """Three hosts: `server`, `other`, and where this process is, with an address each. Returns the folder of a group of processes for containers."""
    command("mount", "-t", "tmpfs", "none", "/run")
    command("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    group = "/sys/fs/cgroup/" + os.environ["VERBENA_DAY"]
    os.mkdir(group)
    for host in ("server", "other"):
        command("ip", "netns", "add", host)
    for host, name, address, there in (([], "one", CLIENT, SERVER), (["-n", "other"], "two", OTHER, BESIDE)):
        command("ip", *host, "link", "add", "name", name, "type", "veth", "peer", "name", name, "netns", "server")
        for words in (host + ["address", "add", address + "/24", "dev", name], host + ["link", "set", name, "up"], host + ["link", "set", "lo", "up"],
                      ["-n", "server", "address", "add", there + "/24", "dev", name], ["-n", "server", "link", "set", name, "up"]):
            command("ip", *words)
    command("ip", "-n", "other", "route", "add", SERVER, "via", BESIDE)
    command("ip", "-n", "server", "link", "set", "lo", "up")
    return group


class Container:
    """The host. It runs from boot() on."""

    def __init__(self, root, work):
        self.root, self.work = root, work
        self.log = os.path.join(work, "console")
        self.group = network()
        image = os.path.join(work, "disk")
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        command("mkfs.ext4", "-q", image)
        self.disk, self.kept = attach(image)
        self.process = None

    def boot(self):
        words = ["systemd-nspawn", "--boot", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--link-journal=no", "--machine=day",
                 "--settings=no", "--network-namespace-path=/run/netns/server", f"--directory={self.root}", f"--system-call-filter={CALLS}",
                 f"--bind={self.disk}:/dev/disk0"]
        inside = f"echo $$ >{self.group}/cgroup.procs; exec \"$@\""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["sh", "-c", inside, "sh", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.booted()

    def init(self):
        """The first process inside; none while there is none."""
        try:
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="utf-8") as file:
                for pid in file.read().split():
                    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
                        of = next(line for line in status if line.startswith("NSpid:"))
                    if of.split()[-1] == "1":
                        return int(pid)
        except (FileNotFoundError, ProcessLookupError, StopIteration): # it ends just now
            pass
        return None

    def booted(self):
        """Waits until systemd says so."""
        def said():
            if self.process.poll() is not None:
                raise Failed("the container ended: " + self.console())
            return self.init() and self.ask("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")
        until("systemd has booted", said, 2 * LIMIT)

    def words(self, *words):
        pid = self.init()
        if pid is None:
            raise Failed("the container is not running: " + self.console())
        return ["nsenter", "--target", str(pid), "--all", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C",
                "DEBIAN_FRONTEND=noninteractive", "sh", "-c", 'cd; exec "$@"', "sh", *words]

    def ask(self, *words, **options):
        return command(*self.words(*words), code=None, **options)

    def run(self, *words, **options):
        return command(*self.words(*words), **options)

    def path(self, path):
        """Where the host's file is here."""
        return os.path.join(self.root, path.lstrip("/"))

    def read(self, path):
        with open(self.path(path), encoding="utf-8") as file:
            return file.read()

    def write(self, path, text):
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)

    def console(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def unit(self, name, *properties):
        """What systemd knows of a unit, as a list of values."""
        said = self.run("systemctl", "show", name, *[f"--property={each}" for each in properties])
        known = dict(line.split("=", 1) for line in said.splitlines())
        return [known[each] for each in properties]

    def journal(self, *words):
        """Entries of the daemon's journal as the journal has them."""
        said = self.run("journalctl", "-u", "verbenad", "-o", "json", "--no-pager", "--all", *words)
        return [json.loads(line) for line in said.splitlines()]

    def reboot(self):
        """As an operator: from inside. Returns when it has booted."""
        self.ask("systemctl", "reboot") # its connection may break first
        status = self.process.wait(2 * LIMIT)
        if status != WANTS_REBOOT:
            raise Failed(f"the container ended with {status}: {self.console()}")
        self.boot()

    def end(self):
        if self.process and self.process.poll() is None:
            if self.init():
                self.ask("systemctl", "poweroff", "--force")
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.kept.close()
