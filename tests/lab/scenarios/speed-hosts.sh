# SPDX-License-Identifier: Apache-2.0
# As speed, with the kernel client in another guest (speed-hosts.peer.sh): what both cost the server's host alone.
#   speed-hosts SERVER DEVICE [PAIRS [WORD...]]     rdma rxe, rdma siw, iwarp siw, or tcp lo, which here stands for no device
# lab: limit=2400
. "$LAB_LIB"
if [[ $2 != lo ]]; then
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$2" wire
fi
# It would choose less on a machine of little memory.
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
echo 1048576 >/proc/fs/nfsd/max_block_size
for each in knfsd verbenad; do
    mkdir -p "$each/exported"
    mount -t tmpfs -o mode=755 exported "$each/exported"
done
knfsd "$PWD/knfsd/exported"
cd verbenad
server=$LAB_SELF tcp_port=12049 rdma_port=12050
verbenad "$1" --shards "$(nproc)"
daemon=$!
# Microseconds of processors that verbenad has taken, with what its system calls did.
taken() { awk '{ n += $1 } END { printf "%d\n", n / 1000 }' /proc/"$daemon"/task/*/schedstat; }
begun=$(taken)
echo "$PWD" >"$LAB_MEETING/at"
tell ready
# `told` looks twenty times a second, which would cost a tenth of this guest's processor.
until [[ -e $LAB_MEETING/said-measured ]]; do sleep 5; done
took=$(($(taken) - begun))
calls=$(curl -sS --fail --max-time 60 "$server:9464/metrics" |
    awk '/^verbena_rpc_calls_total[{]program="nfs"/ { n += $2 } END { print n; exit !n }')
echo "verbenad took $((took / calls)) us of processors for each of $calls calls"
