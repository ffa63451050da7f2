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
# Memory for the first receives of some hundred connections of one host: a crowd is more.
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
export LAB_SERVER=$daemon LAB_DEVICE=$1 # for raw_peer.py
until_true 60 listens "$server" 2049 || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"

# scrape: what the functions below it read. A program for each question would keep the guest's one processor from those it is about.
scrape() { curl -sS --fail --max-time 20 --output scraped "$server:9464/metrics"; }
value() { sed -n "s/^$1 //p" scraped; }
ends() { sed -n 's/^verbena_connection_ends_total{transport="rdma",cause="\([a-z_]*\)"} /\1 /p' scraped | sort; }
all_ended() { awk '/^verbena_connection_ends_total{transport="rdma",/ { n += $2 } END { print n }' scraped; }
ended() { scrape && (($(all_ended) >= expected)) || { sleep 0.5 && false; }; }
errors() { value "verbena_rpcrdma_errors_total{kind=\"$1\"}"; }
memory_is_back() { (($(value verbena_memory_registered_bytes) <= memory + (16 << 20))); }
memory_comes_back() { scrape && memory_is_back; }
writes() { scrape && (($(value verbena_nfs_written_bytes_total) > written)); }

# attack WHAT CAUSE[|CAUSE]=CONNECTIONS...: just so many end by these causes, and none by others; LAB_OUT/ends tells by which.
expected=0
attack() {
    local want written
    for want in "${@:2}"; do expected=$((expected + ${want#*=})); done
    ends >before
    timed "$1" python3 "$LAB_ROOT/tests/lab/guest/raw_peer.py" "$raw" "$server" 20049 "$1" || fail "$1: see the log"
    # The server looks after a peer that has said nothing for a minute.
    timed 'their ends' until_true 150 ended || fail "$1: not all connections ended: $(ends | xargs)"
    ends >after
    join before after | awk -v what="$1" '$3 != $2 { print what, $1, $3 - $2 }' >grown
    tee -a "$LAB_OUT/ends" <grown
    for want in "${@:2}"; do
        awk -v cause="^(${want%=*})\$" -v wanted="${want#*=}" '$2 ~ cause { n += $3 } END { exit n != wanted }' grown ||
            fail "$1: not $want, but $(xargs <grown)"
    done
    written=$(value verbena_nfs_written_bytes_total)
    memory_is_back || until_true 20 memory_comes_back || fail "$1: memory grew from $memory to $(value verbena_memory_registered_bytes)"
    (($(connects mounted) == connected)) || fail "the client lost its connection beside $1"
    kill -0 "$daemon" || fail "verbenad is gone"
    kill -0 "$load" 2>/dev/null || fail "the client failed beside $1"
    until_true 30 writes || fail "the client stands still beside $1"
    (($(all_ended) == expected)) || fail "$1: more than $expected connections ended: $(ends | xargs)"
}

mount_server mounted hard,timeo=600
connected=$(connects mounted)
load_until_stop writers 2 20 &
load=$!
until_true 60 scrape || fail 'verbenad shows no metrics'
written=$(value verbena_nfs_written_bytes_total)
until_true 60 writes || fail 'the client does not write'
memory=$(value verbena_memory_registered_bytes)
# What a device tells its own end differs: siw may show the end that it brought about as no more than the peer's.
either='completion_error|orderly'
if [[ $1 == rxe ]]; then
    attack forged_keys completion_error=4
    bad_chunk_keys=completion_error=4
    attack no_receives completion_error=1
    (($(value 'verbena_rdma_receiver_not_ready_total{device="rxe0",port="1",counter="retry_rnr_exceeded_err"}') > 0)) ||
        fail 'no metric tells of the missing receive'
else
    attack forged_keys "$either=4"
    bad_chunk_keys="$either=4"
    attack no_receives "$either=1"
fi
# As often as a megabyte lost with each connection would show.
for _ in {1..5}; do attack bad_chunk_keys "$bad_chunk_keys"; done
(($(errors read) == 10)) || fail "of 10 RDMA Reads by bad keys $(errors read) failed"
attack private_data orderly=6
# Sent at once the calls may find no receive, which is the end to a device before the server counts credits.
attack credits "local|$either=1"
(($(errors credits) == $(awk '$1 == "credits" && $2 == "local" { n = $3 } END { print n + 0 }' "$LAB_OUT/ends"))) ||
    fail "credits were exceeded $(errors credits) times"
attack vanishing "$either=4"
attack rejects orderly=1
if [[ $1 == rxe ]]; then
    # The device itself gives up before `rdma_read_seconds`: the peer's wish when it connects is one repetition.
    attack silence completion_error=1
else
    # Clients in user space. Each run begins with a connection of good behaviour.
    ip address add 198.51.100.2/24 dev lab-siw
    attack unanswered_reads local=2 "$either=1"
    (($(errors read_stalled) == 2)) || fail "of 2 connections RDMA Reads stalled on $(errors read_stalled)"
    exceeded=$(errors credits)
    attack credits_one_by_one local=1 "$either=1"
    (($(errors credits) == exceeded + 1)) || fail 'no credits were exceeded'
    attack terminates "$either=6"
    # Of the one with an RDMA Read under way siw may tell before `rdma_read_seconds` are over.
    attack half_open "local|$either=4"
    attack stops_reading "$either=2"
    attack byte_a_second "$either=3"
    attack no_start_up "$either=1"
fi
# siw may show the end of a peer that goes with octets unread as a reset.
crowd=orderly
[[ $1 == rxe ]] || crowd=$either
attack crowd "$crowd|rejected=301"
touch stop
timed 'the load ends well' wait "$load"
memory_comes_back || fail "memory grew from $memory to $(value verbena_memory_registered_bytes)"
grep -q '^crowd rejected' "$LAB_OUT/ends" || fail 'nobody was rejected'
timed 'copy in' cp -a "$LAB_DATA/tree" mounted/tree
umount mounted
mount_server mounted
same_data 'a tree copied afterwards' "$LAB_DATA/tree" mounted/tree
umount mounted
