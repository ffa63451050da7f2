# SPDX-License-Identifier: Apache-2.0
# The wire between verbenad here and a stock kernel's hard mount in another guest (cut.peer.sh) is cut and mended under
# load: work goes on and its data are whole. At a cut this guest's NIC loses its carrier, and the other's hears nothing.
#   cut SERVER DEVICE      rdma rxe, rdma siw, iwarp siw, or tcp lo, which here stands for no device
# lab: limit=600
. "$LAB_LIB"
if [[ $2 != lo ]]; then
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$2" wire
fi
mkdir exported
mount -t tmpfs -o mode=755 exported exported
server=$LAB_SELF
verbenad "$1"
daemon=$!
tell ready
told loaded 240
for round in 1 2 3; do
    sleep 2
    [[ ! -e $LAB_MEETING/said-failed ]] || fail 'the load failed'
    wire off
    # Longer than a reliable connection of rxe tries again and siw's TCP does not give up; then the client connects anew.
    sleep $((round * 4))
    wire on
    tell "mended-$round"
    told "missed-$round" 240
done
tell stopped
told ended 500
curl -sS --fail --max-time 60 "$server:9464/metrics" >"$LAB_OUT/metrics.txt"
grep '^verbena_connection_ends_total.* [1-9]' "$LAB_OUT/metrics.txt" || true
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
