# SPDX-License-Identifier: Apache-2.0
# How fast verbenad's block devices are beside the kernel's RNBD server, over rxe in one guest: one kernel client has devices of both mapped,
# first without and then with a new key for each request. A measurement: it fails only when the work does.
#   block-speed [PAIRS]
# lab: limit=1800
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links rxe
pairs=${1:-3}
modprobe null_blk nr_devices=1 gb=1
modprobe brd rd_nr=1 rd_size=$((256 << 10))
modprobe rnbd_client

# map SESSION PORT DEVICE: $mapped is the block device that the kernel made of it.
map() {
    echo "sessname=$1 dest_port=$2 path=ip:$rxe_address device_path=$3" >/sys/class/rnbd-client/ctl/map_device ||
        fail "the kernel does not map $3: $(dmesg | tail -n 5)"
    mapped=/dev/$(basename "$(readlink -f "/sys/class/rnbd-client/ctl/devices/${3//\//!}@$1")")
    until_true 10 test -b "$mapped" || fail "no $mapped"
    devices+=("$mapped")
}
for renew in no yes; do
    [[ $renew == no ]] && flag=N || flag=Y
    modprobe rtrs_server always_invalidate=$flag
    modprobe rnbd_server
    start verbenad "$LAB_BUILD/services/verbenad" block --listen "rdma://$rxe_address:1235" --shards 1 --state "$PWD/state-$renew" \
        $([[ $renew == no ]] || echo --always-invalidate) --metrics off \
        --device null=1G,backend=nullblk,clients=192.0.2.0/24 --device ram=256M,backend=ramblk,clients=192.0.2.0/24
    daemon=$!
    until_true 60 grep -q '^ready' "$LAB_OUT/verbenad.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/verbenad.log")"
    devices=()
    map ours 1235 null
    map ours 1235 ram
    map theirs 1234 /dev/nullb0
    map theirs 1234 /dev/ram0
    echo "always_invalidate=$flag"
    python3 "$LAB_ROOT/tests/lab/guest/block_speed.py" "$LAB_OUT/block_speed.json" "$pairs" \
        "null, always_invalidate=$flag=${devices[0]}:${devices[2]}" "ram, always_invalidate=$flag=${devices[1]}:${devices[3]}"
    for device in "${devices[@]}"; do
        echo normal >"/sys/block/${device#/dev/}/rnbd/unmap_device"
    done
    kill "$daemon"
    wait "$daemon" || fail "verbenad ended with status $?"
    modprobe -r rnbd_server rtrs_server
done
