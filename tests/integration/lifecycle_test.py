#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start, ready, drain, stop."""
import os
import signal
import socket
import stat
import time

import daemon


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

    def test_a_taken_port_is_named_with_a_cure(self):
        d = self.start()
        port = d.port("tcp")
        done = self.run_binary("nfs", "--export", self.data, "--state", self.folder + "/state2", "--metrics", "off",
                               "--listen", f"tcp://127.0.0.1:{port}", "--rpcbind", "no")
        self.assertEqual(done.returncode, 2)
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
            d = self.start(environment={"NOTIFY_SOCKET": path})
            self.assertEqual(manager.recv(100), b"READY=1")
            d.stop()
            self.assertEqual(manager.recv(100), b"STOPPING=1")

    def test_strangers_are_not_served_by_accident(self):
        done = self.run_binary("nfs", "--export", self.data + ",clients=*", "--state", self.folder + "/state",
                               "--metrics", "off", "--listen", "tcp://8.8.8.8:2049", "--rpcbind", "no")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--allow-public", done.stderr)


if __name__ == "__main__":
    daemon.main()
