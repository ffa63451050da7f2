# SPDX-License-Identifier: Apache-2.0
# verbenad's RDMA device is removed and added under the load of a kernel's hard mount in another guest (device-mount.peer.sh).
# verbenad lives on, lets the device go, and listens again by itself; the mount goes on, and what was acknowledged is whole.
#   device-mount rdma rxe|siw
# In two guests, since the client has to keep its device: where both are on the same one, the client of 6.1 connects anew while
# the device is on its way out, which its rpcrdma_cm_event_handler takes for a null pointer once in some thirty times.
# lab: limit=800
. "$LAB_LIB"
modprobe -a rdma_ucm ib_uverbs
rdma_device "$2" wire
mkdir exported
mount -t tmpfs -o mode=755 exported exported
server=$LAB_SELF
verbenad "$1"
daemon=$!
acknowledged=$LAB_ROOT/tests/lab/guest/acknowledged.py
ledger=$LAB_MEETING/ledger
counter() { curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n "s/^$1 //p"; }
written() { grep -vc '^error' "$ledger" || true; }
goes_on() { (($(written) > before + 3)); }

tell ready
before=0
until_true 120 goes_on || fail 'the load does not begin'
for round in 1 2 3; do
    # The kernel waits here until all who have the device open have let go of it.
    timed 'the device goes' timeout 60 rdma link delete "${2}0" || fail "round $round: the device does not go"
    sleep 2
    kill -0 "$daemon" 2>/dev/null || fail 'verbenad ended'
    removed=$(counter 'verbena_rdma_device_events_total{event="removed"}')
    [[ $removed -ge $round ]] || fail "verbenad counted $removed removals"
    before=$(written)
    rdma_device "$2" wire
    timed 'the mount goes on' until_true 90 goes_on || fail "round $round: the mount does not go on: $(tail -n 1 "$ledger")"
done
tell over
told ended 120
timed 'compare' python3 "$acknowledged" --check "$ledger" exported
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
