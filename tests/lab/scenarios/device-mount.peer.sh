# SPDX-License-Identifier: Apache-2.0
# The client of device-mount: a hard mount under load whose server's device goes and comes, and that none of it gets through.
. "$LAB_LIB"
server=$LAB_PEER exported=/export
mount_options=vers=3,mountproto=tcp,mountport=2049,nolock,proto=rdma,port=20049
modprobe -a rdma_ucm ib_uverbs
rdma_device "$2" wire
mkdir mounted
acknowledged=$LAB_ROOT/tests/lab/guest/acknowledged.py
ledger=$LAB_MEETING/ledger
: >"$ledger"
told ready 120
mount_server mounted hard,timeo=50,retrans=1
python3 "$acknowledged" mounted "$ledger" "$LAB_MEETING/said-over" &
load=$!
told over 600
timed 'the load ends well' wait "$load"
count=$(connects mounted)
echo "the kernel counts $count connects"
((count > 3)) || fail 'the kernel did not have to connect again'
umount mounted
# By a mount made anew, and so not from what the client has kept.
mount_server mounted hard
timed 'compare' python3 "$acknowledged" --check "$ledger" mounted
umount mounted
errors=$(sort -u "$ledger" | sed -n 's/^error //p' | xargs)
[[ -z $errors ]] || fail "errors came through a hard mount: $errors"
tell ended
