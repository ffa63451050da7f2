# SPDX-License-Identifier: Apache-2.0
# verbenad's RDMA device is removed and added under the load of a kernel's hard mount on the same device. verbenad lives
# on, lets the device go, and listens again by itself; the mount goes on, and what was acknowledged is whole.
#   device-mount rdma rxe
# A connection that the kernel's client makes just then fails with EINVAL or ENODEV, which it hands to its callers, hard
# mount or not: the load notes such errors and goes on. Data count as acknowledged when fsync said so.
# lab: limit=400
. "$LAB_LIB"
serve "$1" "$2"
daemon=$!
mount_server mounted hard,timeo=50,retrans=1
acknowledged=$LAB_ROOT/tests/lab/guest/acknowledged.py
counter() { curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n "s/^$1 //p"; }
written() { grep -vc '^error' ledger || true; }
goes_on() { (($(written) > before + 3)); }

: >ledger
python3 "$acknowledged" mounted ledger stop &
load=$!
before=0
until_true 60 goes_on || fail 'the load does not begin'
for round in 1 2 3; do
    # The kernel waits here until all who have the device open have let go of it.
    timed 'the device goes' timeout 60 rdma link delete "${2}0" || fail "round $round: the device does not go"
    sleep 2
    kill -0 "$daemon" 2>/dev/null || fail 'verbenad ended'
    removed=$(counter 'verbena_rdma_device_events_total{event="removed"}')
    [[ $removed -ge $round ]] || fail "verbenad counted $removed removals"
    before=$(written)
    rdma_device "$2" "lab-$2"
    timed 'the mount goes on' until_true 90 goes_on || fail "round $round: the mount does not go on: $(tail -n 1 ledger)"
done
touch stop
timed 'the load ends well' wait "$load"
umount mounted
mount_server mounted hard
# On the server's file system, and by a mount made anew.
timed 'compare' python3 "$acknowledged" --check ledger exported mounted
others=$(grep '^error' ledger | grep -vE ' (EINVAL|ENODEV)$' || true)
[[ -z $others ]] || fail "errors of another kind: $(sort -u <<<"$others" | xargs)"
umount mounted
kill -0 "$daemon" 2>/dev/null || fail 'verbenad ended'
