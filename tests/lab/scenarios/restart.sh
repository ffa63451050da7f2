# SPDX-License-Identifier: Apache-2.0
# The server dies by SIGKILL and comes back under a hard mount of a stock kernel: work goes on and its data are whole;
# what was written and not committed is lost with the server here, and the kernel sends it again.
#   restart SERVER LINK     as `serve` of lib.sh takes them; a server in user space
# lab: limit=400
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/traffic.sh"
serve "$1" "$2"
daemon=$!
mount_server mounted hard,timeo=50,retrans=1

die() {
    kill -KILL "$daemon"
    { wait "$daemon" || true; } 2>/dev/null
}
come_back() {
    verbenad "${@}"
    daemon=$!
}

# Under load, three times. A RENAME done by a server that could not answer any more fails when it is repeated to the
# next one, as NFS version 3 has it; reads, writes and sizes may be repeated.
load() {
    until [[ -e stop ]]; do python3 "$LAB_ROOT/tests/lab/guest/committed.py" writers "$PWD/mounted" 4 "$LAB_STORM" || return 1; done
}
load &
load=$!
for _ in 1 2 3; do
    kill -0 "$load" 2>/dev/null || fail 'the load failed'
    until_writes 60 || fail 'the load stands still'
    die
    sleep 1
    come_back "$1"
done
touch stop
timed 'the load ends well' wait "$load"

# Written and not committed: that is gone, as if it had been in the server's memory only. With write=eager the kernel sends at once what
# is written. It commits it when told to, here by fsync, and by itself some seconds later or when it has much, both of which are put off.
umount mounted
mount_server mounted hard,timeo=50,retrans=1,write=eager
size=$(((LAB_MIB < 32 ? LAB_MIB : 32) << 20))
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
trap 'echo 500 >/proc/sys/vm/dirty_writeback_centisecs' EXIT
echo 90 >"/sys/class/bdi/$(mountpoint -d mounted)/min_ratio"
before=$(written)
python3 - "$LAB_DATA/large" mounted/file "$size" lost <<'END_OF_PYTHON' &
import os, sys, time
source, target, size, lost = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
if os.write(file, open(source, "rb").read(size)) != size:
    sys.exit("a short write")
while not os.path.exists(lost):
    time.sleep(0.05)
os.fsync(file)
END_OF_PYTHON
writer=$!
all_written() { (($(written) >= before + size)); }
all_written_or_gone() { ! kill -0 "$writer" || all_written; }
until_true 120 all_written_or_gone
kill -0 "$writer" 2>/dev/null || fail 'who writes it is gone'
all_written || fail "the kernel sent $(($(written) - before)) octets of $size"
sleep 1 # the last replies
die
echo 500 >/proc/sys/vm/dirty_writeback_centisecs
cmp -n "$size" "$LAB_DATA/large" exported/file
truncate -s 0 exported/file
come_back "$1"
touch lost
timed 'the kernel sends it again' wait "$writer"
sent=$(written)
((sent >= size)) || fail "the kernel sent $sent octets again of $size"
cmp -n "$size" "$LAB_DATA/large" exported/file
(($(stat -c %s exported/file) == size)) || fail 'the file has another size'
umount mounted
