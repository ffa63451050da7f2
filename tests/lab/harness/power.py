# SPDX-License-Identifier: Apache-2.0
"""Loss of power: a guest with verbenad on ext4 is killed at random points while `ledger` works on it from outside, on files by NFS, and
`block_ledger` on a block device out of a file."""
import pathlib
import queue
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from . import boot
from .common import LAB, SOURCE, LabError, command, last_lines, read_or_none, say
from .disk import Disk

DISK_BYTES = 256 << 20
READY_SECONDS = 120
ANSWER_SECONDS = 240
# How long the load runs before the power fails.
LOAD_SECONDS = (0.3, 4.0)
# Acknowledged operations between two losses, on average, below which the test shows nothing.
LEAST_ACKNOWLEDGED = 20
# Losses after which a server that syncs nothing must have been found out.
LOSSES_WITHOUT_SYNC = 5
# Of a block device, whose operations are few: for so many losses of a file server's one, and two at least.
LOSSES_FOR_ONE_OF_BLOCKS = 5


class Files:
    """NFS, over TCP and iWARP in turn."""
    of = ""
    ledger = "tests/lab/ledger/ledger"
    ports = {"tcp": 2049, "iwarp": 20049}

    @staticmethod
    def serve(_losses):
        return "nfs --export '/disk/exported:/export,root_squash=no,clients=*' --listen tcp://10.0.2.15:2049 " \
            "--listen iwarp://10.0.2.15:20049 --shards 2 --rpcbind no"

    @staticmethod
    def url(ports, losses):
        # One transport after the other.
        scheme = ("tcp", "iwarp")[losses % 2]
        return f"nfs+{scheme}://127.0.0.1:{ports[scheme]}/export" + ("" if scheme == "tcp" else f"?mountport={ports['tcp']}")


class Blocks:
    """A device out of a file, round the page cache and by it in turn."""
    of = "of a block device "
    ledger = "tests/lab/ledger/block_ledger"
    ports = {"iwarp": 1234}

    @staticmethod
    def serve(losses):
        return f"block --device 'disk=/disk/disk.img,size=16M,clients=*,direct={('on', 'off')[losses % 2]}' " \
            "--listen iwarp://10.0.2.15:1234 --shards 2"

    @staticmethod
    def url(ports, _losses):
        return f"rnbd+iwarp://127.0.0.1:{ports['iwarp']}/disk"


FILES, BLOCKS = KINDS = (Files, Blocks)
TITLE = "power"


def run(kernel, args):
    """Four tests, of files and of a block device: with syncs everything acknowledged survives; without them that is seen not to be so.

    Returns a row (kernel release, title, reason or None, seconds) for each.
    """
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="verbena-power-")).absolute()
    build = pathlib.Path(args.build or SOURCE / "build").absolute()
    for program in ("services/verbenad", *(kind.ledger for kind in KINDS), "tests/lab/ledger/libno_sync.so"):
        if not (build / program).exists():
            raise LabError(f"{build / program} is not there; build it first")
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    say(f"seed {seed}, {args.kills} losses of power; a full run has 50")
    rows = []
    blocks = max(2, args.kills // LOSSES_FOR_ONE_OF_BLOCKS)
    for kind, name, losses, syncs in ((FILES, "files-synced", args.kills, True), (FILES, "files-unsynced", LOSSES_WITHOUT_SYNC, False),
                                      (BLOCKS, "blocks-synced", blocks, True), (BLOCKS, "blocks-unsynced", LOSSES_WITHOUT_SYNC, False)):
        if args.command == "power" and args.only and args.only not in name:
            continue
        begun = time.monotonic()
        trial = Trial(kind, kernel, out / "power" / name, build, args, random.Random(seed), syncs)
        try:
            reason = trial.run(losses)
        finally:
            trial.end()
        title = f"power lost {trial.losses} times, {trial.acknowledged} operations {kind.of}acknowledged" if syncs \
            else f"a server {kind.of}that does not sync is found out, by loss {trial.losses}"
        rows.append((kernel.release, title, reason, f"{time.monotonic() - begun:.1f}"))
        say(f"PASS {title} on {kernel.series} ({rows[-1][3]} s)" if reason is None
            else f"FAIL {title} on {kernel.series}: {reason}")
    if args.out or any(row[2] for row in rows):
        say(f"artefacts: {out}")
    else:
        shutil.rmtree(out, ignore_errors=True)
    return rows


class Lost(Exception):
    """Something acknowledged is not there."""


class Trial:
    """One disk and one ledger through any number of boots."""

    def __init__(self, kind, kernel, out, build, args, numbers, syncs):
        self.kind = kind
        self.kernel, self.out, self.build, self.args, self.numbers, self.syncs = kernel, out, build, args, numbers, syncs
        self.losses = self.acknowledged = 0
        self.guest = None
        out.mkdir(parents=True, exist_ok=True)
        image = out / "disk"
        image.unlink(missing_ok=True)
        self.disk = Disk(str(image), DISK_BYTES)
        command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        with open(out / "ledger.log", "wb") as errors:
            self.ledger = subprocess.Popen([build / kind.ledger], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=errors)
        self.answers = Lines(self.ledger.stdout)

    def run(self, losses):
        """Why the trial failed, or None."""
        try:
            self.boot()
            while self.losses < losses:
                self.load_and_kill()
                self.boot()
                self.look("check")
            if not self.syncs:
                return "everything was there although nothing was synced"
            self.look("check-all")
            say("  " + self.ask("counts"))
            self.shut_down()
            command("e2fsck", "-f", "-n", self.out / "disk")
        except Lost as lost:
            if self.syncs:
                return str(lost)
            say(f"  {lost}")
            return None
        except LabError as error:
            return str(error)
        if self.acknowledged < LEAST_ACKNOWLEDGED * losses:
            return f"only {self.acknowledged} operations were acknowledged"
        return None

    def end(self):
        if self.guest:
            self.guest.kill()
            self.guest.wait()
        self.ledger.kill()
        self.ledger.wait()
        self.disk.close()

    def boot(self):
        """Until verbenad serves. An emulated processor hangs in its boot now and then, before it writes anything: once more then."""
        try:
            self.start()
        except LabError:
            if (self.out / "booted").exists():
                raise
            say("  the guest did not boot; once more")
            self.guest.kill()
            self.guest.wait()
            self.start()

    def start(self):
        for mark in ("booted", "end"):
            (self.out / mark).unlink(missing_ok=True)
        preload = "" if self.syncs else self.build / "tests/lab/ledger/libno_sync.so"
        variables = {"LAB_BUILD": self.build, "LAB_PRELOAD": preload, "LAB_SERVE": self.kind.serve(self.losses)}
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
        (self.out / "plan").write_text("\n".join([*lines, f". {shlex.quote(str(LAB / 'guest/power.sh'))}", ""]),
                                       encoding="utf-8")
        self.ports = {scheme: free_port() for scheme in self.kind.ports}
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:{self.ports[scheme]}-:{inside}" for scheme, inside in self.kind.ports.items())
        words = boot.command_line(self.kernel, self.out, "none", self.args)
        words += ["-netdev", f"user,id=net0,ipv6=off{forwards}", "-device", "virtio-net-pci,netdev=net0",
                  "-drive", f"file=nbd:unix:{boot.doubled(self.disk.address)},format=raw,if=none,id=disk",
                  "-device", "virtio-blk-pci,drive=disk"]
        begun = time.monotonic()
        with open(self.out / "qemu", "wb") as errors:
            self.guest = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        self.wait_for_line(Lines(self.guest.stdout), lambda line: line == "ready", READY_SECONDS, "the guest does not serve")
        self.booted_in = time.monotonic() - begun

    def load_and_kill(self):
        url = self.url()
        self.expect(self.ask(f"load {url}"), "loading")
        seconds = self.numbers.uniform(*LOAD_SECONDS)
        time.sleep(seconds)
        self.guest.kill()
        self.guest.wait()
        # Half of the losses take all of the disk's cache, the others any part of it.
        some_survive = self.numbers.random() < 0.5
        blocks = self.disk.lose_power(self.numbers, some_survive)
        self.losses += 1
        answer = self.ask("dead")
        self.expect(answer, "acknowledged ")
        count = int(answer.split()[1])
        self.acknowledged += count
        say(f"  loss {self.losses}: booted in {self.booted_in:.1f} s, {count} operations acknowledged in {seconds:.1f} s over "
            f"{url.split(':')[0]}, {blocks} blocks {'of the cache ' if some_survive else ''}lost")

    def look(self, word):
        answer = self.ask(f"{word} {self.url()}")
        if answer.startswith("lost "):
            raise Lost(f"after loss {self.losses}: " + "; ".join(line.strip() for line in self.details))
        self.expect(answer, "good")
        trouble = read_or_none(self.out / "console") or ""
        if "EXT4-fs error" in trouble:
            raise LabError("ext4 found errors:\n" + "\n".join(last_lines(self.out / "console", 10)))

    def shut_down(self):
        (self.out / "end").touch()
        try:
            self.guest.wait(60)
        except subprocess.TimeoutExpired as error:
            raise LabError("the guest does not end") from error

    def url(self):
        return self.kind.url(self.ports, self.losses)

    def ask(self, text):
        """Sends a command to the ledger; its answer. The lines before it are in self.details."""
        self.details = []
        self.ledger.stdin.write(f"{text}\n".encode())
        self.ledger.stdin.flush()

        def is_answer(line):
            if line.startswith("  "):
                self.details.append(line)
                return False
            return True
        return self.wait_for_line(self.answers, is_answer, ANSWER_SECONDS, f"the ledger does not answer {text}")

    def expect(self, answer, wanted):
        if not answer.startswith(wanted):
            raise LabError(f"the ledger answers: {answer}")

    def wait_for_line(self, lines, wanted, seconds, complaint):
        deadline = time.monotonic() + seconds
        said = []
        while (line := lines.next(deadline)) is not None:
            said.append(line)
            if wanted(line):
                return line
        raise LabError(f"{complaint}: " + " / ".join(said[-5:] + last_lines(self.out / "console", 5)))


class Lines:
    """What a process prints, line by line, with a limit to the waiting."""

    def __init__(self, source):
        self.queue = queue.SimpleQueue()
        threading.Thread(target=self.read, args=(source,), daemon=True).start()

    def read(self, source):
        with source:
            for line in source:
                self.queue.put(line.decode(errors="replace").rstrip("\r\n"))
        self.queue.put(None)

    def next(self, deadline):
        """None at the end and when the time is over."""
        try:
            return self.queue.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            return None


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
