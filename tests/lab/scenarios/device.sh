# SPDX-License-Identifier: Apache-2.0
# verbenad's RDMA device is removed and added under load. verbenad lives on, lets the device go, and listens again by
# itself; clients go on and their data are whole.
#   device rdma rxe|siw [HOST]     verbenad listens on HOST, as * for every address, or on the device's
# The client under load is ours, on the same device: it has to let go and come back too. The kernel's is mounted and
# at rest while the device goes: a connection that it is making just then fails with EINVAL, which it hands to its callers.
# lab: limit=400
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/traffic.sh"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
listens_on=${3:-}
serve "$1" "$2"
daemon=$!
url=nfs+$1://$server:20049$exported
mount_server mounted hard,timeo=50,retrans=1
cp "$LAB_DATA/large" mounted/before
sync -f mounted

counter() { curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n "s/^$1 //p"; }

# client WORDS...: one that begins while there is no device ends with 3 and begins again.
client() {
    local status
    while true; do
        status=0
        "$verbena" -q --timeout 5 "$@" 2>>"$LAB_OUT/client.log" || status=$?
        ((status == 3)) || return "$status"
        sleep 0.5
    done
}
load() {
    local round=0
    until [[ -e stop ]]; do
        round=$((round + 1))
        client cp --checksum "$LAB_DATA/large" "$url/large" >sums
        grep -qF "$(<"$LAB_DATA.sha256")" sums || fail "round $round: the checksum is another: $(<sums)"
        client cp -r -p "$LAB_DATA/tree" "$url/tree"
        same_data "round $round" "$LAB_DATA/tree" exported/tree
        client rm -r "$url/tree"
    done
    echo "$round rounds"
}
load &
load=$!
for round in 1 2 3; do
    kill -0 "$load" 2>/dev/null || fail 'the load failed'
    # Not while it compares.
    timed 'the work meets it' until_writes 60 || fail "round $round: the load stands still"
    # The kernel waits here until all who have the device open have let go of it.
    timed 'the device goes' timeout 60 rdma link delete "${2}0" || fail "round $round: the device does not go"
    sleep 2
    kill -0 "$daemon" 2>/dev/null || fail 'verbenad ended'
    rdma_device "$2" "lab-$2"
    timed 'the work goes on' until_writes 90 || fail "round $round: the work does not go on"
done
touch stop
timed 'the load ends well' wait "$load"
timed 'the kernel goes on' cmp "$LAB_DATA/large" mounted/before
cp mounted/before mounted/after
cmp "$LAB_DATA/large" exported/after
umount mounted

removed=$(counter 'verbena_rdma_device_events_total{event="removed"}')
[[ $removed -ge 3 ]] || fail "verbenad counted $removed removals"
kill -0 "$daemon" 2>/dev/null || fail 'verbenad ended'
