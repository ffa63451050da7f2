#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The filter of examples/refuse, loaded by verbenad: what it refuses, counts, and says of its settings."""
import os
import subprocess

import daemon

CONFIG = """
modules = ["{module}"]
[daemon]
state = "{folder}/state"
shards = 2
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
[[nfs.export]]
backend = "memfs"
pseudo = "/m"
[[nfs.export.filter]]
name = "refuse"
{setting}
"""


class Refuse(daemon.DaemonTest):
    def configuration(self, setting):
        path = os.path.join(self.folder, "config.toml")
        module = os.path.join(os.path.dirname(daemon.BINARY), "../examples/refuse/refuse.so")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(module=os.path.abspath(module), folder=self.folder, setting=setting))
        return path

    def test_names_by_a_pattern(self):
        server = self.run_daemon("serve", self.configuration('pattern = "*.exe"'), exactly=True)
        self.assertTrue(any("pattern=*.exe,filter=refuse" in line for line in server.lines), server.lines)
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        source = os.path.join(self.folder, "source")
        with open(source, "w", encoding="utf-8") as file:
            file.write("bytes")
        refused = 'refuse_names_total{export="/m"}'
        for name, status, count in (("a.txt", 0, 0), ("a.exe", 1, 1)):
            url = f"nfs+tcp://127.0.0.1:{server.port('tcp')}/m/{name}"
            done = subprocess.run([client, "-q", "cp", source, url], capture_output=True, text=True,
                                  timeout=60 * daemon.SLOW, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(server.metric(refused), count)

    def test_what_its_table_may_hold(self):
        needs = 'filter refuse needs a pattern, as in pattern = "*.exe"'
        unknown = "config.toml:16:1: unknown key nfs.export.filter.patern; did you mean pattern?"
        for setting, saying in (("", needs), ('patern = "*.exe"', unknown)):
            done = self.run_binary("serve", self.configuration(setting), "--check")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(saying, done.stderr)


if __name__ == "__main__":
    daemon.main()
