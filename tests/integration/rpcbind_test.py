#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registration with a real rpcbind, in a network and mount namespace of its own."""
import os
import shlex
import shutil
import subprocess

import daemon

SCRIPT = r"""
mount -t tmpfs none /run && ip link set lo up || exit 1
rpcbind -f &
rpcbind=$!
until rpcinfo >/dev/null 2>&1; do sleep 0.05; kill -0 $rpcbind || exit 1; done
serve() {
    coproc %(binary)s nfs --export %(data)s --state %(state)s --metrics off "$@" 2>>%(log)s
    while read -r line <&"${COPROC[0]}" && [[ $line != ready ]]; do printf '%%s\n' "$line"; done
    server=$COPROC_PID
}
echo '# first'
serve --listen tcp://127.0.0.1:3049 --listen 'tcp://[::1]:3049' --listen iwarp://127.0.0.1:20049 \
    --listen 'iwarp://[::1]:20049'
first=$server
exec 3<&"${COPROC[0]}"
rpcinfo
echo '# second'
serve --listen tcp://127.0.0.1:3050
kill $server; wait $server
echo '# both'
rpcinfo
kill $first; wait $first
echo '# none'
rpcinfo
kill $rpcbind
"""


class Rpcbind(daemon.DaemonTest):
    def test_registered_while_it_runs_and_not_over_another_server(self):
        for program in ("rpcbind", "rpcinfo", "unshare"):
            self.assertIsNotNone(shutil.which(program), f"needs {program}")
        if subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False).returncode != 0:
            self.fail("namespaces of its own need CAP_SYS_ADMIN: run as root")
        log = os.path.join(self.folder, "stderr")
        script = SCRIPT % {"log": shlex.quote(log), "binary": shlex.quote(daemon.BINARY), "data": shlex.quote(self.data),
                           "state": shlex.quote(os.path.join(self.folder, "state"))}
        done = subprocess.run(["unshare", "-m", "-n", "bash", "-c", script], capture_output=True, timeout=120, check=False)
        with open(log, encoding="utf-8", errors="replace") as file:
            self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:] + file.read()[-2000:])
        output = done.stdout.decode()
        first, second, both, none = output.split("# first\n")[1].replace("# second\n", "\0").replace(
            "# both\n", "\0").replace("# none\n", "\0").split("\0")

        def registered(text):
            rows = [line.split() for line in text.splitlines()]
            return {(row[0], row[2], row[3]) for row in rows if row and row[0] in ("100003", "100005")}

        ours = {("100003", "tcp", "127.0.0.1.11.233"), ("100005", "tcp", "127.0.0.1.11.233"),
                ("100003", "tcp6", "::1.11.233"), ("100005", "tcp6", "::1.11.233"),
                ("100003", "rdma", "127.0.0.1.78.81"), ("100003", "rdma6", "::1.78.81")}
        self.assertIn("registered with rpcbind: tcp tcp6 rdma rdma6", first)
        self.assertEqual(registered(first), ours)
        self.assertIn("another NFS server is registered", second)
        self.assertEqual(registered(both), ours)
        self.assertEqual(registered(none), set())


if __name__ == "__main__":
    daemon.main()
