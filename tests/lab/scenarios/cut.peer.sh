# SPDX-License-Identifier: Apache-2.0
# The client of cut: a hard mount under load while the wire is cut, and that it is not left hanging.
. "$LAB_LIB"
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
sent_again() { awk '$1 == "Tcp:" { n = $13 } END { print n }' /proc/net/snmp; }
before=$(sent_again)
tell loaded
told mended 240
touch stop
timed 'the load ends well' wait "$load"
count=$(connects mounted)
echo "the kernel counts $count connects"
# A queue pair of rxe has given up by then; TCP, siw's too, may wait for the wire and send again.
if [[ $2 == rxe ]]; then
    ((count > 1)) || fail 'the kernel never had to connect again'
else
    (($(sent_again) > before)) || fail 'nobody missed the wire'
fi
umount mounted
tell ended
