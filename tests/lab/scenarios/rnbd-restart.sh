# SPDX-License-Identifier: Apache-2.0
# verbenad killed and started again, three times, amid the writes of a stock kernel's RNBD client, over rxe in one guest. The kernel gives each
# request in flight back with an error, and connects and opens the device again by itself; what it was told is written is there.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links rxe
serve_blocks() {
    start verbenad "$LAB_BUILD/services/verbenad" block --shards 2 --listen "rdma://$rxe_address:1234" --state "$PWD/state" \
        --device "disk=$PWD/disk,size=32M,clients=192.0.2.0/24" --metrics off
    daemon=$!
    until_true 60 grep -q '^ready' "$LAB_OUT/verbenad.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/verbenad.log")"
}
serve_blocks
modprobe rnbd_client
echo "sessname=lab path=ip:$rxe_address device_path=disk" >/sys/class/rnbd-client/ctl/map_device
until_true 10 test -b /dev/rnbd0 || fail 'no /dev/rnbd0'
python3 "$LAB_ROOT/tests/lab/guest/written_blocks.py" /dev/rnbd0 3 "$PWD/rounds" >"$LAB_OUT/written.txt" 2>&1 &
load=$!
for round in 1 2 3; do
    until_true 60 test -e "rounds/$round.writes" || fail "no writes in round $round: $(tail -n 3 "$LAB_OUT/written.txt")"
    kill -KILL "$daemon"
    wait "$daemon" || :
    touch "rounds/$round.killed"
    until_true 60 test -e "rounds/$round.failed" || fail "no write failed while nobody served: $(tail -n 3 "$LAB_OUT/written.txt")"
    serve_blocks
done
wait "$load" || fail "$(tail -n 3 "$LAB_OUT/written.txt")"
tail -n 1 "$LAB_OUT/written.txt"
echo normal >/sys/block/rnbd0/rnbd/unmap_device
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
