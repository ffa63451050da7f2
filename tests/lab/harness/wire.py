# SPDX-License-Identifier: Apache-2.0
"""A wire between two guests, that is captured and can be cut."""
import json
import pathlib
import shutil
import socket
import tempfile
import time

from .boot import doubled
from .common import LabError, read_or_none

ADDRESSES = ("203.0.113.1", "203.0.113.2")
MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02")
THERE_SECONDS = 30


class Wire:
    """Two ends of a Unix socket, each behind a NIC of a guest. All frames go into MEETING/wire.pcap.

    A guest cuts it by a file MEETING/wire.wanted that says `off`, and mends it by `on`; the file goes when that is done.
    At the first guest's end the NIC loses its carrier; the second only hears nothing any more.
    """

    def __init__(self, meeting):
        self.meeting = meeting
        # The path of a Unix socket has 107 octets at most, which that of the artefacts may exceed.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="verbena-wire-"))
        self.monitor = None

    def first_end(self):
        path = self.folder
        return self.end("on", 0) + ["-object", f"filter-dump,id=capture,netdev=wire,file={doubled(self.meeting / 'wire.pcap')}",
                                    "-qmp", f"unix:{doubled(path / 'monitor')},server=on,wait=off"]

    def second_end(self):
        return self.end("off", 1)

    def end(self, server, number):
        address = f"addr.type=unix,addr.path={doubled(self.folder / 'wire')}"
        return ["-netdev", f"stream,id=wire,server={server},{address}",
                "-device", f"virtio-net-pci,netdev=wire,mac={MACS[number]}"]

    def wait_until_there(self, process):
        """The second qemu connects once, so the first, PROCESS, must listen."""
        deadline = time.monotonic() + THERE_SECONDS
        while not (self.folder / "wire").exists() or not (self.folder / "monitor").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError("the first guest's qemu makes no wire; it must be 7.2 or newer, see the file `qemu` of its "
                               "artefacts")
            time.sleep(0.02)
        self.monitor = Monitor(self.folder / "monitor")

    def tend(self):
        """Does what a guest asks for."""
        wanted = self.meeting / "wire.wanted"
        state = read_or_none(wanted)
        if state is not None:
            self.monitor.ask("set_link", name="wire", up=state.strip() == "on")
            wanted.unlink()

    def close(self):
        if self.monitor:
            self.monitor.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Monitor:
    """A client of qemu's machine protocol, of which it takes one answer to one command."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(THERE_SECONDS)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self.lines.readline() or '{"error": "it has closed the monitor"}')
            if "error" in answer:
                raise LabError(f"qemu does not {command}: {answer['error']}")
            if "return" in answer:
                return

    def close(self):
        self.lines.close()
        self.socket.close()
