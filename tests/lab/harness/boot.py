# SPDX-License-Identifier: Apache-2.0
"""One boot of a guest under qemu."""
import os
import selectors
import subprocess
import sys
import time

from .common import LabError, last_lines, read_or_none, warn
from .packages import layer_folder

# A boot takes some three seconds; a loaded machine is allowed a lot more.
SLOW = int(os.environ.get("VERBENA_SLOW", "1"))  # times all limits: `./check --slow`
BOOT_SECONDS = 120 * SLOW


# How long one of two guests goes on when the other has ended: nobody may be there whom it waits for.
ALONE_SECONDS = 60


class Guest:
    """One qemu at the plan in its folder, from when it is made until `end`.

    What the plan prints comes by a virtio port and goes into `output`, with SHOW also to standard output; what the
    kernel prints goes into `console`.
    """

    running, no_more = set(), False

    def __init__(self, words, out, show):
        if Guest.no_more:
            raise LabError("interrupted")
        self.out, self.ended, self.begun = out, "", time.monotonic()
        self.targets = [open(out / "output", "wb")] + ([sys.stdout.buffer] if show else [])
        with open(out / "qemu", "wb") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        Guest.running.add(self)
        if Guest.no_more: # end_all() may have come before it was there
            self.process.kill()

    def hangs_in_its_boot(self):
        return time.monotonic() > self.begun + BOOT_SECONDS and not (self.out / "booted").exists()

    def copy(self):
        """Copies what it printed; returns False when there will be no more."""
        data = self.process.stdout.read1(65536)
        for target in self.targets:
            target.write(data)
            target.flush()
        return bool(data)

    def wait(self):
        """It has closed its output; what it does not end by itself within a while, `end` does."""
        try:
            self.process.wait(ALONE_SECONDS)
        except subprocess.TimeoutExpired:
            self.ended = "qemu did not end with its guest"

    def end(self):
        """Kills it, and returns why it had to be, or "" if it had worked through its plan."""
        self.process.kill()
        self.process.wait()
        Guest.running.discard(self)
        self.process.stdout.close()
        self.targets[0].close()
        if not self.ended and self.process.returncode > 0:
            self.ended = "qemu failed: " + (read_or_none(self.out / "qemu") or "").strip()
        elif not self.ended and not (self.out / "finished").exists():
            self.ended = "the guest stopped"
        if self.ended:
            warn("\n".join([f"{self.ended}; the end of its kernel's messages:", *last_lines(self.out / "console", 60)]))
        return self.ended


def end_all():
    """Kills the guests of all threads, and no more are booted."""
    Guest.no_more = True
    for guest in list(Guest.running):
        guest.process.kill()


def run(kernel, out, net, args, limit, show, tend):
    """Boots a guest, lets it work through its plan in OUT, and returns why it had to be ended, or "". It is ended when TEND,
    called several times a second, returns a reason."""
    guest = Guest(command_line(kernel, out, net, args), out, show)
    try:
        follow([guest], limit, tend)
    finally:
        ended = guest.end()
    return ended


def run_two(kernel, outs, wire, net, args, limit, show):
    """The same for two guests, each with its plan in one of OUTS, joined by WIRE; only the first is shown, and only it has
    NET. Returns why each had to be ended."""
    guests = []
    try:
        guests.append(Guest(command_line(kernel, outs[0], net, args) + wire.first_end(), outs[0], show))
        wire.wait_until_there(guests[0].process)
        guests.append(Guest(command_line(kernel, outs[1], "none", args) + wire.second_end(), outs[1], False))
        follow(guests, limit, wire.tend)
    finally:
        ended = [guest.end() for guest in guests]
    return [*ended, "it was not booted"][:2]


def follow(guests, limit, tend):
    """Copies what guests print until all have ended, one doesn't boot, the time is over, or TEND, called several times a second,
    says why they must end."""
    deadline = time.monotonic() + BOOT_SECONDS + limit
    reason = "the guest did not finish in time"
    with selectors.DefaultSelector() as selector:
        for guest in guests:
            selector.register(guest.process.stdout, selectors.EVENT_READ, guest)
        while selector.get_map():
            left = [key.data for key in selector.get_map().values()]
            over = tend() or (time.monotonic() > deadline and reason)
            if not over and any(guest.hangs_in_its_boot() for guest in left):
                over = "the guest did not boot" if len(guests) == 1 else "a guest did not boot"
            if over:
                for guest in left:
                    guest.ended = over
                return
            for key, _ in selector.select(0.1):
                if not key.data.copy():
                    key.data.wait()
                    selector.unregister(key.fileobj)
                    if time.monotonic() + ALONE_SECONDS < deadline:
                        deadline, reason = time.monotonic() + ALONE_SECONDS, "the other guest had ended"


def command_line(kernel, out, net, args):
    # Time must not come from the emulated HPET, whose every reading leaves the guest; and nobody attacks it. On a busy
    # machine the guest may stand still for long: too few timer interrupts at its start, and later what looks like a
    # processor that hangs, are no trouble of its kernel's. Emulation does `rep movsb` octet by octet, and a processor
    # without ERMS and FSRM is one whose kernel doesn't copy by it: that makes copies 4 times as fast. A kernel that has oopsed may
    # hold a lock for ever: the boot ends there, with the trace on its console. Debian's own guards of each system call are left
    # out: without AppArmor alone the next of its list, SELinux, would be asked instead, which no Debian has on.
    append = ["console=ttyS0", "panic=-1", "oops=panic", "quiet", "tsc=reliable", "no_timer_check", "nosoftlockup",
              "rcupdate.rcu_cpu_stall_timeout=300", "mitigations=off", "lsm=", "audit=0",
              f"lab.modules={kernel.modules}"]
    words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
             "-machine", "pc", "-cpu", "max,-erms,-fsrm" if args.accel == "tcg" else "max",
             "-smp", str(args.cpus), "-m", str(args.memory),
             "-accel", "tcg,thread=multi" if args.accel == "tcg" else args.accel,
             "-kernel", str(kernel.folder / "vmlinuz"), "-initrd", str(kernel.folder / "initramfs.zst"),
             "-append", " ".join(append), "-device", "virtio-rng-pci",
             "-chardev", f"file,id=console,path={doubled(out / 'console')}", "-serial", "chardev:console",
             "-chardev", "file,id=output,path=/dev/stdout", "-device", "virtio-serial-pci",
             "-device", "virtserialport,chardev=output,name=output"]
    words += share("root", "/", "readonly=on") + share("layer", layer_folder(), "readonly=on") + share("job", out)
    if net == "user":
        words += ["-netdev", "user,id=net0,ipv6=off", "-device", "virtio-net-pci,netdev=net0"]
    return words


def share(tag, path, *more):
    options = ["local", f"path={doubled(path)}", f"mount_tag={tag}", "security_model=none", "multidevs=remap", *more]
    return ["-virtfs", ",".join(options)]


def doubled(path):
    """A comma in the value of a qemu option is written twice."""
    return str(path).replace(",", ",,")
