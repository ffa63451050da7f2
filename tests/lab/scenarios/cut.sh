# SPDX-License-Identifier: Apache-2.0
# The wire between verbenad here and a stock kernel's hard mount in another guest (cut.peer.sh) is cut and mended under
# load: work goes on and its data are whole. At a cut this guest's NIC loses its carrier, and the other's hears nothing.
#   cut SERVER DEVICE      rdma rxe, rdma siw, iwarp siw, or tcp lo, which here stands for no device
# lab: limit=600
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/traffic.sh"
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
for round in 1 2 3; do
    told "counted-$round" 240
    until_writes 60 || fail "round $round: the load stands still"
    [[ ! -e $LAB_MEETING/said-failed ]] || fail 'the load failed'
    wire off
    # Longer than the client waits for an answer (timeo=50) before it ends a connection, and than TCP waits to send again.
    sleep $((round * 4 + 4))
    wire on
    tell "mended-$round"
    told "missed-$round" 240
    until_writes 120 || fail "after round $round the load stands still"
    tell "goes-on-$round"
done
tell stopped
told ended 3000
curl -sS --fail --max-time 60 "$server:9464/metrics" >"$LAB_OUT/metrics.txt"
grep '^verbena_connection_ends_total.* [1-9]' "$LAB_OUT/metrics.txt" || true
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
