# SPDX-License-Identifier: Apache-2.0
# A server of NFSv4.1 is killed and comes back under two clients of a stock kernel, one of which holds a lock: it holds it still, also when
# the server is killed again at once, its data are whole, and the other one, which asks all the time, never gets it before it is given back.
# lab: limit=400
. "$LAB_LIB"
# The other client: a network and a host name of its own, or the kernel would be one client on both mounts.
modprobe veth
ip netns add other
ip link add first type veth peer name second netns other
ip address add 192.0.2.9/24 dev first
ip link set first up
ip -n other address add 192.0.2.10/24 dev second
ip -n other link set second up
listens_on='*'
serve tcp lo
daemon=$!
mount_options=proto=tcp,port=$tcp_port,vers=4.1,hard
mount_server mounted
mkdir other
nsenter --net=/run/netns/other unshare --uts sh -c "hostname other && mount -t nfs -o '$mount_options' '192.0.2.9:$exported' other"

cat >holder.py <<'END_OF_PYTHON'
# holder.py FILE LOCKED GO...: locks FILE, writes a part, and another one for each GO when that is there; then it unlocks it.
import fcntl, os, sys, time
path, locked, *steps = sys.argv[1:]
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100)
text = b""
for step in [None, *steps]:
    while step and not os.path.exists(step):
        time.sleep(0.05)
    part = (step or "begun").encode() * 10000
    os.pwrite(file, part, len(text)) == len(part) or sys.exit("a short write")
    text += part
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(file, len(text) + 1, 0) == text or sys.exit("other data")
    open(f"{locked}-{step or 'begun'}", "w").close()
fcntl.lockf(file, fcntl.LOCK_UN, 100)
END_OF_PYTHON
cat >asker.py <<'END_OF_PYTHON'
# asker.py FILE ASKED: asks for the lock until it gets it, counting in ASKED.
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
for count in range(1, 1 << 30):
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100)
        sys.exit(0)
    except BlockingIOError:
        with open(sys.argv[2] + ".new", "w") as out:
            out.write(str(count))
        os.rename(sys.argv[2] + ".new", sys.argv[2])
    time.sleep(0.1)
END_OF_PYTHON

die() {
    kill -KILL "$daemon"
    { wait "$daemon" || true; } 2>/dev/null
}
come_back() {
    verbenad tcp
    daemon=$!
    until_true 30 grep -q ready "$LAB_OUT/verbenad.log" || fail 'verbenad is not ready'
}
metric() { curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n "s/^$1 //p"; }
grace_is_over() { [[ $(metric verbena_nfs4_grace) == 0 ]]; }
# still_held STEP: the holder goes on under its lock, and the other one asked in vain.
still_held() {
    local before
    touch "$1"
    timed "$1: the holder goes on" until_true 120 test -e "held-$1" || fail "$1: the holder stands still"
    # Before both have said that they are done the other one gets no answer at all.
    timed "$1: grace ends as both are done" until_true 60 grace_is_over || fail "$1: the grace period did not end early"
    before=$(<asked)
    asked_more() { (($(<asked) > before + 2)); }
    until_true 60 asked_more || fail "$1: the other one has no answer"
    kill -0 "$asker" || fail "$1: the other one has got the lock"
}

python3 holder.py mounted/file held once twice last &
holder=$!
until_true 60 test -e held-begun || fail 'the lock is not held'
python3 asker.py other/file asked &
asker=$!
until_true 60 test -e asked || fail 'the other client is not refused'

die
come_back
grep -q '2 clients may now' "$LAB_OUT/verbenad.log" || fail "it says: $(grep 'version 4' "$LAB_OUT/verbenad.log")"
still_held once
[[ $(metric 'verbena_nfs4_reclaims_total{outcome="granted"}') -ge 3 ]] || fail 'two opens and a lock were not reclaimed'

# Again, and once more before anybody can have reclaimed all.
die
come_back
die
come_back
still_held twice

touch last
timed 'the lock is given back' wait "$holder"
timed 'and the other one has it' wait "$asker"
cmp mounted/file exported/file
(($(stat -c %s exported/file) == 180000)) || fail "the file has $(stat -c %s exported/file) octets"

# Clients that said goodbye leave nothing that others would have to wait for.
umount mounted other
die
come_back
! grep -q 'may now' "$LAB_OUT/verbenad.log" || fail "it waits for: $(grep 'version 4' "$LAB_OUT/verbenad.log")"
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
