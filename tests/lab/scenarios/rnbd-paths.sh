# SPDX-License-Identifier: Apache-2.0
# A stock kernel's RNBD client on verbenad by two paths, over two rxe devices in one guest: each is cut and mended in turn under a load that
# verifies what it wrote.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links rxe
second=203.0.113.1
ip link add lab-second type dummy
ip address add "$second/24" dev lab-second
ip link set lab-second up
rdma_device rxe lab-second rxe1

serve_blocks() {
    start verbenad "$LAB_BUILD/services/verbenad" block --shards 2 --listen "rdma://$rxe_address:1234" --listen "rdma://$second:1234" \
        --state "$PWD/state" --device 'disk=64M,clients=*' --metrics "$rxe_address:9464"
    daemon=$!
    until_true 60 grep -q '^ready' "$LAB_OUT/verbenad.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/verbenad.log")"
}
# ended: paths that verbenad says have ended, of whatever reason.
ended() { curl -sS --fail "$rxe_address:9464/metrics" | awk '/^verbena_rtrs_ended_paths_total/ {n += $2} END {print n + 0}'; }
states() { cat /sys/class/rtrs-client/lab/paths/*/state | sort | uniq -c | tr -s ' \n' ' '; }
connected() { [[ $(states) == " $1 connected " ]]; }

serve_blocks
modprobe rnbd_client
echo "sessname=lab path=ip:$rxe_address path=ip:$second device_path=disk" >/sys/class/rnbd-client/ctl/map_device
until_true 10 test -b /dev/rnbd0 || fail 'no /dev/rnbd0'
until_true 30 connected 2 || fail "paths: $(states)"

fio --name=load --filename=/dev/rnbd0 --rw=randrw --bs=4k-64k --size=48M --ioengine=libaio --iodepth=32 --direct=1 --verify=crc32c \
    --verify_fatal=1 --loops=1000 --runtime=25 --time_based --output="$LAB_OUT/fio.txt" &
load=$!
for path in /sys/class/rtrs-client/lab/paths/*; do
    sleep 2
    echo 1 >"$path/disconnect"
    until_true 30 test "$(<"$path/state")" = disconnected || fail "state of $path: $(<"$path/state")"
    sleep 2
    echo 1 >"$path/reconnect"
    until_true 30 connected 2 || fail "paths: $(states)"
done
[[ $(ended) == 2 ]] || fail "verbenad says that $(ended) paths have ended"
wait "$load" || fail "fio: $(tail -n 5 "$LAB_OUT/fio.txt")"
grep -q 'err= 0' "$LAB_OUT/fio.txt" || fail "fio: $(grep err= "$LAB_OUT/fio.txt")"

echo normal >/sys/block/rnbd0/rnbd/unmap_device
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
