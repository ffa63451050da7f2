#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What hangs or runs out in one place is nobody else's: an export or a device whose file system does not answer, and descriptors."""
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import daemon
import hung_disk
import peers
from peers import TcpPeer, call_message

GETATTR = 1


class HungExport(daemon.DaemonTest):
    def test_a_file_system_that_hangs_holds_up_its_own_export_alone(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(1)}
drain_seconds = 0
blocking_threads = 4
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
[[nfs.export]]
directory = "{folder}"
pseudo = "/hung"
""")
        d = daemon.Daemon("serve", config, folder=self.folder)
        try:
            caller = TcpPeer(d.port("tcp"))
            root, hung = caller.mount(), caller.mount("/hung")
            disk.hang()
            # More than all threads of one lane, and by the same connection.
            for xid in range(16):
                caller.send(call_message(1000 + xid, GETATTR, peers.opaque(hung)))
            disk.wait_for(1)
            self.assertEqual(caller.nfs(GETATTR, peers.opaque(root)).nfs_status(), 0)
            target = caller.create(root, "target")
            self.assertEqual(caller.nfs(peers.WRITE, peers.write_arguments(target, 0, b"whole", stable=2)).nfs_status(), 0)
            self.assertGreater(d.metric('verbena_blocking_running_jobs{lane="export /hung"}'), 0)
            self.assertEqual(d.metric('verbena_blocking_queued_jobs{lane="export /export"}'), 0)
            caller.close()
            end = time.monotonic() + peers.LIMIT
            while d.metric('verbena_export_up{export="/hung"}') != 0:
                self.assertLess(time.monotonic(), end, d.log())
                time.sleep(0.05)
            self.assertIn("the root of an export does not answer", d.log())
            self.assertEqual(d.metric('verbena_export_up{export="/export"}'), 1)
            # It gives up, and says what it did not wait for. The kernel keeps the process until the file system is gone.
            d.process.send_signal(signal.SIGTERM)
            give_up = time.monotonic() + daemon.STOP_LIMIT
            while "not stopped in time" not in d.log() and time.monotonic() < give_up:
                time.sleep(0.05)
            # It has ended, but for what waits for the disk: what the next one needs is named, or free.
            def is_left():
                with open(f"/proc/{d.process.pid}/stat", encoding="utf-8") as file:
                    return file.read().rpartition(")")[2].split()[0] == "Z"
            while not is_left():
                self.assertLess(time.monotonic(), give_up, d.log())
                time.sleep(0.05)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(d.metrics_url()).port))
            with open(config, encoding="utf-8") as file:
                text = file.read()
            with open(config, "w", encoding="utf-8") as file:
                file.write(text[:text.rindex("[[nfs.export]]")])
            second = self.run_binary("serve", config)
            self.assertEqual(second.returncode, 1, second)
            self.assertRegex(second.stderr, rf"another process has it open, PID {d.process.pid} \(verbenad\), which has ended but for calls "
                             r"that a disk does not answer: unmount that disk by force")
            disk.close()
            self.assertEqual(d.stop(), 1, d.log())
            self.assertRegex(d.log(), r"calls that do not return.*lane=.?export /hung")
            self.assertNotRegex(d.log(), r"lane=.?export /export")
        finally:
            disk.close()
            d.stop()

    def test_a_disk_that_answers_again_is_told(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        d = self.start("--export", folder + ":/hung")
        series = 'verbena_export_up{export="/hung"}'
        disk.hang()
        for wanted, step in ((0, None), (1, disk.go_on)):
            if step:
                step()
            end = time.monotonic() + peers.LIMIT
            while d.metric(series) != wanted:
                self.assertLess(time.monotonic(), end, d.log())
                time.sleep(0.05)
        d.log_with(f"info posixfs: the root of an export answers again export=/hung directory={folder} seconds=")
        self.assertEqual(d.stop(), 0, d.log())

    def test_a_disk_that_hangs_holds_up_no_start(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        disk.hang()
        # Whoever waits for it can't be killed.
        late = threading.Timer(daemon.START_LIMIT, disk.close)
        late.start()
        self.addCleanup(late.cancel)
        d = self.start("--export", folder + ":/hung,root_squash=no", "--shards", "1")
        d.log_with(r"an export is not served, and its clients wait, until its root is there export=/hung "
                   rf"directory={folder} why=\"{folder} does not answer: look at what is beneath; when it answers it is served\"")
        self.assertEqual((d.metric('verbena_export_up{export="/hung"}'), d.metric('verbena_export_up{export="/export"}')), (0, 1))
        caller = TcpPeer(d.port("tcp"))
        root = caller.mount()
        self.assertEqual(caller.nfs(GETATTR, peers.opaque(root)).nfs_status(), 0)
        disk.go_on()
        end = time.monotonic() + peers.LIMIT
        while d.metric('verbena_export_up{export="/hung"}') != 1:
            self.assertLess(time.monotonic(), end, d.log())
            time.sleep(0.05)
        hung = caller.mount("/hung")
        self.assertEqual(caller.nfs(GETATTR, peers.opaque(hung)).nfs_status(), 0)
        disk.break_off()
        d.log_with(rf'export=/hung directory={folder} why="{folder}: [^;]+; its file system is gone: unmount what is left of it')
        caller.close()

    def test_disks_that_hang_are_waited_for_together(self):
        disks = []
        for name in ("hung1", "hung2"):
            folder = os.path.join(self.folder, name)
            os.mkdir(folder)
            disks.append(hung_disk.HungDisk(folder))
            self.addCleanup(disks[-1].close)
            disks[-1].hang()
        def let_go():
            disks[1].wait_for(1) # though nobody has given up the first one yet
            for disk in disks:
                disk.go_on()
        helper = threading.Thread(target=let_go)
        helper.start()
        self.addCleanup(helper.join)
        d = self.start("--export", self.folder + "/hung1:/hung1", "--export", self.folder + "/hung2:/hung2", "--shards", "1")
        self.assertNotIn("an export is not served", d.log())
        for name in ("hung1", "hung2"):
            self.assertEqual(d.metric(f'verbena_export_up{{export="/{name}"}}'), 1)

    def test_a_check_waits_for_no_disk_without_end(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        config = os.path.join(self.folder, "config.toml")
        def write(more=""):
            with open(config, "w", encoding="utf-8") as file:
                file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(1)}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
{more}""")
        write()
        d = self.run_daemon("serve", config)
        disk.hang()
        late = threading.Timer(daemon.START_LIMIT, disk.close) # whoever waits for it can't be killed
        late.start()
        self.addCleanup(late.cancel)
        write(f'[[nfs.export]]\ndirectory = "{folder}"\npseudo = "/hung"\n')
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "admin", "--socket", os.path.join(self.folder, "state", "control"), "check"],
                              capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("export /hung", done.stdout)
        self.assertTrue(late.is_alive(), "it came back when the disk did")
        self.assertGreater(d.metric('verbena_blocking_running_jobs{lane="export /hung"}'), 0)
        self.assertEqual(d.metric('verbena_unclosed_exports{reason="unused"}'), 1)
        disk.go_on()
        # Nobody wants it: the disk can be unmounted without another reload or check.
        d.log_with("an export that was opened for nothing is closed, as its disk answers export=/hung")
        end = time.monotonic() + peers.LIMIT
        while hung_disk.LIBC.umount2(folder.encode(), 0) != 0:
            self.assertLess(time.monotonic(), end, d.log())
            time.sleep(0.05)
        self.assertNotIn("an export is served", d.log())
        self.assertEqual(d.metric('verbena_unclosed_exports{reason="unused"}'), 0)

    def test_of_two_that_wait_for_one_disk_the_export_is_served(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        config = os.path.join(self.folder, "config.toml")
        def write(more=""):
            with open(config, "w", encoding="utf-8") as file:
                file.write(f"""[daemon]
state = "{self.folder}/state"
shards = {daemon.shards(1)}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
directory = "{self.data}"
pseudo = "/export"
{more}""")
        write()
        d = self.run_daemon("serve", config)
        disk.hang()
        late = threading.Timer(2 * daemon.START_LIMIT, disk.close) # whoever waits for it can't be killed
        late.start()
        self.addCleanup(late.cancel)
        write(f'[[nfs.export]]\ndirectory = "{folder}"\npseudo = "/hung"\n')
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for word in ("check", "reload"):
            done = subprocess.run([client, "admin", "--socket", os.path.join(self.folder, "state", "control"), word],
                                  capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(late.is_alive(), "it came back when the disk did")
        disk.go_on()
        end = time.monotonic() + peers.LIMIT
        while (d.metric('verbena_export_up{export="/hung"}'), d.metric('verbena_unclosed_exports{reason="unused"}')) != (1, 0):
            self.assertLess(time.monotonic(), end, d.log())
            time.sleep(0.05)
        self.assertEqual(d.log().count("an export is served export=/hung"), 1)
        caller = TcpPeer(d.port("tcp"))
        hung = caller.mount("/hung")
        self.assertEqual(caller.nfs(GETATTR, peers.opaque(hung)).nfs_status(), 0)
        caller.close()

    def test_a_start_with_a_disk_that_hangs_can_be_stopped(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        disk.hang()
        d = daemon.Daemon("nfs", "--export", folder + ":/hung", "--state", os.path.join(self.folder, "state"),
                          "--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0", "--rpcbind", "no", folder=self.folder)
        try:
            d.process.send_signal(signal.SIGTERM)
            d.log_with(r"stopped without waiting for calls that do not return; .* lane=\"export /hung\"")
            disk.close()
            self.assertEqual(d.stop(), 1, d.log())
        finally:
            disk.close()
            d.stop()

    def test_connections_leave_descriptors_to_files(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        for number in range(40):
            with open(os.path.join(self.data, f"file{number}"), "wb") as file:
                file.write(b"there")
        d = self.start("--shards", "2", before_start=few)
        first = TcpPeer(d.port("tcp"))
        root = first.mount()
        idle = [socket.create_connection(("127.0.0.1", d.port(transport)))
                for transport in ("tcp", "iwarp") for _ in range(150)]
        for number in range(40):
            file = first.lookup(root, f"file{number}")
            done = first.nfs(peers.READ, peers.read_arguments(file, 0, 5))
            self.assertEqual(done.nfs_status(), 0)
        first.create(root, "new")
        self.assertGreater(d.metric('verbena_listener_failures_total{reason="exhausted"}'), 0)
        for each in idle:
            each.close()
        # Who waited is served when the others have gone. As another peer: until the server has taken what stood in front, and seen that it
        # ended, this one has as many connections as one may.
        late = TcpPeer(d.port("tcp"), source="127.0.0.2")
        late.mount()
        late.close()
        first.close()


class HungDevice(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.hung = os.path.join(self.folder, "hung")
        os.mkdir(self.hung)
        self.disk = hung_disk.HungDisk(self.hung)
        self.addCleanup(self.disk.close)
        # Whoever waits for it can't be killed.
        late = threading.Timer(2 * daemon.START_LIMIT, self.disk.close)
        late.start()
        self.addCleanup(late.cancel)
        self.config = os.path.join(self.folder, "config.toml")

    def write(self, *devices):
        text = f"""[daemon]
state = "{self.folder}/state"
control = "{self.folder}/control"
shards = {daemon.shards(1)}
[metrics]
listen = "127.0.0.1:0"
[block]
listen = ["iwarp://127.0.0.1:0"]
"""
        for name, settings in devices:
            text += f'[[block.device]]\nname = "{name}"\n{settings}\n'
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def admin(self, *words, status=0):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "admin", "--socket", os.path.join(self.folder, "control"), "--json", *words],
                              capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done.stderr if status else json.loads(done.stdout)["rows"]

    def devices(self):
        return [row["name"] for row in self.admin("devices")]

    def test_a_reload_waits_for_no_disk_without_end(self):
        there = f'path = "{self.folder}/there"\nsize = "1M"' # so that its back end is in use
        self.write(("there", there), ("memory", 'size = "1M"'))
        d = self.run_daemon("serve", self.config)
        self.disk.hang()
        path = os.path.join(self.hung, "disk")
        self.write(("there", there + '\nclients = ["*"]'), ("more", 'size = "1M"'), ("hung", f'path = "{path}"'))
        told = self.admin("reload", status=1)
        self.assertRegex(told, rf"config.toml:\d+:\d+: device hung: {path} \(fileblk\) does not answer for 5 s: see what .* leave the device out")
        self.assertEqual(self.devices(), ["there", "memory"])
        # One that is tried again is told at once, and leaves nothing behind.
        told = self.admin("reload", status=1)
        self.assertRegex(told, rf"device hung: {path} \(fileblk\) has not answered for \d+ s")
        self.assertEqual(d.metric('verbena_blocking_running_jobs{lane="device hung"}'), 1)
        self.assertEqual(self.devices(), ["there", "memory"])
        self.disk.go_on()
        while d.metric('verbena_blocking_running_jobs{lane="device hung"}'): # until the late answer is there
            time.sleep(0.01)
        # It opened nothing; the disk has no such file.
        self.assertIn(f"{path} does not exist", self.admin("reload", status=1))
        self.write(("there", there), ("more", 'size = "1M"'))
        self.admin("reload")
        self.assertEqual(self.devices(), ["there", "more"])

    def test_a_start_waits_for_no_disk_without_end(self):
        self.disk.hang()
        path = os.path.join(self.hung, "disk")
        self.write(("first", f'path = "{path}"'), ("second", f'path = "{path}2"'))
        with subprocess.Popen([daemon.BINARY, "serve", self.config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            told = ""
            for line in process.stderr:
                told += line
                if "goes on by itself" in line: # the kernel keeps it until the disk answers
                    self.disk.close()
            self.assertEqual(process.wait(), 1, told)
        self.assertRegex(told, rf"device first: {path} \(fileblk\) does not answer for 5 s: see what ")
        self.assertRegex(told, r'stopped without waiting for calls that do not return; .* lane="device second"')


if __name__ == "__main__":
    daemon.main()
