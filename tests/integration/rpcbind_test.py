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
# What RDMA devices the host has must not matter.
mount -t tmpfs none /sys && mkdir -p /sys/class/infiniband || exit 1
rpcbind -f &
rpcbind=$!
until rpcinfo >/dev/null 2>&1; do sleep 0.05; kill -0 $rpcbind || exit 1; done
scrape() { # PORT, until nobody answers there
    local s
    while exec {s}<>"/dev/tcp/127.0.0.1/$1"; do
        printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&"$s"
        cat <&"$s" >/dev/null
        exec {s}>&-
        sleep 0.02
    done 2>/dev/null
}
serve() {
    local line metrics=
    coproc %(binary)s %(nfs)s "$@" 2>>%(log)s
    while read -r line <&"${COPROC[0]}" && [[ $line != ready ]]; do
        printf '%%s\n' "$line"
        [[ $line != "metrics at "* ]] || metrics=$line
    done
    server=$COPROC_PID
    if [[ -n $metrics ]]; then
        metrics=${metrics#*127.0.0.1:}
        scrape "${metrics%%/*}" &
    fi
}
end() {
    kill "$1" "$2"
    wait "$2"
    # The kernel closes what a ring held some time after its process is gone.
    while [[ $1 == -KILL ]] && (exec 3<>/dev/tcp/127.0.0.1/3049) 2>/dev/null; do sleep 0.02; done
}
all=(--listen tcp://127.0.0.1:3049 --listen 'tcp://[::1]:3049' --listen iwarp://127.0.0.1:20049
    --listen 'iwarp://[::1]:20049')
%(steps)s
kill $rpcbind
"""

ALL = {("100003", "tcp", "127.0.0.1.11.233"), ("100005", "tcp", "127.0.0.1.11.233"),
       ("100003", "tcp6", "::1.11.233"), ("100005", "tcp6", "::1.11.233"),
       ("100003", "rdma", "127.0.0.1.78.81"), ("100003", "rdma6", "::1.78.81")}


class Rpcbind(daemon.DaemonTest):
    def run_steps(self, steps):
        """What was printed, by the names that the steps print behind a #."""
        for program in ("rpcbind", "rpcinfo", "unshare"):
            self.assertIsNotNone(shutil.which(program), f"needs {program}")
        if subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False).returncode != 0:
            self.fail("namespaces of its own need CAP_SYS_ADMIN: run as root")
        log = os.path.join(self.folder, "stderr")
        nfs = daemon.as_the_suite_asks(("nfs", "--export", self.data, "--state", os.path.join(self.folder, "state"),
                                        "--metrics", "off"))
        names = {"log": shlex.quote(log), "binary": shlex.quote(daemon.BINARY), "nfs": shlex.join(nfs)}
        script = SCRIPT % {**names, "steps": steps % names}
        done = subprocess.run(["unshare", "-m", "-n", "bash", "-c", script], capture_output=True, timeout=120 * daemon.SLOW, check=False)
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:] + text[-2000:])
        self.assertNotRegex(text, daemon.SANITIZER)
        said = {}
        for part in done.stdout.decode().split("# ")[1:]:
            name, _, text = part.partition("\n")
            said[name] = text
        return said

    @staticmethod
    def registered(text):
        rows = [line.split() for line in text.splitlines()]
        return {(row[0], row[2], row[3]) for row in rows if row and row[0] in ("100003", "100005")}

    def test_registered_while_it_runs_and_not_over_another_server(self):
        said = self.run_steps(r"""
echo '# first'
serve "${all[@]}"
first=$server
exec 3<&"${COPROC[0]}"
rpcinfo
echo '# second'
serve --versions 3 --listen tcp://127.0.0.1:3050 # a state folder is one server's of version 4
end -TERM $server
echo '# both'
rpcinfo
end -TERM $first
echo '# none'
rpcinfo
""")
        self.assertIn("registered with rpcbind: tcp tcp6 rdma rdma6", said["first"])
        self.assertEqual(self.registered(said["first"]), ALL)
        self.assertRegex(said["second"], r"not registered with rpcbind, since an NFS server is registered there at "
                                         r"(127\.0\.0\.1:\d+|\[::1\]:\d+) \((tcp|rdma)6?\); if that one is gone, "
                                         r"rpcinfo -d 100003 3; rpcinfo -d 100005 3 and start this server anew\n")
        self.assertEqual(self.registered(said["both"]), ALL)
        self.assertEqual(self.registered(said["none"]), set())

    def test_what_a_killed_one_left_behind_is_taken_over(self):
        said = self.run_steps(r"""
serve "${all[@]}" >/dev/null
end -KILL $server
echo '# left'
rpcinfo
echo '# same'
serve "${all[@]}"
rpcinfo
end -TERM $server
echo '# none'
rpcinfo
serve --listen tcp://127.0.0.1:3049 >/dev/null
end -KILL $server
echo '# every'
serve --listen 'tcp://*:3049'
rpcinfo
end -KILL $server
echo '# moved'
serve --listen tcp://127.0.0.1:3050
rpcinfo
end -TERM $server
echo '# end'
rpcinfo
""")
        self.assertEqual(self.registered(said["left"]), ALL)
        self.assertIn("registered with rpcbind: tcp tcp6 rdma rdma6", said["same"])
        self.assertEqual(self.registered(said["same"]), ALL)
        self.assertEqual(self.registered(said["none"]), set())
        self.assertIn(("100003", "tcp", "0.0.0.0.11.233"), self.registered(said["every"]))
        self.assertNotIn(("100003", "tcp", "127.0.0.1.11.233"), self.registered(said["every"]))
        self.assertEqual(self.registered(said["moved"]),
                         {("100003", "tcp", "127.0.0.1.11.234"), ("100005", "tcp", "127.0.0.1.11.234")})
        self.assertEqual(self.registered(said["end"]), set())

    def test_another_network_takes_nothing_over(self):
        said = self.run_steps(r"""
serve "${all[@]}" >/dev/null
first=$server
exec 3<&"${COPROC[0]}"
echo '# second'
# The same rpcbind, and another 127.0.0.1, where TCP refuses and iWARP is its own.
unshare -n bash -c 'ip link set lo up && exec "$@"' - %(binary)s %(nfs)s --versions 3 --listen tcp://127.0.0.1:3050 \
    --listen iwarp://127.0.0.1:20049 --listen 'iwarp://[::1]:20049' >%(log)s.second 2>>%(log)s &
second=$!
until grep -q '^ready' %(log)s.second; do sleep 0.05; kill -0 $second || exit 1; done
cat %(log)s.second
end -TERM $second
echo '# both'
rpcinfo
end -TERM $first
""")
        self.assertIn("not registered with rpcbind, since an NFS server is registered there at ", said["second"])
        self.assertEqual(self.registered(said["both"]), ALL)

    def test_an_rdma_device_may_be_what_an_entry_means(self):
        said = self.run_steps(r"""
serve "${all[@]}" >/dev/null
end -KILL $server
mkdir /sys/class/infiniband/rxe0
echo '# kept'
serve "${all[@]}"
rpcinfo
end -TERM $server
rmdir /sys/class/infiniband/rxe0
echo '# taken'
serve "${all[@]}"
end -TERM $server
""")
        self.assertRegex(said["kept"], r"since an NFS server is registered there at (127\.0\.0\.1|\[::1\]):20049 \(rdma6?\); "
                                       r"if that one is gone, rpcinfo -d 100003 3; rpcinfo -d 100005 3 and start")
        self.assertEqual(self.registered(said["kept"]), ALL)
        self.assertIn("registered with rpcbind: tcp tcp6 rdma rdma6", said["taken"])

    def test_what_cannot_be_known_to_be_gone_stays_with_its_cure(self):
        said = self.run_steps(r"""
serve --listen tcp://127.0.0.1:3049 --listen iwarp://127.0.0.1:20049 >/dev/null
end -KILL $server
echo '# unknown'
serve --listen tcp://127.0.0.1:3050
rpcinfo
end -TERM $server
for program in 100003 100005; do rpcinfo -d $program 3; done
echo '# cured'
serve --listen tcp://127.0.0.1:3050
rpcinfo
end -TERM $server
""")
        # Whether an RDMA device listens there can't be tried from here.
        self.assertIn("since an NFS server is registered there at 127.0.0.1:20049 (rdma); if that one is gone, "
                      "rpcinfo -d 100003 3; rpcinfo -d 100005 3 and start this server anew", said["unknown"])
        self.assertIn(("100003", "tcp", "127.0.0.1.11.233"), self.registered(said["unknown"]))
        self.assertEqual(self.registered(said["cured"]),
                         {("100003", "tcp", "127.0.0.1.11.234"), ("100005", "tcp", "127.0.0.1.11.234")})


if __name__ == "__main__":
    daemon.main()
