#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start, ready, drain, stop."""
import ctypes
import os
import re
import signal
import socket
import stat
import subprocess
import time

import daemon


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


class HeldThread:
    """Stops one thread of a process, and no other, until let_go()."""

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.pid = pid
        tasks = f"/proc/{pid}/task"
        for thread in os.listdir(tasks):
            with open(f"{tasks}/{thread}/comm", encoding="utf-8") as file:
                if file.read().strip() == name:
                    self.thread = int(thread)
        self.ptrace(PTRACE_SEIZE)
        self.ptrace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, 0x40000000) # __WALL

    def ptrace(self, request):
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if self.libc.ptrace(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def waits_of_main(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"(?m)^voluntary_ctxt_switches:\s*(\d+)", file.read())[1])

    def let_go(self):
        self.ptrace(PTRACE_DETACH)


class Lifecycle(daemon.DaemonTest):
    def test_start_says_what_is_served_to_whom(self):
        d = self.start("--shards", "3", export=":/data,ro")
        text = "\n".join(d.lines)
        self.assertIn(f"export /data from {self.data} (ro,root_squash,sync) to this host only", text)
        self.assertIn(f"mount -t nfs -o vers=4.2,proto=tcp,port={d.port('tcp')} 127.0.0.1:/data /mnt", text)
        self.assertIn(f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}; for other hosts", text)
        self.assertIn("3 shards", text)

    def test_terminate_and_interrupt_end_well(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            d = self.start("--shards", "3")
            silent = socket.create_connection(("127.0.0.1", d.port("tcp")))
            while d.metric('verbena_connections{transport="tcp"}') != 1: # nobody resets what was not yet accepted
                time.sleep(0.01)
            self.assertEqual(d.stop(number), 0, d.log())
            self.assertEqual(silent.recv(1), b"")
            silent.close()

    def test_a_stop_ends_well_where_the_system_gives_no_more_threads(self):
        # No limit of threads holds root, and a limit is set by who runs as the same user.
        user = 54321 if os.geteuid() == 0 else os.geteuid()
        def as_user():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
        os.chmod(self.folder, 0o777)
        # The sanitizer that looks for leaks at the end would want a thread of its own.
        leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        d = self.start("--shards", "2", before_start=as_user, environment=leaks)
        self.run_tool("prlimit", f"--pid={d.process.pid}", "--nproc=1:1", preexec_fn=as_user)
        self.assertEqual(d.stop(), 0, d.log())
        self.assertIn("info service: stopped", d.log())

    def test_a_taken_port_is_named_with_a_cure(self):
        d = self.start()
        port = d.port("tcp")
        done = self.run_binary("nfs", "--export", self.data, "--state", self.folder + "/state2", "--metrics", "off",
                               "--listen", f"tcp://127.0.0.1:{port}", "--rpcbind", "no")
        self.assertEqual(done.returncode, 1, "somebody else may let it go")
        self.assertIn(f"tcp://127.0.0.1:{port}", done.stderr)
        self.assertIn("choose another port", done.stderr)

    def test_the_key_is_secret_and_kept(self):
        key = os.path.join(self.folder, "state", "handle.key")
        self.start().stop()
        self.assertEqual(stat.S_IMODE(os.stat(key).st_mode), 0o600)
        with open(key, "rb") as file:
            before = file.read()
        self.start().stop()
        with open(key, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_the_service_manager_is_told(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(30 * daemon.SLOW)
            d = self.start("--export", self.data + ":/other", environment={"NOTIFY_SOCKET": path})
            self.assertEqual(manager.recv(1000).decode(),
                             f"READY=1\nSTATUS=serving 2 exports at tcp://127.0.0.1:{d.port('tcp')} "
                             f"iwarp://127.0.0.1:{d.port('iwarp')}")
            d.stop()
            self.assertEqual(manager.recv(1000), b"STOPPING=1\nSTATUS=stopping within 10 s; "
                             b"0 calls by TCP and requests for blocks in flight")

    def test_the_watchdog_is_answered_while_each_shard_turns(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(30 * daemon.SLOW)

            def until(*wanted):
                while (said := manager.recv(1000)) not in wanted:
                    pass
                return said

            d = self.start("--shards", "2", environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "100000"})
            for _ in range(3):
                until(b"WATCHDOG=1")
            shard = HeldThread(d.process.pid, "shard 1")
            try:
                until(b"STATUS=a shard does not run its tasks; the log says which")
                d.log_with("a shard does not run its tasks.*shard=.?1")
                # Nothing comes behind, however often the main thread looks.
                before = shard.waits_of_main()
                while shard.waits_of_main() < before + 10:
                    time.sleep(0.01)
                manager.setblocking(False)
                self.assertRaises(BlockingIOError, manager.recv, 1000)
            finally:
                shard.let_go()
            manager.settimeout(30 * daemon.SLOW)
            self.assertEqual(until(b"WATCHDOG=1"), b"WATCHDOG=1")
            self.assertEqual(d.log().count("a shard does not run its tasks"), 1)
            self.assertEqual(d.stop(), 0)

    def test_it_says_whether_another_start_may_do_better(self):
        def status(*words, before=()):
            done = subprocess.run([*before, daemon.BINARY, "nfs", "--metrics", "off", "--rpcbind", "no", *words], capture_output=True,
                                  text=True, timeout=4 * daemon.START_LIMIT, check=False)
            return done.returncode, done.stderr
        state = ("--state", self.folder + "/state2", "--listen", "tcp://127.0.0.1:0")
        missing = os.path.join(self.folder, "missing")
        file = os.path.join(self.folder, "stderr")
        open(file, "wb").close()
        for expected, words in ((1, ("--export", missing, *state)),
                                (2, ("--export", file, *state)),
                                (2, ("--export", self.data + ",nonsense", *state)),
                                (1, ("--export", self.data, "--state", self.folder + "/state2", "--listen", "tcp://192.0.2.1:0"))):
            found, said = status(*words)
            self.assertEqual(found, expected, (words, said))
        full = os.path.join(self.folder, "full")
        os.mkdir(full)
        mounted = ("unshare", "-m", "sh", "-c", f"mount -t tmpfs -o nr_inodes=1 none {full} && exec \"$0\" \"$@\"")
        found, said = status("--export", self.data, "--state", full + "/state", "--listen", "tcp://127.0.0.1:0", before=mounted)
        self.assertEqual((found, "No space left" in said), (1, True), said)

    def test_state_lies_where_systemd_says(self):
        given = os.path.join(self.folder, "given")
        d = self.run_daemon("nfs", "--export", self.data, "--listen", "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no",
                            environment={"STATE_DIRECTORY": given + ":/elsewhere"})
        self.assertTrue(os.path.exists(os.path.join(given, "handle.key")), d.log())

    def test_strangers_are_not_served_by_accident(self):
        done = self.run_binary("nfs", "--export", self.data + ",clients=*", "--state", self.folder + "/state",
                               "--metrics", "off", "--listen", "tcp://8.8.8.8:2049", "--rpcbind", "no")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--allow-public", done.stderr)


if __name__ == "__main__":
    daemon.main()
