# SPDX-License-Identifier: Apache-2.0
# The server dies by SIGKILL and comes back under a hard mount of a stock kernel: work goes on and its data are whole;
# what was written and not committed is lost with the server here, and the kernel sends it again.
#   restart SERVER LINK     as `serve` of lib.sh takes them; a server in user space
# lab: limit=400
. "$LAB_LIB"
serve "$1" "$2"
daemon=$!
# By RDMA the kernel has 64 WRITEs and more under way at once: they are small here, so that a part of a file can be.
wsize=
[[ $1 != rdma ]] || wsize=,wsize=65536
mount_server mounted hard,timeo=50,retrans=1$wsize

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
load_until_stop writers 4 "$LAB_STORM" &
load=$!
for _ in 1 2 3; do
    sleep 2
    kill -0 "$load" 2>/dev/null || fail 'the load failed'
    die
    sleep 1
    come_back "$1"
done
touch stop
timed 'the load ends well' wait "$load"

# Sent, and not committed: the kernel sends COMMIT behind the last WRITE, and the server dies before. What it had taken is
# gone, as if it had been in its memory only. Of a larger file the kernel commits a part in between, which must not go.
size=$((32 << 20))
# Without a process of its own: it must catch the server in between, on a busy machine too.
taken() {
    local name value
    while read -r name value; do [[ $name != wchar: ]] || written=$value; done <"/proc/$daemon/io"
}
taken
before=$written
dd if="$LAB_DATA/large" of=mounted/file bs=1M count=32 conv=fsync status=none &
writer=$!
until ((written - before >= size / 4)); do
    kill -0 "$writer" 2>/dev/null || fail 'written before the server could be killed'
    taken
done
die
had=$(stat -c %s exported/file)
((had >= size / 4 && had < size)) || fail "the server had $had octets of $size"
truncate -s 0 exported/file
come_back "$1"
timed 'the kernel sends it again' wait "$writer"
sent=$(curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n 's/^verbena_nfs_written_bytes_total //p')
((sent >= size)) || fail "the kernel sent $sent octets again of $size"
cmp -n "$size" "$LAB_DATA/large" exported/file
(($(stat -c %s exported/file) == size)) || fail 'the file has another size'
umount mounted
