#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/nfs_files, which uses files of verbenad by the library's NFS client."""
import os
import subprocess

import daemon

NAME = "written by a library"


class NfsFiles(daemon.DaemonTest):
    def run_example(self, url, folder):
        program = os.path.join(os.path.dirname(daemon.BINARY), "../examples/nfs_files")
        return subprocess.run([program, url, folder], capture_output=True, text=True, timeout=120 * daemon.SLOW, check=False)

    def test_it_writes_reads_lists_and_removes(self):
        d = self.start()
        folder = os.path.join(self.data, "folder")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        for scheme in ("tcp", "iwarp"):
            done = self.run_example(f"{scheme}://127.0.0.1:{d.port(scheme)}", "export/folder")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, f"NFS version 4.2\nno mount\n{NAME} 9\n")
            self.assertEqual(os.listdir(folder), [])

    def test_what_is_there_is_left_alone(self):
        d = self.start()
        path = os.path.join(self.data, NAME)
        with open(path, "w", encoding="utf-8") as file:
            file.write("another one's")
        done = self.run_example(f"tcp://127.0.0.1:{d.port('tcp')}", "export")
        self.assertEqual(done.returncode, 1)
        self.assertIn("NFS4ERR_EXIST", done.stderr)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "another one's")

    def test_what_it_is_told_must_make_sense(self):
        done = self.run_example("udp://127.0.0.1:1", "export")
        self.assertEqual(done.returncode, 1)
        self.assertIn("write tcp://HOST:PORT", done.stderr)
        self.assertEqual(self.run_example("tcp://nowhere", "export").returncode, 1)


if __name__ == "__main__":
    daemon.main()
