#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Block devices natively, over iWARP: `verbenad block`, `verbena block`, and NBD's tools by the plugin of nbdkit."""
import json
import os
import signal
import subprocess
import time

import daemon

MIB = 1 << 20


class Block(daemon.DaemonTest):
    def serve(self, *devices, listen=("iwarp://127.0.0.1:0",), settings=()):
        words = [word for device in devices for word in ("--device", device)]
        words += [word for url in listen for word in ("--listen", url)]
        self.daemon = self.run_daemon("block", "--shards", "3", "--metrics", "127.0.0.1:0",
                                      "--state", os.path.join(self.folder, "state"), *words, *settings, exactly=True)
        self.ports = [int(line.rsplit(":", 1)[1]) for line in self.daemon.lines if line.startswith("listening at ")]

    def url(self, device, path=0):
        return f"rnbd+iwarp://127.0.0.1:{self.ports[path]}/{device}"

    def block(self, *words, data=b"", status=0):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "-q", "block", *words], input=data, capture_output=True, timeout=120 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr.decode() if status else done.stdout

    def refused(self, *words, status=2):
        """`status` 1: another start may do better."""
        done = self.run_binary("block", "--metrics", "off", "--state", os.path.join(self.folder, "state"), *words)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_what_is_written_is_read(self):
        self.serve("disk=8M", "small=64K,block_size=4096")
        data = os.urandom(5 * MIB + 1000)
        self.block("write", self.url("disk"), data=data)
        self.assertEqual(self.block("read", "--length", "5M", self.url("disk")), data[:5 * MIB])
        self.assertEqual(self.block("read", "--offset", "1M", "--length", "64K", self.url("disk")), data[MIB:MIB + 65536])
        # As of what is written, the end of what is read may lie within a block.
        self.assertEqual(self.block("read", "--length", str(len(data)), self.url("disk")), data)
        self.assertEqual(self.block("read", "--offset", "512", "--length", "1", self.url("disk")), data[512:513])
        # What does not end a block leaves the rest of it alone.
        self.block("write", self.url("small"), data=b"\1" * 8192)
        self.block("write", "--offset", "4K", self.url("small"), data=b"\2" * 10)
        self.assertEqual(self.block("read", "--length", "8K", self.url("small")), b"\1" * 4096 + b"\2" * 10 + b"\1" * 4086)
        file = os.path.join(self.folder, "out")
        self.block("read", self.url("disk"), file)
        with open(file, "rb") as out:
            self.assertEqual(out.read(), data + b"\0" * (8 * MIB - len(data)))
        self.block("discard", self.url("disk"))
        self.assertEqual(self.block("read", self.url("disk")), bytes(8 * MIB))

        told = json.loads(self.block("info", "--connections", "3", self.url("small") , "--json"))
        self.assertEqual((told["size"], told["block_size"], told["max_io"]), (65536, 4096, 126976))
        bench = json.loads(self.block("bench", "--seconds", "0.2", "--pattern", "randwrite", "--json", self.url("small")))
        self.assertGreater(bench["operations"], 0)
        self.assertGreater(self.daemon.metric('verbena_rnbd_operations_total{operation="flush"}'), 2)
        self.assertEqual(self.daemon.metric("verbena_rtrs_sessions"), 0)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="bad_message"}'), 0)
        self.assertEqual(self.daemon.metric("verbena_rtrs_invalidations_total"), 0)

    def test_a_new_key_for_each_request(self):
        self.serve("disk=8M", settings=("--always-invalidate", "--queue-depth", "16"))
        data = os.urandom(8 * MIB)
        self.block("write", self.url("disk"), data=data)
        self.assertEqual(self.block("read", self.url("disk")), data)
        bench = json.loads(self.block("bench", "--seconds", "0.5", "-d", "32", "--pattern", "randread", "--json", self.url("disk")))
        self.assertGreater(bench["operations"], 0)
        requests = sum(self.daemon.metric(f'verbena_rtrs_requests_total{{kind="{kind}"}}') for kind in ("read", "write"))
        self.assertEqual(self.daemon.metric("verbena_rtrs_invalidations_total"), requests)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="bad_message"}'), 0)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="lost"}'), 0)

    def test_it_says_how_much_it_has_moved(self):
        self.serve("disk=8M")
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        data = os.urandom(3 * MIB)
        for quiet in ((), ("-q",)):
            for words, told in ((("write",), rb"3\.0 MiB written and flushed in \d+\.\d\d s, .*/s\n"),
                                (("read", "--length", "3M"), rb"3\.0 MiB read in \d+\.\d\d s, .*/s\n")):
                done = subprocess.run([client, *quiet, "block", *words, self.url("disk")], input=data, capture_output=True,
                                      timeout=120 * daemon.SLOW, check=True)
                self.assertRegex(done.stderr, rb"\A" + (b"" if quiet else told) + rb"\Z")
                self.assertEqual(done.stdout, data if words[0] == "read" else b"")

    def test_several_paths_are_one_session(self):
        self.serve("disk=8M", listen=("iwarp://127.0.0.1:0", "iwarp://127.0.0.1:0"))
        data = os.urandom(MIB)
        self.block("write", "--path", self.url("", path=1)[:-1], self.url("disk"), data=data)
        self.assertEqual(self.block("read", "--length", "1M", self.url("disk", path=1)), data)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="closed"}'), 3)

    def test_a_host_has_a_name(self):
        self.serve("disk=1M")
        for name in ("localhost", "127.0.0.1"):
            self.assertEqual(json.loads(self.block("info", "--json", f"rnbd+iwarp://{name}:{self.ports[0]}/disk"))["size"], MIB)
        told = self.block("info", "rnbd+iwarp://no-such-host.invalid/disk", status=3)
        self.assertIn("look up the host's name", told)
        self.assertIn("is the host's name right", told)

    def test_one_path_is_enough_to_begin_with(self):
        self.serve("disk=1M")
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for urls in ([self.url("disk"), "--path", "rnbd+iwarp://127.0.0.1:1"], ["rnbd+iwarp://127.0.0.1:1/disk", "--path", self.url("")[:-1]]):
            done = subprocess.run([client, "block", "info", *urls], capture_output=True, text=True, timeout=60 * daemon.SLOW, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("1.0 MiB", done.stdout)
            self.assertIn("cannot connect to rnbd+iwarp://127.0.0.1:1", done.stderr)
            self.assertIn("goes on being tried", done.stderr)

    def test_sessions_live_on_all_shards_and_each_on_one(self):
        self.serve("disk=1M", listen=("iwarp://127.0.0.1:0", "iwarp://127.0.0.1:0"))
        told = [json.loads(self.block("info", "--json", "--connections", "4", "--path", self.url("", path=1)[:-1], self.url("disk")))
                for _ in range(12)]
        self.assertEqual({info["size"] for info in told}, {MIB})
        self.assertEqual(self.daemon.metric('verbena_rtrs_refused_connections_total{reason="not_valid"}'), 0)
        self.assertEqual(self.daemon.metric('verbena_rtrs_ended_paths_total{reason="closed"}'), 24)

    def test_sessions_at_once(self):
        """Each has a device of its own, at work from the first one's connect to the last one's end."""
        sessions = int(os.environ.get("VERBENA_TEST_SESSIONS", "4"))
        # All are of one host.
        self.serve(*(f"disk{n}=1M" for n in range(sessions)),
                   settings=("--queue-depth", "32", "--sessions-per-peer", "64", "--peer-memory-mib", "512"))
        written = [os.urandom(MIB) for _ in range(sessions)]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        # They end when they are told to, so that all of them have come by then.
        benches = [subprocess.Popen([client, "-q", "block", "bench", "--pattern", "randwrite", "-d", "32", "--seconds", "600",
                                     self.url(f"disk{n}")]) for n in range(sessions)]
        for bench in benches:
            self.addCleanup(bench.wait)
            self.addCleanup(bench.kill)
        done = [f'verbena_rnbd_device_operations_total{{device="disk{n}",operation="write"}}' for n in range(sessions)]
        while True:
            here = self.daemon.metric("verbena_rtrs_sessions")
            # All by one page, which takes its time beside so much work.
            written_to = self.daemon.metrics(done)
            self.assertEqual([bench.poll() for bench in benches], [None] * sessions)
            if here == sessions and len(written_to) == sessions and all(written_to):
                break
            time.sleep(0.05)
        for bench in benches:
            bench.kill()
        while self.daemon.metric("verbena_rtrs_sessions") > 0:
            time.sleep(0.05)
        writers = [subprocess.Popen([client, "-q", "block", "write", self.url(f"disk{n}")], stdin=subprocess.PIPE)
                   for n in range(sessions)]
        for writer, data in zip(writers, written):
            writer.communicate(data, timeout=60 * daemon.SLOW)
            self.assertEqual(writer.returncode, 0)
        for n, data in enumerate(written):
            self.assertEqual(self.block("read", self.url(f"disk{n}")), data)
        self.assertEqual(self.daemon.metric("verbena_rnbd_failed_operations_total"), 0)

    def test_who_may_do_what(self):
        self.serve("mine=1M,ro", "theirs=1M,clients=192.0.2.0/24", "named=1M,session=vm1", "ours=1M,rw")
        self.block("write", self.url("ours"), data=b"x")
        self.assertIn("does not let it be changed", self.block("write", self.url("mine"), data=b"x", status=1))
        self.assertEqual(len(self.block("read", self.url("mine"))), MIB)
        self.assertIn("not for this host", self.block("read", self.url("theirs"), status=1))
        self.assertIn("not for this host", self.block("read", self.url("named"), status=1))
        self.assertEqual(len(self.block("read", "--session", "vm1", self.url("named"))), MIB)
        self.assertIn("no device of this name", self.block("info", self.url("none"), status=1))
        self.assertEqual(self.daemon.metric('verbena_rnbd_opens_total{result="refused"}'), 4)

    def test_who_is_let_in(self):
        self.serve("theirs=1M,clients=192.0.2.0/24")
        self.assertIn("has no device for this host", self.block("info", self.url("theirs"), status=3))
        self.assertGreater(self.daemon.metric('verbena_rtrs_refused_connections_total{reason="not_admitted"}'), 0)
        self.assertEqual(self.daemon.metric("verbena_rtrs_sessions"), 0)
        self.assertEqual(self.daemon.metric("verbena_peers"), 0)
        self.daemon.stop()
        self.serve("disk=1M", settings=("--sessions-per-peer", "1"))
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        first = subprocess.Popen([client, "-q", "block", "bench", "--seconds", "600", self.url("disk")])
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        while not self.daemon.metric('verbena_rnbd_operations_total{operation="read"}'):
            self.assertIsNone(first.poll())
        self.assertIn("as many sessions or connections there as one may", self.block("info", self.url("disk"), status=3))
        self.assertEqual(self.daemon.metric('verbena_peer_most_held{of="rtrs_sessions"}'), 1)
        self.assertGreater(self.daemon.metric('verbena_peer_refusals_total{of="rtrs_sessions"}'), 0)

    def test_connections_are_counted_apart_from_those_of_calls(self):
        # What is chosen for clients of NFS.
        self.serve("disk=1M", settings=("--peer-connections", "1"))
        self.assertIn(b"1048576", self.block("info", self.url("disk")))
        self.daemon.stop()
        self.serve("disk=1M", settings=("--connections-per-peer", "1"))
        self.assertIn("connections_per_peer of [block]", self.block("info", self.url("disk"), status=3))
        self.assertGreater(self.daemon.metric('verbena_peer_refusals_total{of="rtrs_connections"}'), 0)

    def test_a_file_is_a_device(self):
        path = os.path.join(self.folder, "disk.img")
        self.serve(f"disk={path},size=8M")
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        data = os.urandom(5 * MIB + 1000)
        self.block("write", self.url("disk"), data=data)
        self.assertEqual(self.block("read", self.url("disk")), data + b"\0" * (8 * MIB - len(data)))
        with open(path, "rb") as file:
            self.assertEqual(file.read(), data + b"\0" * (8 * MIB - len(data)))
        self.assertGreater(self.daemon.metric('verbena_fileblk_syncs_total{device="disk"}'), 0)
        self.assertEqual(self.daemon.metric('verbena_fileblk_transfers_total{device="disk",way="direct_copied"}'), 0)
        ways = [self.daemon.metric(f'verbena_fileblk_transfers_total{{device="disk",way="{way}"}}') for way in ("direct", "page_cache")]
        self.assertEqual([way > 0 for way in ways].count(True), 1, ways)
        # Others may not write to it meanwhile, nor read what changes under them.
        self.assertIn(f"device b: {path} is locked by somebody else: another device", self.refused("--device", f"b={path}", status=1))
        self.assertIn("who may write to it", self.refused("--device", f"b={path},ro", status=1))
        self.assertIn("is locked by", self.refused("--device", f"a={self.folder}/new.img,size=1M", "--device", f"b={self.folder}/new.img", status=1))
        # A restart keeps it.
        self.daemon.stop()
        self.serve(f"disk={path},direct=off", f"four={self.folder}/four.img,size=1M,block_size=4096")
        self.assertEqual(self.block("read", "--length", "5M", self.url("disk")), data[:5 * MIB])
        self.block("discard", "--length", "4M", self.url("disk"))
        self.assertEqual(self.block("read", "--offset", "4M", "--length", "1M", self.url("disk")), data[4 * MIB:5 * MIB])
        with open(path, "rb") as file:
            self.assertEqual(file.read(4 * MIB), bytes(4 * MIB))
        self.block("write", self.url("four"), data=data[:MIB])
        self.assertEqual(self.block("read", self.url("four")), data[:MIB])

    def test_a_file_that_is_read_only(self):
        path = os.path.join(self.folder, "disk.img")
        with open(path, "wb") as file:
            file.write(b"x" * 8192 + b"tail")
        os.chmod(path, 0o400)
        # Readers share it.
        self.serve(f"one={path},ro", f"two={path},ro,backend=fileblk")
        self.assertTrue(any("the last 4 bytes are no whole block" in line for line in self.daemon.lines), self.daemon.lines)
        self.assertEqual(self.block("read", self.url("two")), b"x" * 8192)
        self.assertIn("does not let it be changed", self.block("write", self.url("one"), data=b"y", status=1))
        self.assertIn("is locked by", self.refused("--device", f"b={path}", status=1))

    def test_files_that_are_no_device(self):
        def refused(path, *options, status=2):
            return self.refused("--device", ",".join((f"a={path}", *options)), status=status)
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        missing = os.path.join(self.folder, "missing")
        with open(os.path.join(self.folder, "small"), "wb") as file:
            file.write(b"x" * 100)
        self.assertIn("is a folder: name a file in it", refused(self.folder))
        self.assertIn("is a FIFO: name a regular file or a block device", refused(fifo))
        self.assertIn("is a character device", refused("/dev/null"))
        self.assertIn("as in size=10G", refused(missing, status=1))
        self.assertIn("no file is made there: correct its name", refused("/dev/verbena-none", status=1))
        self.assertIn("leave out ro once", refused(missing, "size=1M", "ro", status=1))
        self.assertIn("whole blocks of 4096 bytes", refused(missing, "size=1000", "block_size=4096"))
        self.assertIn("as 64M or 10G", refused(missing, "size=many"))
        self.assertIn("make its folder", refused(missing + "/in", "size=1M", status=1))
        self.assertFalse(os.path.exists(missing))
        self.assertIn("holds no whole block (100 bytes)", refused(self.folder + "/small"))
        self.assertIn("has 100 bytes, not the 1048576 bytes of size=", refused(self.folder + "/small", "size=1M"))
        self.assertEqual(os.path.getsize(self.folder + "/small"), 100)
        self.assertIn("block_size=512, 1024, 2048 or 4096", refused(self.folder + "/small", "block_size=513"))
        self.assertIn("a file has a slash", self.refused("--device", "a=small"))
        self.assertIn("must be auto, on or off", refused(self.folder + "/small", "direct=maybe"))

    def test_ranges_that_are_none(self):
        self.serve("disk=64K")
        self.assertIn("--offset 1 is not of whole blocks (512 bytes): write 0 or 512",
                      self.block("read", "--offset", "1", self.url("disk"), status=2))
        self.assertIn("--length 66000 is not within the device (65536 bytes): from there it is 65024 at most",
                      self.block("read", "--offset", "512", "--length", "66000", self.url("disk"), status=2))
        self.assertIn("--length 700 is not of whole blocks (512 bytes): write 512 or 1024",
                      self.block("discard", "--length", "700", self.url("disk"), status=2))
        self.assertIn("--offset 100 is not of whole blocks", self.block("write", "--offset", "100", self.url("disk"), status=2))
        self.assertIn("--offset 1048576 is not within the device (65536 bytes)",
                      self.block("write", "--offset", "1M", self.url("disk"), status=2))
        self.assertIn("the device stands first, and then the file", self.block("write", "image.raw", self.url("disk"), status=2))
        # Of a pipe what fits is written, and how much that is is said.
        told = self.block("write", "--offset", "4K", self.url("disk"), data=b"\2" * 65536, status=1)
        self.assertIn("the input goes beyond the end of the device (65536 bytes): the first 61440 bytes of the input were written and flushed", told)
        self.assertEqual(self.block("read", self.url("disk")), bytes(4096) + b"\2" * 61440)
        self.assertIn("nothing was written", self.block("write", "--offset", "64K", self.url("disk"), data=b"x", status=1))
        # Of a file it is known before anything is written.
        self.block("write", self.url("disk"), data=b"\1" * 65536)
        large = os.path.join(self.folder, "large")
        with open(large, "wb") as file:
            file.write(bytes(65537))
        self.assertIn("nothing was written", self.block("write", self.url("disk"), large, status=1))
        self.assertEqual(self.block("read", self.url("disk"), "-"), b"\1" * 65536)
        self.assertIn("whole blocks", self.block("discard", "--offset", "1", self.url("disk"), status=2))
        # 0 is nothing; what a variable that is not set makes is no length.
        self.assertEqual(self.block("read", "--length", "0", self.url("disk")), b"")
        self.block("discard", "--length", "0", self.url("disk"))
        for words in (("discard", "--length", ""), ("read", "--length", ""), ("discard", "--offset", "")):
            self.assertIn("is no size", self.block(*words, self.url("disk"), status=2))
        self.assertEqual(self.block("read", self.url("disk")), b"\1" * 65536)
        self.assertIn("changes nothing here", self.block("read", "--json", self.url("disk"), status=2))
        self.assertIn("no command block ls; known: info read", self.block("ls", self.url("disk"), status=2))
        self.assertIn("1234]/DEVICE", self.block("info", "nfs+tcp://127.0.0.1/x", status=2))
        self.assertIn("cannot connect", self.block("info", "rnbd+iwarp://127.0.0.1:1/x", status=3))
        for port in ("70000", "x", "", "0"):
            self.assertIn("leave it out for 1234", self.block("info", f"rnbd+iwarp://127.0.0.1:{port}/disk", status=2))
            self.assertIn("leave it out for 1234",
                          self.block("info", self.url("disk"), "--path", f"rnbd+iwarp://127.0.0.1:{port}", status=2))
        self.assertIn("write %25 for a percent sign", self.block("info", self.url("50%"), status=2))

    def test_doctor(self):
        self.serve("disk=8M", "others=8M,clients=192.0.2.1")

        def found(url):
            client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
            done = subprocess.run([client, "--json", "doctor", url], capture_output=True, timeout=120 * daemon.SLOW, check=False)
            return done.returncode, {each["check"]: each for each in json.loads(done.stdout or "[]")}, done.stderr.decode()

        code, seen, _ = found(self.url("disk"))
        self.assertEqual((seen["server"]["state"], seen["device"]["state"]), ("ok", "ok"), seen)
        self.assertIn("8.0 MiB, blocks of 512 bytes", seen["device"]["text"])
        # The machine may have problems of its own.
        self.assertEqual(code, 1 if any(each["state"] == "problem" for each in seen.values()) else 0)
        code, seen, _ = found(self.url("others"))
        self.assertEqual((code, seen["server"]["state"], seen["device"]["state"]), (1, "ok", "problem"), seen)
        self.assertIn("clients= and session=", seen["device"]["cure"])
        code, seen, _ = found(self.url("nowhere"))
        self.assertEqual((code, seen["device"]["cure"]), (1, "the server has no device of this name"), seen)
        code, seen, _ = found("rnbd+iwarp://127.0.0.1:1/disk")
        self.assertEqual((code, seen["server"]["state"]), (1, "problem"), seen)
        self.assertNotIn("device", seen)
        code, seen, told = found("rnbd+tcp://127.0.0.1/disk")
        self.assertEqual((code, seen), (2, {}))
        self.assertIn("a device's URL looks like rnbd+iwarp://", told)
        # It lets go of what it opened.
        self.assertEqual(self.daemon.metric("verbena_rtrs_sessions"), 0)

    def test_names_may_be_percent_encoded(self):
        self.serve("a disk=64K", "50%=1M")
        self.assertEqual(json.loads(self.block("info", "--json", self.url("%61%20disk")))["size"], 65536)
        self.assertEqual(json.loads(self.block("info", "--json", self.url("a disk")))["size"], 65536)
        self.assertEqual(json.loads(self.block("info", "--json", self.url("50%25")))["size"], MIB)

    def test_verify_finds_what_is_not_as_it_was_written(self):
        path = os.path.join(self.folder, "disk.img")
        self.serve(f"disk={path},size=8M,direct=off")
        whole = ("--read", "--seed", "1", "--length", "8M")
        self.assertIn("say --write, --read or both", self.block("verify", self.url("disk"), status=2))
        self.assertEqual(self.block("verify", "--write", "--read", "--seed", "1", self.url("disk")), b"")
        told = json.loads(self.block("verify", "--read", "--seed", "1", "--offset", "5M", "--length", "1M", "--json", self.url("disk")))
        self.assertEqual((told["offset"], told["length"], told["written"], told["compared"], told["wrong_blocks"]),
                         (5 * MIB, MIB, False, True, 0))
        told = self.block("verify", "--read", "--seed", "2", "--length", "8M", self.url("disk"), status=1)
        self.assertIn("16384 of 16384 blocks are not as seed 2 has them; the first wrong one is at 0 and holds neither zeros nor bytes of this seed",
                      told)
        self.assertIn("are these the seed and the range", told)
        # Another seed for a part of it.
        self.block("verify", "--write", "--seed", "2", "--offset", "1M", "--length", "1M", self.url("disk"))
        self.block("verify", "--read", "--seed", "2", "--offset", "1M", "--length", "1M", self.url("disk"))
        self.assertIn("2048 of 16384 blocks are not as seed 1 has them; the first wrong one is at 1048576", self.block("verify", *whole, self.url("disk"), status=1))
        self.assertEqual(self.block("verify", "--write", "--seed", "1", self.url("disk")).decode(),
                         f"compare by: verify --read --seed 1 --offset 0 --length {8 * MIB}\n")
        self.daemon.stop()
        with open(path, "r+b") as file: # a block that stands where another one belongs, a torn one, and one that was lost
            file.seek(7 * MIB)
            block = file.read(512)
            file.seek(5 * MIB + 512)
            file.write(block)
            file.seek(6 * MIB + 511)
            file.write(b"x")
            file.seek(7 * MIB + 1024)
            file.write(bytes(512))
        self.serve(f"disk={path},direct=off")
        self.assertIn(f"3 of 16384 blocks are not as seed 1 has them; the first wrong one is at {5 * MIB + 512} and holds what belongs at {7 * MIB}",
                      self.block("verify", *whole, self.url("disk"), status=1))
        for place, holds in (("6M", "63 of its 64 words of 8 bytes, and others"), ("7M", "zeros")):
            self.assertIn(f"and holds {holds}", self.block("verify", "--read", "--seed", "1", "--offset", place, "--length", "1M", self.url("disk"), status=1))
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        done = subprocess.run([client, "-q", "block", "verify", *whole, "--json", self.url("disk")], capture_output=True, timeout=60 * daemon.SLOW, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["first_wrong"]["offset"], 5 * MIB + 512)
        self.assertEqual(json.loads(done.stdout)["wrong_blocks"], 3)
        self.assertIn("whole blocks", self.block("verify", "--read", "--seed", "1", "--length", "1", self.url("disk"), status=2))

    def test_verify_does_not_pass_where_it_has_shown_nothing(self):
        self.serve("disk=8M", "half=4M")
        for words in (("--read", "--seed", "1", "--length", "0"), ("--read", "--seed", "1", "--offset", "8M", "--length", "0"),
                      ("--write", "--length", "0"), ("--write", "--offset", "8M")):
            self.assertIn("there is no block to verify", self.block("verify", *words, self.url("disk"), status=2))
        # A copy that was cut short is right up to its end; one seed for all would have an earlier run pass for this one.
        for words in (("--seed", "1"), ("--length", "4M"), ()):
            self.assertIn("say --seed and --length with --read", self.block("verify", "--read", *words, self.url("half"), status=2))
        first = json.loads(self.block("verify", "--write", "--json", self.url("disk")))
        half = self.block("read", "--length", "4M", self.url("disk"))
        self.block("write", self.url("half"), data=half)
        seed = str(first["seed"])
        self.assertIn("within the device", self.block("verify", "--read", "--seed", seed, "--length", "8M", self.url("half"), status=2))
        self.block("verify", "--read", "--seed", seed, "--length", "8M", self.url("disk"))
        second = json.loads(self.block("verify", "--write", "--json", self.url("disk")))
        self.assertNotEqual(second["seed"], first["seed"])
        self.assertNotEqual(self.block("read", "--length", "4M", self.url("disk")), half)
        told = self.block("verify", "--write", self.url("disk")).decode().split()
        self.block("verify", *told[3:], self.url("disk"))

    def test_verify_tells_what_it_found_before_it_could_not_read(self):
        config = os.path.join(self.folder, "failing.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nshards = 1\nstate = "{self.folder}/state"\n[metrics]\nlisten = "off"\n'
                       '[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "disk"\nsize = "16M"\n'
                       '[[block.device.filter]]\nname = "error"\noperations = ["read"]\nevery = 50\n')
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = [self.daemon.port("iwarp")]
        self.block("verify", "--write", "--seed", "1", self.url("disk"))
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        # 34 requests each 4 MiB: the 50th and the 150th are of the second part, the 100th is of the first one.
        for compared in (4 * MIB, 0, 4 * MIB):
            done = subprocess.run([client, "block", "verify", "--read", "--seed", "2", "--length", "16M", "--json", self.url("disk")],
                                  capture_output=True, timeout=60 * daemon.SLOW, check=False)
            self.assertEqual(done.returncode, 1)
            told = json.loads(done.stdout)
            self.assertEqual((told["compared_bytes"], told["wrong_blocks"]), (compared, compared // 512))
            self.assertIn("Input/output error", told["error"])
            said = done.stderr.decode()
            self.assertIn(f"; the first {compared} bytes were compared", said)
            self.assertEqual(f"\n  {compared // 512} of {compared // 512} blocks are not as seed 2 has them" in said, compared != 0, said)

    def test_it_says_who_gets_in(self):
        self.serve("mine=1M", "named=1M,session=vm1", "ours=1M,clients=192.0.2.0/24,clients=198.51.100.7", "all=1M,clients=*",
                   listen=("iwarp://*:0",))
        told = "\n".join(self.daemon.lines)
        self.assertIn("device mine from ramblk (rw), 1048576 bytes, to this host only\n  other hosts are refused: clients=10.0.0.0/8 lets in", told)
        self.assertIn("device named from ramblk (rw), 1048576 bytes, to this host only, session vm1\n  other hosts", told)
        self.assertIn("device ours from ramblk (rw), 1048576 bytes, to 192.0.2.0/24 198.51.100.7/32\n  1048576 bytes in memory", told)
        self.assertIn("device all from ramblk (rw), 1048576 bytes, to everybody\n", told)
        self.daemon.stop()
        self.serve("mine=1M") # on loopback nobody else comes
        self.assertNotIn("other hosts are refused", "\n".join(self.daemon.lines))

    def test_it_says_how_many_clients_there_is_memory_for(self):
        for shards, mib, depth, clients, of_one in ((1, 512, 512, 7, 2), (3, 512, 512, 6, 2), (1, 1024, 64, 64, 24)):
            daemon_ = self.run_daemon("block", "--shards", str(shards), "--memory-mib", str(mib), "--queue-depth", str(depth), "--metrics", "off",
                                      "--state", os.path.join(self.folder, "state"), "--device", "a", "--listen", "iwarp://127.0.0.1:0",
                                      exactly=True)
            self.assertIn(f"memory for {clients} clients at once, {depth // 8} MiB each (queue_depth times chunk_kib); "
                          f"{of_one} of one host (peer_memory_mib, sessions_per_peer)", daemon_.lines)
            daemon_.stop()
        # What other shards would keep of a client that left does not stand in the way of the first one.
        self.daemon = self.run_daemon("block", "--shards", "8", "--memory-mib", "65", "--metrics", "off", "--state",
                                      os.path.join(self.folder, "state"), "--device", "a", "--listen", "iwarp://127.0.0.1:0", exactly=True)
        told = "\n".join(self.daemon.lines)
        self.ports = [int(line.rsplit(":", 1)[1]) for line in self.daemon.lines if line.startswith("listening at ")]
        self.assertIn("memory for 0 clients at once", told)
        self.assertIn("have fewer shards or a larger memory_mib", told)
        self.assertIn(b"67108864", self.block("info", self.url("a")))
        self.daemon.stop()

    def test_configurations_that_cannot_work(self):
        self.assertIn("nothing is served: name a device with --device", self.refused())
        self.assertIn("size 1000 is no whole number of blocks of 512 bytes, and one at least: write 1024", self.refused("--device", "a=1000"))
        self.assertIn("and one at least: write 4096", self.refused("--device", "a=0,block_size=4096"))
        self.assertIn("make it smaller, or serve a file", self.refused("--device", "a=1000000T", status=1))
        self.assertIn("for the path of a file write ./disk.img", self.refused("--device", "a=disk.img,size=1M"))
        self.assertIn("size stands behind the name already", self.refused("--device", "a=1M,size=1M"))
        self.assertIn("those stand behind a comma: write a,backend=nullblk", self.refused("--device", "a=backend=nullblk"))
        self.assertIn("write bytes, or as 64M", self.refused("--device", "a=many"))
        self.assertIn("a device before it has this name", self.refused("--device", "a", "--device", "a"))
        self.assertIn("needs a name", self.refused("--device", "=64M"))
        self.assertIn("option is empty", self.refused("--device", "a=64M,"))
        self.assertIn("option ro stands twice", self.refused("--device", "a=64M,ro,ro"))
        self.assertIn("option ro stands beside rw", self.refused("--device", "a=64M,rw,ro"))
        self.assertIn("option rw takes no value", self.refused("--device", "a=64M,rw=no"))
        self.assertIn("write an address", self.refused("--device", "a=64M,clients=everybody"))
        self.assertIn("no block back end ramdisk; known: fileblk nullblk ramblk", self.refused("--device", "a=64M,backend=ramdisk"))
        self.assertIn("chunk_kib 100 is no power of two: write 64 or 128", self.refused("--device", "a", "--chunk-kib", "100"))
        self.assertIn("is at most 256 MiB", self.refused("--device", "a", "--chunk-kib", "16384"))
        self.assertIn("a client takes 256 MiB of memory", self.refused("--device", "a", "--queue-depth", "2048", "--memory-mib", "128"))
        # Not even the first client would get in beside what lies around its memory, however many shards there are.
        self.assertIn("a client takes 64 MiB of memory", self.refused("--device", "a", "--memory-mib", "64", "--shards", "1"))
        self.assertIn("bw many is no number of bytes", self.refused("--device", "a=64M,bw=many"))
        self.assertIn("bw 10 is no number of bytes", self.refused("--device", "a=64M,bw=10"))
        self.assertIn("iops", self.refused("--device", "a=64M,iops=0"))
        for filters, told in (('name = "limits"', "no filter limits"), ('name = "limit"', "limits nothing: write client_operations, client_bytes, device_"),
                              ('name = "limit"\nexport_bytes = 9999', "export_bytes"), ('name = "error"\noperations = ["getattr"]', "no such name"),
                              ('name = "error"\ncode = "delayed"', "no \"try later\""), ('name = "error"\ncode = "none"', "lets everything succeed"),
                              ('name = "delay"\nflush_milliseconds = 2\nflush_milliseconds_most = 1', "flush_milliseconds_most is less")):
            config = os.path.join(self.folder, "filters.toml")
            with open(config, "w", encoding="utf-8") as file:
                file.write(f'[block]\n[[block.device]]\nname = "disk"\n[[block.device.filter]]\n{filters}\n')
            done = self.run_binary("serve", config, "--check")
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(told, done.stderr)

    def test_filters(self):
        config = os.path.join(self.folder, "filters.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nshards = 1\nstate = "{self.folder}/state"\n[metrics]\nlisten = "127.0.0.1:0"\n'
                       '[block]\nlisten = ["iwarp://127.0.0.1:0"]\n'
                       '[[block.device]]\nname = "limited"\nsize = "4M"\niops = 1000000\nbw = "1M"\n'
                       '[[block.device.filter]]\nname = "delay"\nread_milliseconds = 1\n'
                       '[[block.device]]\nname = "bad"\nsize = "4M"\n'
                       '[[block.device.filter]]\nname = "error"\noperations = ["write"]\nevery = 1\n')
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = [self.daemon.port("iwarp")]
        self.assertTrue(any("(rw,filter=limit,filter=delay)" in line for line in self.daemon.lines), self.daemon.lines)
        self.block("write", self.url("limited"), data=bytes(2 * MIB)) # the burst, and one more second
        self.assertGreater(self.daemon.metric('verbena_block_limit_operations_total{device="limited",outcome="waited"}'), 0)
        self.assertGreater(self.daemon.metric('verbena_block_limit_wait_seconds_total{device="limited"}'), 0)
        self.assertEqual(self.daemon.metric('verbena_block_limit_waiting{device="limited"}'), 0)
        self.block("read", "--length", "4K", self.url("limited"))
        self.assertGreater(self.daemon.metric('verbena_block_delay_operations_total{device="limited",outcome="delayed"}'), 0)
        self.block("write", self.url("bad"), data=bytes(4096), status=1)
        self.assertGreater(self.daemon.metric('verbena_block_error_operations_total{device="bad",outcome="failed"}'), 0)
        self.assertIn("look at the disk", self.daemon.log_with("rnbd: operation failed device=bad operation=write session="))
        self.assertEqual(self.block("read", "--length", "4K", self.url("bad")), bytes(4096))
        self.assertGreater(self.daemon.metric('verbena_rnbd_device_operations_total{device="bad",operation="write"}'), 0)
        self.assertGreater(self.daemon.metric('verbena_rnbd_device_failed_operations_total{device="bad",reason="io"}'), 0)
        self.assertEqual(self.daemon.metric('verbena_rnbd_device_bytes_total{device="limited",direction="write"}'), 2 * MIB)
        self.assertEqual(self.daemon.metric('verbena_rnbd_device_operations_in_flight{device="limited"}'), 0)
        count = 'verbena_rnbd_device_operation_seconds_count{device="limited",operation="write"}'
        self.assertEqual(self.daemon.metric(count), self.daemon.metric('verbena_rnbd_device_operations_total{device="limited",operation="write"}'))

    def test_a_write_that_fails_says_what_may_be_there(self):
        config = os.path.join(self.folder, "failing.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nshards = 1\nstate = "{self.folder}/state"\n[metrics]\nlisten = "off"\n'
                       '[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "disk"\nsize = "16M"\n'
                       '[[block.device.filter]]\nname = "error"\noperations = ["write"]\nevery = 50\n')
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = [self.daemon.port("iwarp")]
        data = os.urandom(8 * MIB)
        # 34 requests each 4 MiB: the first 49 succeed.
        told = self.block("write", self.url("disk"), data=data, status=1)
        self.assertIn("the first 4194304 bytes of the input were written and flushed; the next 4194304 bytes may be written in part", told)
        written = self.block("read", self.url("disk"))
        self.assertEqual(written[:4 * MIB], data[:4 * MIB])
        self.assertNotIn(written[4 * MIB:8 * MIB], (bytes(4 * MIB), data[4 * MIB:]))
        # The 100th is among those of the first part now.
        told = self.block("write", self.url("disk"), data=data, status=1)
        self.assertIn(": the first 4194304 bytes may be written in part", told)
        self.assertNotIn("nothing was written", told)

    def test_in_one_process_beside_nfs(self):
        config = os.path.join(self.folder, "both.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nshards = 2\nstate = "{self.folder}/state"\n[metrics]\nlisten = "127.0.0.1:0"\n'
                       '[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "disk"\nsize = "4M"\n'
                       '[nfs]\nlisten = ["tcp://127.0.0.1:0"]\nrpcbind = "no"\n[[nfs.export]]\nbackend = "memfs"\n')
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = [self.daemon.port("iwarp")]
        self.block("write", self.url("disk"), data=b"here")
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        port = self.daemon.port("tcp")
        listed = subprocess.run([client, "ls", f"nfs+tcp://127.0.0.1:{port}/export?mountport={port}"], capture_output=True, timeout=60 * daemon.SLOW,
                                check=False)
        self.assertEqual(listed.returncode, 0, listed.stderr)

    def test_a_client_outlives_a_server_that_is_killed(self):
        self.serve("disk=8M")
        port = self.ports[0]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        bench = subprocess.Popen([client, "block", "bench", "--seconds", "5", "--json", self.url("disk")], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        try:
            while (self.daemon.metric('verbena_rnbd_operations_total{operation="read"}') or 0) < 100:
                self.assertIsNone(bench.poll())
            self.daemon.stop(signal.SIGKILL)
            self.serve("disk=8M", listen=(f"iwarp://127.0.0.1:{port}",))
            told, said = bench.communicate(timeout=60 * daemon.SLOW)
            self.assertEqual(bench.returncode, 0, said)
            self.assertIn(b"path lost", said)
            served = self.daemon.metric('verbena_rnbd_operations_total{operation="read"}')
            self.assertGreater(served, 0)
            self.assertGreater(json.loads(told)["operations"], 100)
        finally:
            bench.kill()
            bench.communicate()

    def write_while_the_server_is_killed(self, device):
        """Half of the data are answered by a server that is killed then, and the other half come to the next one. The client's status and words."""
        self.serve(device)
        port = self.ports[0]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        data = os.urandom(16 * MIB)
        writer = subprocess.Popen([client, "-q", "block", "write", self.url("disk")], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            writer.stdin.write(data[:8 * MIB])
            writer.stdin.flush()
            while (self.daemon.metric('verbena_rnbd_bytes_total{direction="write"}') or 0) < 8 * MIB:
                self.assertIsNone(writer.poll())
            self.daemon.stop(signal.SIGKILL)
            self.serve(device, listen=(f"iwarp://127.0.0.1:{port}",))
            said = writer.communicate(data[8 * MIB:], timeout=60 * daemon.SLOW)[1].decode()
        finally:
            writer.kill()
            writer.communicate()
        return writer.returncode, said, data

    def test_a_write_fails_that_the_server_lost(self):
        status, said, _ = self.write_while_the_server_is_killed("disk=64M")
        self.assertEqual(status, 1, said)
        self.assertIn("may have lost changes that it had answered", said)
        self.assertIn("run this command again", said)

    def test_a_file_has_what_a_server_that_was_killed_answered(self):
        status, said, data = self.write_while_the_server_is_killed(f"disk={self.folder}/disk.img,size=64M")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.block("read", "--length", "16M", self.url("disk")), data)

    def test_requests_under_way_are_answered_before_the_end(self):
        config = os.path.join(self.folder, "slow.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nshards = 2\ndrain_seconds = 60\nstate = "{self.folder}/state"\n[metrics]\nlisten = "127.0.0.1:0"\n'
                       '[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "disk"\nsize = "4M"\n'
                       '[[block.device.filter]]\nname = "delay"\nread_milliseconds = 2000\n')
        self.daemon = self.run_daemon("serve", config, exactly=True)
        self.ports = [self.daemon.port("iwarp")]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        reader = subprocess.Popen([client, "-q", "block", "read", "--length", "4K", self.url("disk")], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        try:
            while self.daemon.metric('verbena_rnbd_device_operations_in_flight{device="disk"}') != 1:
                self.assertIsNone(reader.poll())
            self.assertEqual(self.daemon.stop(), 0, self.daemon.log())
            got, said = reader.communicate(timeout=60 * daemon.SLOW)
        finally:
            reader.kill()
            reader.communicate()
        self.assertEqual(reader.returncode, 0, said)
        self.assertEqual(got, bytes(4096))


if __name__ == "__main__":
    daemon.main()
