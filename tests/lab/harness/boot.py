# SPDX-License-Identifier: Apache-2.0
"""One boot of a guest under qemu."""
import selectors
import subprocess
import sys
import time

from .common import last_lines, read_or_none, warn
from .packages import layer_folder

# A boot takes some three seconds; a loaded machine is allowed a lot more.
BOOT_SECONDS = 120


def run(kernel, out, net, args, limit, show):
    """Boots, lets the guest work through its plan in OUT, and returns why it had to be ended, or "".

    What the plan prints comes by a virtio port and goes into `output`, with SHOW also to standard output; what the
    kernel prints goes into `console`.
    """
    deadline = time.monotonic() + BOOT_SECONDS + limit
    with open(out / "output", "wb") as output, open(out / "qemu", "wb") as errors:
        guest = subprocess.Popen(command_line(kernel, out, net, args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=errors)
        try:
            ended = follow(guest, deadline, (output, sys.stdout.buffer) if show else (output,))
        finally:
            guest.kill()
            guest.wait()
    if not ended and guest.returncode > 0:
        ended = "qemu failed: " + (read_or_none(out / "qemu") or "").strip()
    elif not ended and not (out / "finished").exists():
        ended = "the guest stopped"
    if ended:
        warn("\n".join([f"{ended}; the end of its kernel's messages:", *last_lines(out / "console", 60)]))
    return ended


def follow(guest, deadline, targets):
    """Copies what the guest prints until it ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(guest.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "the guest did not finish in time"
            if not selector.select(left):
                continue
            data = guest.stdout.read1(65536)
            if not data:
                guest.wait()
                return ""
            for target in targets:
                target.write(data)
                target.flush()


def command_line(kernel, out, net, args):
    # Time must not come from the emulated HPET, whose every reading leaves the guest; and nobody attacks it.
    append = ["console=ttyS0", "panic=-1", "quiet", "tsc=reliable", "mitigations=off", "apparmor=0", "audit=0",
              f"lab.modules={kernel.modules}"]
    words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "pc", "-cpu", "max", "-smp", str(args.cpus), "-m", str(args.memory),
             "-accel", "tcg,thread=multi" if args.accel == "tcg" else args.accel,
             "-kernel", str(kernel.folder / "vmlinuz"), "-initrd", str(kernel.folder / "initramfs.zst"),
             "-append", " ".join(append), "-device", "virtio-rng-pci",
             "-chardev", f"file,id=console,path={doubled(out / 'console')}", "-serial", "chardev:console",
             "-chardev", "file,id=output,path=/dev/stdout", "-device", "virtio-serial-pci",
             "-device", "virtserialport,chardev=output,name=output"]
    words += share("root", "/", "readonly=on") + share("layer", layer_folder(), "readonly=on") + share("job", out)
    if net == "user":
        words += ["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0"]
    return words


def share(tag, path, *more):
    options = ["local", f"path={doubled(path)}", f"mount_tag={tag}", "security_model=none", "multidevs=remap", *more]
    return ["-virtfs", ",".join(options)]


def doubled(path):
    """A comma in the value of a qemu option is written twice."""
    return str(path).replace(",", ",,")
