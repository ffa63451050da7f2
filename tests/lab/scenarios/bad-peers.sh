# SPDX-License-Identifier: Apache-2.0
# Peers that break the rules on a device of the kernel, while a stock kernel's client works on the same server: each loses its
# own connection, which is counted, what it held is free again, and the client notices nothing.
#   bad-peers rxe|siw
# lab: limit=900
. "$LAB_LIB"
raw=$LAB_BUILD/tests/lab/raw_verbs/raw_verbs
needs "$LAB_BUILD/services/verbenad" "$raw"
links "$1"
address=${1}_address
server=${!address} exported=/export
mount_options=proto=rdma,port=20049,vers=3,mountproto=tcp,mountport=2049,nolock
mkdir exported mounted state
mount -t tmpfs -o mode=755 exported exported
dd if=/dev/urandom of=exported/file bs=1M count=2 status=none
# Memory for 64 connections: a crowd of hundreds is more.
cat >config.toml <<END
[daemon]
state = "$PWD/state"
shards = 2
memory_mib = 64
[metrics]
listen = "$server:9464"
[nfs]
listen = ["rdma://$server:20049", "tcp://$server:2049"]
rpcbind = "no"
rdma_read_seconds = 5
[[nfs.export]]
directory = "$PWD/exported"
pseudo = "/export"
root_squash = false
clients = ["*"]
END
start verbenad "$LAB_BUILD/services/verbenad" serve config.toml
daemon=$!
until_true 20 listens "$server" 2049 || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"

metrics() { curl -sS --fail --max-time 20 "$server:9464/metrics"; }
value() { metrics | sed -n "s/^$1 //p"; }
ends() { metrics | sed -n 's/^verbena_connection_ends_total{transport="rdma",cause="\([a-z_]*\)"} /\1 /p' | sort; }
ended() { (($(ends | awk '{ n += $2 } END { print n }') - $(awk '{ n += $2 } END { print n }' before) >= $1)); }

# attack WHAT CONNECTIONS CAUSE...: so many end, and by no other causes; LAB_OUT/ends tells by which.
attack() {
    local other
    ends >before
    timed "$1" python3 "$LAB_ROOT/tests/lab/guest/raw_peer.py" "$raw" "$server" 20049 "$1" || fail "$1: see the log"
    until_true 60 ended "$2" || fail "$1: of $2 connections not all ended: $(ends | xargs)"
    ends >after
    other=$(join before after | awk -v good=" ${*:3} " '$3 != $2 && !index(good, " " $1 " ") { print $1 }')
    [[ -z $other ]] || fail "$1: connections ended by $other"
    join before after | awk -v what="$1" '$3 != $2 { print what, $1, $3 - $2 }' | tee -a "$LAB_OUT/ends"
    kill -0 "$daemon" || fail "verbenad is gone"
    kill -0 "$load" 2>/dev/null || fail "the client failed beside $1"
}

mount_server mounted hard,timeo=600
load_until_stop writers 2 20 &
load=$!
sleep 2
memory=$(value verbena_memory_registered_bytes)
# What a device tells its own end differs: a rule that it enforced itself may show as no more than the peer's end.
attack forged_keys 4 orderly completion_error
attack bad_chunk_keys 4 completion_error orderly
attack no_receives 1 completion_error orderly
[[ $1 != rxe ]] || (($(value 'verbena_rdma_receiver_not_ready_total{device="rxe0",port="1",counter="retry_rnr_exceeded_err"}') > 0)) ||
    fail 'no metric tells of the missing receive'
attack private_data 6 orderly
attack credits 1 local orderly completion_error
attack vanishing 4 orderly completion_error
attack crowd 300 orderly rejected
touch stop
timed 'the load ends well' wait "$load"
held=$(value verbena_memory_registered_bytes)
((held <= memory + (16 << 20))) || fail "memory grew from $memory to $held"
grep -q '^crowd rejected' "$LAB_OUT/ends" || fail 'nobody was rejected'
timed 'copy in' cp -a "$LAB_DATA/tree" mounted/tree
umount mounted
mount_server mounted
same_data 'a tree copied afterwards' "$LAB_DATA/tree" mounted/tree
umount mounted
