#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that lack something or refuse it: a seccomp filter answers for them, VERBENA_MASK takes features of
io_uring away. What can be done without is; without io_uring there is one error, with its cure."""
import errno
import os
import random
import subprocess

import daemon
from seccomp import CACHESTAT, IO_URING_SETUP, refuse


class OlderKernels(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")

    def copies_both_ways(self, d, **more):
        content = random.Random(9).randbytes(5_000_003)
        source = os.path.join(self.folder, "source")
        with open(source, "wb") as file:
            file.write(content)
        for transport in ("tcp", "iwarp"):
            url = f"nfs+{transport}://127.0.0.1:{d.port(transport)}/export/{transport}"
            back = os.path.join(self.folder, transport)
            self.run_tool(self.client, "-q", "cp", source, url, **more)
            self.run_tool(self.client, "-q", "cp", url, back, **more)
            for path in (os.path.join(self.data, transport), back):
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), content)

    def test_without_features_of_the_ring(self):
        for mask in ("defer_taskrun", "single_issuer", "single_issuer,defer_taskrun"):
            for policy in ("busy", "adaptive", "event"):
                d = self.start("--shards", "2", "--policy", policy, environment={"VERBENA_MASK": mask})
                d.log_with(f'mask="?{mask}"?\\s')
                self.copies_both_ways(d)
                self.assertEqual(d.stop(), 0)

    def test_an_unknown_feature_is_refused(self):
        done = subprocess.run([daemon.BINARY, "nfs", "--export", self.data, "--state", self.folder + "/state",
                               "--listen", "tcp://127.0.0.1:0", "--metrics", "off"], capture_output=True, text=True,
                              timeout=daemon.START_LIMIT, env={**os.environ, "VERBENA_MASK": "defer_taskrum"}, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no feature defer_taskrum; did you mean defer_taskrun?", done.stderr)

    def test_without_cachestat(self):
        for answer in (errno.ENOSYS, errno.EPERM):
            d = self.start("--shards", "2", before_start=refuse({CACHESTAT: answer}))
            self.copies_both_ways(d)
            self.assertEqual(d.stop(), 0)

    def test_without_io_uring(self):
        for answer, cure in ((errno.EPERM, "io_uring is refused: allow it with sysctl kernel.io_uring_disabled=0 and in "
                                           "the service's seccomp filter"),
                             (errno.ENOSYS, "this kernel has no io_uring: Linux 6.1 or later is needed")):
            refused = refuse({IO_URING_SETUP: answer})
            for command in ([daemon.BINARY, "nfs", "--export", self.data, "--state", self.folder + "/state",
                             "--listen", "tcp://127.0.0.1:0", "--metrics", "off", "--rpcbind", "no", "--shards", "2"],
                            [self.client, "ls", "nfs+tcp://127.0.0.1:1/export"]):
                done = subprocess.run(command, capture_output=True, text=True, timeout=daemon.START_LIMIT,
                                      preexec_fn=refused, check=False) # pylint: disable=subprocess-popen-preexec-fn
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("io_uring is") + done.stderr.count("no io_uring"), 1, done.stderr)
                self.assertIn(cure, done.stderr)


if __name__ == "__main__":
    daemon.main()
