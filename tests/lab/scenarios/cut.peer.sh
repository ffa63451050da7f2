# SPDX-License-Identifier: Apache-2.0
# The client of cut: a hard mount under load while the wire is cut, and that it is not left hanging.
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/traffic.sh"
server=$LAB_PEER exported=/export
mount_options=vers=3,mountproto=tcp,mountport=2049,nolock,proto=tcp,port=2049
[[ $1 == tcp ]] || mount_options=vers=3,mountproto=tcp,mountport=2049,nolock,proto=rdma,port=20049
if [[ $2 != lo ]]; then
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "${2}" wire
fi
mkdir mounted
told ready 120
mount_server mounted hard,timeo=50,retrans=1
(load_until_stop processes 2 "$LAB_STORM" || { tell failed; exit 1; }) &
load=$!
# Each cut is to meet a call.
steady_load
steady=$!
sent_again() { awk '$1 == "Tcp:" { n = $13 } END { print n }' /proc/net/snmp; }
# The client ends rxe's connection and connects again; TCP, siw's too, may wait for the wire and send again.
outages() { if [[ $1 == rxe ]]; then connects mounted; else sent_again; fi; }
was_missed() { (($(outages "$2") > before)); }
for round in 1 2 3; do
    before=$(outages "$2")
    tell "counted-$round"
    told "mended-$round" 240
    until_true 60 was_missed "$@" || fail "nobody missed the wire in round $round"
    tell "missed-$round"
    told "goes-on-$round" 200
done
told stopped 60
touch stop
timed 'the load ends well' wait "$load"
timed 'the other load ends well' wait "$steady"
echo "the kernel counts $(connects mounted) connects"
umount mounted
# By a mount made anew, and so not from what the client has kept.
mount_server mounted hard
steady_load_is_whole mounted/acknowledged
umount mounted
tell ended
