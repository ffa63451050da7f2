# SPDX-License-Identifier: Apache-2.0
# The connection manager chooses a client's port without asking TCP, which may hold it for another connection. Then siw can't
# connect by it, and our client takes the next.
#   held-ports siw
. "$LAB_LIB"
serve rdma "$1"
# So few that about one in four is held.
read -r first last </proc/sys/net/ipv4/ip_local_port_range
trap 'echo "$first $last" >/proc/sys/net/ipv4/ip_local_port_range' EXIT
echo 40000 40063 >/proc/sys/net/ipv4/ip_local_port_range
python3 - "$server" "$tcp_port" <<'END' &
import pathlib, socket, sys, time
held = []
for port in range(40000, 40064, 4):
    one = socket.socket()
    try:
        one.bind((sys.argv[1], port))
        one.connect((sys.argv[1], int(sys.argv[2])))
    except OSError: # an earlier scenario's
        continue
    held.append(one)
pathlib.Path("held").write_text(str(len(held)))
time.sleep(600)
END
holder=$!
until_true 60 test -s held || fail 'no port is held'
(($(<held) >= 12)) || fail "only $(<held) ports are held"
for number in {1..24}; do
    "$LAB_BUILD/services/verbena" ping -c 1 "nfs+rdma://$server" >said 2>&1 || fail "connection $number: $(tail -n 2 said | xargs)"
done
kill -0 "$holder" || fail 'the ports were let go'
kill "$holder"
