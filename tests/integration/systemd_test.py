#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The systemd unit: systemd takes it, and what its filter of system calls lets through is enough for a daemon at work."""
import ctypes
import json
import os
import random
import re
import subprocess
import sys

import daemon

CONTAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../services/container")
sys.path.insert(0, CONTAINER)
import seccomp_profile # pylint: disable=wrong-import-position

SCMP_ACT_ERRNO, SCMP_ACT_ALLOW, EPERM = 0x00050000, 0x7fff0000, 1
UNKNOWN = -1 # what libseccomp answers for a name of another architecture


class Systemd(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(os.path.dirname(daemon.BINARY), "verbenad.service"), encoding="utf-8") as file:
            self.unit = file.read()

    def test_systemd_takes_the_unit(self):
        commands = re.findall(r"(?m)^ExecStart(?:Pre)?=(\S+)", self.unit)
        self.assertEqual(len(set(commands)), 1, commands)
        path = os.path.join(self.folder, "verbenad.service")
        for text, good in ((self.unit, True), (self.unit.replace("PrivateTmp=", "PrivateTemp="), False)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(os.path.dirname(commands[0]) + "/", os.path.dirname(os.path.abspath(daemon.BINARY)) + "/"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60 * daemon.SLOW,
                                  check=False)
            # It tells of other units of the machine, too.
            said = [line for line in done.stderr.splitlines() if "verbenad" in line]
            self.assertEqual(not said, good, done.stderr)

    def test_it_restarts_for_what_may_pass_alone(self):
        for line in ("Restart=on-failure", "RestartPreventExitStatus=2", "StartLimitIntervalSec=0", "Type=notify"):
            self.assertIn("\n" + line + "\n", self.unit)
        self.assertRegex(self.unit, r"\nWatchdogSec=\d+min\n")

    def test_containers_have_the_same_filter(self):
        with open(os.path.join(CONTAINER, "seccomp.json"), encoding="utf-8") as file:
            profile = json.load(file)
        self.assertEqual(profile, seccomp_profile.profile(self.unit), "services/container/seccomp_profile.py makes it anew")

    def test_the_filter_lets_it_work(self):
        words = re.search(r"(?m)^SystemCallFilter=(.*)$", self.unit)[1].split()
        self.assertFalse([word for word in words if word.startswith("~")], "a list of what is allowed")
        names = seccomp_profile.calls_of([*words, "@default"])
        seccomp = ctypes.CDLL("libseccomp.so.2")
        seccomp.seccomp_init.restype = seccomp_context = ctypes.c_void_p
        seccomp.seccomp_rule_add.argtypes = [seccomp_context, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
        seccomp.seccomp_load.argtypes = [seccomp_context]
        numbers = {seccomp.seccomp_syscall_resolve_name(name.encode()) for name in names} - {UNKNOWN}
        self.assertGreater(len(numbers), 200)

        def filtered():
            context = seccomp.seccomp_init(SCMP_ACT_ERRNO | EPERM)
            for number in numbers:
                seccomp.seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 0)
            if seccomp.seccomp_load(context) != 0:
                raise OSError("seccomp_load")

        # A leak check at the end of a program attaches to its threads, which the filter is there to refuse.
        d = self.start("--shards", "2", before_start=filtered, environment={"LSAN_OPTIONS": "detect_leaks=0"})
        with open(f"/proc/{d.process.pid}/status", encoding="utf-8") as file:
            self.assertIn("Seccomp:\t2", file.read())
        content = random.Random(4).randbytes(3_000_001)
        source = os.path.join(self.folder, "source")
        with open(source, "wb") as file:
            file.write(content)
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for transport in ("tcp", "iwarp"):
            base = f"nfs+{transport}://127.0.0.1:{d.port(transport)}/export/"
            back = os.path.join(self.folder, transport)
            self.run_tool(client, "mkdir", base + transport)
            self.run_tool(client, "-q", "cp", "-p", source, base + transport + "/new")
            self.run_tool(client, "mv", base + transport + "/new", base + transport + "/name")
            self.run_tool(client, "-q", "cp", base + transport + "/name", back)
            with open(back, "rb") as file:
                self.assertEqual(file.read(), content)
            self.run_tool(client, "rm", "-r", base + transport)
        self.assertEqual(os.listdir(self.data), [])
        self.assertNotIn("Operation not permitted", d.log())
        self.assertEqual(d.stop(), 0)


if __name__ == "__main__":
    daemon.main()
