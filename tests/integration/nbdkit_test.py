#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plugin of nbdkit: what NBD's own tools write to a device of verbenad they read back, byte for byte. Not under a sanitizer, which nbdkit
can't load."""
import json
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time

import daemon

MIB = 1 << 20
PLUGIN = ""


class NbdClient:
    """The protocol of NBD by hand: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, fixed newstyle, simple replies."""
    WRITE, FLUSH = 1, 3
    FUA = 1

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.settimeout(60 * daemon.SLOW)
            self.socket.connect(path)
            self.begin()
        except BaseException:
            self.socket.close()
            raise

    def begin(self):
        assert self.receive(16) == b"NBDMAGICIHAVEOPT"
        self.receive(2)
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0)) # NBD_OPT_EXPORT_NAME, the default one
        self.receive(10)

    def receive(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "nbdkit has closed the connection"
            data += more
        return data

    def ask(self, command, data=b"", offset=0, flags=0):
        """The errno of NBD's answer; 0 for success."""
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset, len(data)) + data)
        magic, error, handle = struct.unpack(">IIQ", self.receive(16))
        assert (magic, handle) == (0x67446698, 7)
        return error

    def close(self):
        self.socket.close()


class Nbdkit(daemon.DaemonTest):
    device = "disk=32M"

    def setUp(self):
        super().setUp()
        self.serve("0", "0")

    def serve(self, *ports):
        words = [word for port in ports for word in ("--listen", f"iwarp://127.0.0.1:{port}")]
        self.daemon = self.run_daemon("block", "--shards", "1", "--metrics", "127.0.0.1:0", "--device", self.device,
                                      "--device", "fixed=1M,ro", "--state", os.path.join(self.folder, "state"), *words, exactly=True)
        self.ports = [line.rsplit(":", 1)[1] for line in self.daemon.lines if line.startswith("listening at ")]

    def start_nbdkit(self, *words):
        """An nbdkit that serves until the test is over: the path of its socket, and its process."""
        path = os.path.join(self.folder, "nbd.sock")
        ready = os.path.join(self.folder, "nbd.pid") # it is written when the socket, which is there before, can be connected to
        running = subprocess.Popen(["nbdkit", "-f", "-U", path, "-P", ready, PLUGIN, *words], stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        limit = time.monotonic() + 30 * daemon.SLOW
        while not os.path.exists(ready):
            self.assertIsNone(running.poll())
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        return path, running

    def run_nbdkit(self, script, device="disk", *words, status=0):
        """What the commands say that nbdkit runs with the export's URI in $uri."""
        done = subprocess.run(["nbdkit", "-f", "-U", "-", *words, PLUGIN, f"url=rnbd+iwarp://127.0.0.1:{self.ports[0]}/{device}",
                               f"path=rnbd+iwarp://127.0.0.1:{self.ports[1]}", "--run", "set -e; " + script],
                              capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_each_client_is_told_once_what_the_server_lost(self):
        path, running = self.start_nbdkit(f"url=rnbd+iwarp://127.0.0.1:{self.ports[0]}/disk")
        one = NbdClient(path)
        two = NbdClient(path)
        gone = NbdClient(path)
        for client in (one, two, gone):
            self.addCleanup(client.close)
        self.assertEqual(one.ask(one.WRITE, bytes(65536)), 0)
        self.assertEqual(two.ask(two.FLUSH), 0)
        self.assertEqual(gone.ask(gone.WRITE, bytes(65536), 65536), 0)
        gone.close()
        self.daemon.stop(signal.SIGKILL)
        self.serve(*self.ports)
        # A write waits until there is a server again. That it is on stable storage itself says nothing of others.
        self.assertEqual(one.ask(one.WRITE, bytes(4096), 0, one.FUA), 0)
        self.assertEqual(one.ask(one.FLUSH), 5) # EIO
        self.assertEqual(one.ask(one.FLUSH), 0)
        later = NbdClient(path) # one has been told
        self.addCleanup(later.close)
        self.assertEqual(later.ask(later.FLUSH), 0)
        self.assertEqual(two.ask(two.FLUSH), 5)
        self.assertEqual(two.ask(two.FLUSH), 0)
        for client in (one, two, later): # nbdkit waits for them
            client.close()
        running.terminate()
        self.assertIn("may have lost changes that it had answered", running.stderr.read())

    def test_the_log_tells_of_a_loss_that_no_client_heard_of(self):
        path, running = self.start_nbdkit(f"url=rnbd+iwarp://127.0.0.1:{self.ports[0]}/disk")
        writer, second, reader = NbdClient(path), NbdClient(path), NbdClient(path)
        for client in writer, second, reader:
            self.addCleanup(client.close)
        self.assertEqual(writer.ask(writer.WRITE, bytes(65536)), 0)
        self.assertEqual(second.ask(second.WRITE, bytes(65536), 131072), 0)
        self.daemon.stop(signal.SIGKILL)
        self.serve(*self.ports)
        self.assertEqual(writer.ask(writer.WRITE, bytes(65536), 65536), 0)
        reader.close() # it has written nothing: the log is silent of it
        writer.close()
        second.close()
        said = b""
        line = b"a client left without a flush after the server began anew"
        while said.count(line) != 2:
            self.assertTrue(select.select([running.stderr], [], [], 30 * daemon.SLOW)[0])
            more = os.read(running.stderr.fileno(), 65536)
            self.assertTrue(more, "nbdkit has ended")
            said += more
        another = NbdClient(path) # whose flush still tells
        self.addCleanup(another.close)
        self.assertEqual(another.ask(another.FLUSH), 5)
        self.assertEqual(another.ask(another.WRITE, bytes(65536)), 0) # behind the loss
        another.close()
        running.terminate()
        self.assertNotIn("left without a flush", running.stderr.read())

    def test_a_session_ends_when_its_device_is_refused(self):
        self.start_nbdkit(f"url=rnbd+iwarp://127.0.0.1:{self.ports[0]}/none")
        path = os.path.join(self.folder, "nbd.sock")
        with self.assertRaises((AssertionError, ConnectionError)):
            NbdClient(path)
        limit = time.monotonic() + 30 * daemon.SLOW
        while self.daemon.metric("verbena_rtrs_sessions") != 0:
            self.assertLess(time.monotonic(), limit)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="closed"}'), 1)

    def test_a_device_that_could_not_be_opened_again_is_not_given_out(self):
        path, running = self.start_nbdkit(f"url=rnbd+iwarp://127.0.0.1:{self.ports[0]}/disk")
        before = NbdClient(path)
        self.addCleanup(before.close)
        self.daemon.stop(signal.SIGKILL)
        self.device = "disk=32M,session=another"
        self.serve(*self.ports)
        self.assertNotEqual(before.ask(before.WRITE, bytes(4096)), 0) # waits until the server has refused the device
        with self.assertRaises((AssertionError, ConnectionError)):
            NbdClient(path)
        before.close()
        # Whoever comes before nbdkit has noticed that is told of `before`.
        said = b""
        limit = time.monotonic() + 30 * daemon.SLOW
        while b"the device is not for this host or session" not in said:
            self.assertLess(time.monotonic(), limit)
            with self.assertRaises((AssertionError, ConnectionError)):
                NbdClient(path)
            while select.select([running.stderr], [], [], 0)[0]:
                said += os.read(running.stderr.fileno(), 65536)
        self.daemon.stop(signal.SIGKILL)
        self.device = "disk=32M"
        self.serve(*self.ports)
        again = NbdClient(path)
        self.addCleanup(again.close)
        self.assertEqual(again.ask(again.WRITE, bytes(4096)), 0)
        again.close()
        self.assertIn(b"end the clients that have it open here", said)

    def test_copies_are_the_same(self):
        image = os.path.join(self.folder, "image")
        with open(image, "wb") as file:
            file.write(os.urandom(32 * MIB))
        self.run_nbdkit('nbdcopy image "$uri"; nbdcopy "$uri" copy; cmp image copy;'
                        'qemu-img compare -f raw -F raw image "$uri";'
                        'qemu-img convert -f raw -O raw -n image "$uri"; qemu-img compare -f raw -F raw image "$uri"')
        self.assertGreater(self.daemon.metric('verbena_rnbd_bytes_total{direction="read"}'), 64 * MIB - 1)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="closed"}'), 2)

    def test_fio_reads_what_it_wrote(self):
        said = self.run_nbdkit('fio --name=mixed --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-256k --bs_unaligned=0 --size=32M '
                               '--iodepth=64 --verify=crc32c --verify_backlog=256 --randseed=7 --io_size=64M --output-format=json > fio.json')
        with open(os.path.join(self.folder, "fio.json"), encoding="utf-8") as file:
            text = file.read()  # fio may warn of something in front
        job = json.loads(text[text.index("{"):])["jobs"][0]
        self.assertEqual(job["error"], 0, said)
        self.assertGreater(min(job["read"]["total_ios"], job["write"]["total_ios"]), 100)

    def test_patterns_and_odd_operations(self):
        commands = ["write -P 0xab 4096 8192", "read -P 0xab 4096 8192", "write -f -P 0xcd 1M 3M", "read -P 0xcd 1M 3M",
                    "write -z 2M 1M", "read -P 0 2M 1M", "write -z -u 1M 1M", "read -P 0 1M 1M", "discard 0 1M", "flush"]
        said = self.run_nbdkit("qemu-io -f raw " + " ".join("-c " + shlex.quote(c) for c in commands) + ' "$uri"')
        self.assertNotIn("failed", said)
        self.assertGreater(self.daemon.metric('verbena_rnbd_operations_total{operation="write_zeroes"}'), 1)
        self.assertGreater(self.daemon.metric('verbena_rnbd_operations_total{operation="discard"}'), 0)

    def test_what_cannot_be_written(self):
        self.assertIn("does not let it be changed: start nbdkit with -r", self.run_nbdkit('nbdinfo --size "$uri"', "fixed", status=1))
        self.assertIn(str(MIB), self.run_nbdkit('nbdinfo --size "$uri"', "fixed", "-r"))

    def test_what_is_not_there(self):
        self.assertIn("no device of this name", self.run_nbdkit('nbdinfo "$uri"', "none", status=1))
        # The command ends, as its client is told.
        done = subprocess.run(["nbdkit", "-f", "-U", "-", PLUGIN, "url=rnbd+iwarp://127.0.0.1:1/disk", "--run", 'nbdinfo "$uri"'],
                              capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot connect to rnbd+iwarp://127.0.0.1:1/disk", done.stderr)
        done = subprocess.run(["nbdkit", "-f", "-U", "-", PLUGIN, "url=nfs://x/y", "--run", "true"], capture_output=True, text=True,
                              timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rnbd+iwarp://HOST[:1234]/DEVICE", done.stderr)
        done = subprocess.run(["nbdkit", "-f", "-U", "-", PLUGIN, "url=rnbd+iwarp://127.0.0.1:70000/disk", "--run", "true"],
                              capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a port is a number from 1 to 65535; leave it out for 1234", done.stderr)
        done = subprocess.run(["nbdkit", "-f", "-U", "-", PLUGIN, "url=rnbd+iwarp://127.0.0.1/a", "url=rnbd+iwarp://127.0.0.1/b", "--run", "true"],
                              capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("url= stands twice", done.stderr)


if __name__ == "__main__":
    PLUGIN = os.path.abspath(sys.argv.pop(3))
    daemon.main()
