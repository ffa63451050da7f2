#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena doctor --config` with a real verbenad of that file and without, and on hosts that something is wrong with."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import daemon
import hung_disk

# Of this process alone, so that ports may be what they are.
ADDRESS = "127.{}.{}.{}".format(os.getpid() >> 16 & 63 | 64, os.getpid() >> 8 & 255, os.getpid() & 255)

CONFIG = """\
[daemon]
state = "{folder}/state"
shards = {shards}
control = "off"

[metrics]
listen = "{address}:29464"

[nfs]
rpcbind = "no"
listen = ["tcp://{address}:22049", "iwarp://{address}:22050"]

[[nfs.export]]
directory = "{folder}/data"
{more}
"""


class Doctor(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")

    def write(self, name="c.toml", more="", **other):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(**{"folder": self.folder, "address": ADDRESS, "shards": daemon.shards(1), "more": more, **other}))
        return path

    def run_doctor(self, *arguments):
        words = [self.client, "--json", "doctor", *arguments]
        return subprocess.run(words, capture_output=True, check=False, timeout=120 * daemon.SLOW, env=daemon.light(words))

    def look(self, *arguments):
        done = self.run_doctor("--config", *arguments)
        found = json.loads(done.stdout)
        # The machine may have problems of its own: the code agrees with what was found.
        self.assertEqual(done.returncode, int(any(f["state"] == "problem" for f in found)), found)
        return {f["check"]: f for f in found}

    def wrong(self, found, check, part, line=None):
        self.assertEqual(found[check]["state"], "problem", found)
        self.assertIn(part, found[check]["text"])
        self.assertTrue(found[check]["cure"])
        if line:
            self.assertEqual(found[check]["place"], f"{self.folder}/c.toml:{line}")

    def test_its_own_daemon_is_no_problem_and_another_one_is(self):
        path = self.write()
        found = self.look(path)
        for check in ("configuration", "export /export", "state", "port 22049", "port 22050", "port 29464"):
            self.assertEqual(found[check]["state"], "ok", found)
        self.assertIn("free", found["port 22049"]["text"])
        self.assertIn("makes it", found["state"]["text"])
        self.assertFalse(os.path.exists(f"{self.folder}/state")) # nothing is made by a look
        running = self.run_daemon("serve", path)
        found = self.look(path)
        for check in ("configuration", "export /export", "state", "port 22049", "port 22050", "port 29464"):
            self.assertEqual(found[check]["state"], "ok", found)
        for check in ("port 22049", "port 22050", "port 29464"):
            self.assertIn("held by the verbenad that runs with this file", found[check]["text"])
        self.assertIn("whose syncs work", found["state"]["text"])
        self.assertIn(str(running.process.pid), found["configuration"]["text"])
        self.assertIn(f"for process {running.process.pid}", found["descriptors"]["text"])
        # The same ports and the same state by another file.
        found = self.look(self.write("other.toml"))
        self.wrong(found, "port 22049", f"held by verbenad (process {running.process.pid})")
        self.wrong(found, "state", f"held by process {running.process.pid}")

    def test_what_is_wrong_has_its_place(self):
        os.mkdir(f"{self.folder}/state", 0o700)
        os.chmod(f"{self.folder}/state", 0o770)
        with open(f"{self.folder}/disk", "wb") as file:
            file.truncate(8192)
        path = self.write(more='pseudo = "/data"\n[[nfs.export]]\npseudo = "/none"\ndirectory = "/nonexistent/data"\n'
                          '[[nfs.export]]\npseudo = "/unmounted"\ndirectory = "{0}/data"\nmountpoint = true\n'
                          '[[nfs.export]]\npseudo = "/file"\ndirectory = "{0}/disk"\n'
                          '[block]\nlisten = ["iwarp://{1}:21234"]\n[[block.device]]\nname = "disk"\npath = "{0}/disk"\nsize = "1M"\n'
                          '[[block.device]]\nname = "made"\npath = "{0}/nowhere/disk"\nsize = "1M"\n'
                          .format(self.folder, ADDRESS))
        with socket.create_server((ADDRESS, 22050)):
            found = self.look(path)
        self.wrong(found, "state", "others may write", 2)
        self.wrong(found, "export /none", "No such file or directory", 18)
        self.wrong(found, "export /unmounted", "nothing is mounted", 22)
        self.wrong(found, "export /file", "is no directory", 25)
        self.wrong(found, "device disk", "8192 bytes, and not the 1048576", 31)
        self.wrong(found, "device made", "can't be made", 34)
        self.wrong(found, "port 22050", f"(process {os.getpid()})", 11)
        self.assertEqual(found["export /data"]["state"], "ok")
        self.assertEqual(found["port 22049"]["state"], "ok")

    def test_a_user_that_may_not_read_it_is_told(self):
        # Where nobody may go too.
        programs = [shutil.copy(program, self.folder) for program in (self.client, daemon.BINARY)]
        os.chmod(self.data, 0o700)
        path = self.write()
        words = [programs[0], "--json", "doctor", "--config", path]
        done = subprocess.run(words, capture_output=True, check=False, timeout=120 * daemon.SLOW, user=65534, group=65534, extra_groups=[])
        self.assertTrue(done.stdout, done.stderr)
        found = {f["check"]: f for f in json.loads(done.stdout)}
        self.wrong(found, "export /export", "can't read", 14)
        self.assertEqual(found["rights"]["state"], "hint")

    def test_a_configuration_that_is_wrong(self):
        path = self.write(more="directry = 7\n")
        self.wrong(self.look(path), "configuration", f"{path}:15:1: ")
        with open(path, "a", encoding="utf-8") as file:
            file.write("[nfs\n")
        self.wrong(self.look(path), "configuration", f"{path}:17:")

    def test_a_parent_that_ignores_its_children_makes_no_problem_good(self):
        path = self.write(more="no_such_key = 1")
        done = subprocess.run([self.client, "--json", "doctor", "--config", path], capture_output=True, check=False,
                              timeout=120 * daemon.SLOW, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 1, done)
        found = {f["check"]: f for f in json.loads(done.stdout)}
        self.wrong(found, "configuration", "no_such_key")

    def test_usage(self):
        path = self.write()
        for arguments in (("--config", "/nonexistent"), ("--peer", "127.0.0.1"), ("--config", path, "nfs://127.0.0.1/"), ("--config",)):
            done = self.run_doctor(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, b""), arguments)
            self.assertTrue(done.stderr, arguments)

    def test_text_for_people(self):
        path = self.write(address="192.0.2.1")
        done = subprocess.run([self.client, "doctor", "--config", path], capture_output=True, text=True, check=False,
                              timeout=120 * daemon.SLOW)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^PROBLEM  port 22049    tcp://192.0.2.1:22049: this host has no address 192.0.2.1$")
        self.assertRegex(done.stdout, rf"(?m)^ +set by nfs.listen at {path}:11$")
        self.assertRegex(done.stdout, "(?m)^ +cure: `ip address`")
        self.assertRegex(done.stdout, "(?m)^ok +export /export ")

    def test_a_disk_that_hangs_holds_up_nothing(self):
        disk = hung_disk.HungDisk(self.data)
        self.addCleanup(disk.close)
        path = self.write()
        self.assertEqual(self.look(path)["export /export"]["state"], "ok")
        disk.hang()
        begun = time.monotonic()
        found = self.look(path)
        self.assertLess(time.monotonic() - begun, 60 * daemon.SLOW) # a disk that hangs does so for ever
        self.wrong(found, "export /export", "does not answer", 14)
        self.assertEqual(found["port 22049"]["state"], "ok")

    def test_the_way_to_a_peer_and_back(self):
        """Two hosts that a cable of 1500 bytes joins, of which one believes in more."""
        path = self.write(address="10.99.1.1")
        script = """
            set -e
            ip link set lo up
            unshare --net sleep 300 >/dev/null 2>&1 & peer=$!
            trap "kill $peer" EXIT
            # When it has left this network.
            while [ "$(readlink /proc/$peer/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
            ip link add name here mtu 9000 type veth peer name there mtu $1 netns $peer
            nsenter --target $peer --net sh -ec "ip address add 10.99.1.2/24 dev there; ip link set there up; $2"
            ip address add 10.99.1.1/24 dev here
            ip link set here up
            "$3" --json doctor --config "$4" --peer 10.99.1.2
        """
        def look(mtu, there=":"):
            done = subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", str(mtu), there, self.client, path],
                                  capture_output=True, check=False, timeout=120 * daemon.SLOW)
            self.assertTrue(done.stdout, done.stderr)
            return {f["check"]: f for f in json.loads(done.stdout)}
        found = look(9000)
        self.assertEqual((found["path MTU"]["state"], found["path MTU back"]["state"]), ("ok", "ok"), found)
        self.assertIn("with an MTU of 9000: packets of that size get there", found["path MTU"]["text"])
        # This cable has room for the tag of a VLAN.
        self.wrong(look(1500), "path MTU", "packets of more than 1504 bytes get no answer")
        # Answers are cut in pieces, as nobody forbids it.
        found = look(9000, "ip route replace 10.99.1.0/24 dev there mtu lock 1500")
        self.assertEqual(found["path MTU"]["state"], "ok", found)
        self.wrong(found, "path MTU back", "in pieces of 1500 bytes")
        found = look(9000, "sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
        self.assertEqual(found["path MTU"]["state"], "hint", found)


if __name__ == "__main__":
    daemon.main()
