# SPDX-License-Identifier: Apache-2.0
# A stock kernel's RNBD client on verbenad's devices, over rxe in one guest: what a file system seldom does. Blocks of 512 and of 4096 bytes,
# both devices at once at depth 64, flush, FUA, discard, zeroes, and a device that may only be read.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links rxe
server=$rxe_address
modprobe loop
truncate -s 64M behind
behind=$(losetup --find --show behind)
start verbenad "$LAB_BUILD/services/verbenad" block --shards 2 --listen "rdma://$server:1234" --state "$PWD/state" \
    --device "sectors=$behind,block_size=512,clients=192.0.2.0/24" --device "pages=$PWD/pages,size=64M,block_size=4096,clients=192.0.2.0/24" \
    --device "fixed=$LAB_DATA/large,ro,clients=192.0.2.0/24" --metrics "$server:9464"
daemon=$!
until_true 60 grep -q '^ready' "$LAB_OUT/verbenad.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/verbenad.log")"
# operations DEVICE OPERATION: how many verbenad has done.
operations() {
    curl -sS --fail "$server:9464/metrics" |
        awk -v device="device=\"$1\"" -v what="operation=\"$2\"" '/^verbena_rnbd_device_operations_total/ && index($0, device) && index($0, what) {n += $2} END {print n + 0}'
}
# map DEVICE MODE: $mapped is the block device that the kernel made of it.
map() {
    echo "sessname=lab path=ip:$server device_path=$1 access_mode=$2" >/sys/class/rnbd-client/ctl/map_device ||
        fail "the kernel does not map $1: $(dmesg | tail -n 5)"
    mapped=/dev/$(basename "$(readlink -f "/sys/class/rnbd-client/ctl/devices/$1@lab")")
    until_true 10 test -b "$mapped" || fail "no $mapped"
}
modprobe rnbd_client
map sectors rw
sectors=$mapped
map pages rw
pages=$mapped
[[ $(blockdev --getss "$sectors") == 512 && $(blockdev --getss "$pages") == 4096 ]] ||
    fail "sizes of blocks: $(blockdev --getss "$sectors"), $(blockdev --getss "$pages")"

# verify NAME DEVICE SMALLEST
verify() {
    fio --name="$1" --filename="$2" --rw=randwrite --bsrange="$3-128k" --size=24M --ioengine=libaio --iodepth=64 --direct=1 \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=5 --fsync=64 --output="$LAB_OUT/fio-$1.txt"
}
verify sectors "$sectors" 512 &
beside=$!
timed 'verify two devices' verify pages "$pages" 4k || fail "fio: $(tail -n 5 "$LAB_OUT/fio-pages.txt")"
wait "$beside" || fail "fio: $(tail -n 5 "$LAB_OUT/fio-sectors.txt")"
for device in sectors pages; do
    grep -q 'err= 0' "$LAB_OUT/fio-$device.txt" || fail "fio on $device: $(grep err= "$LAB_OUT/fio-$device.txt")"
done
[[ $(operations sectors flush) -gt 2 ]] || fail "verbenad saw $(operations sectors flush) flushes of sectors"
# The guest's files lie in memory, which no flush makes last: the device has no cache to flush, and the kernel knows.
[[ $(<"/sys/block/${pages#/dev/}/queue/write_cache") == 'write through' && $(operations pages flush) == 0 ]] ||
    fail "a file in memory has a cache: $(<"/sys/block/${pages#/dev/}/queue/write_cache"), $(operations pages flush) flushes"

# What was written through is in the file behind it. (O_DSYNC on a block device is FUA and a flush.)
timed 'write through' dd if="$LAB_DATA/large" of="$pages" bs=64k count=32 oflag=direct,dsync status=none
cmp -n $((2 << 20)) "$LAB_DATA/large" pages || fail 'what was written through is not in the file'

timed 'discard' blkdiscard -o $((1 << 20)) -l $((8 << 20)) "$sectors"
[[ $(operations sectors discard) -gt 0 ]] || fail 'verbenad saw no discard'
cmp -n $((8 << 20)) -i $((1 << 20)):0 "$sectors" /dev/zero || fail 'what was discarded of a loop device is not zeros'
timed 'zeroes' blkdiscard -z -o $((4 << 20)) -l $((4 << 20)) "$pages"
echo 3 >/proc/sys/vm/drop_caches
cmp -n $((4 << 20)) -i $((4 << 20)):0 "$pages" /dev/zero || fail 'zeroes were not written'

map fixed ro
[[ $(blockdev --getro "$mapped") == 1 ]] || fail 'a device that is read-only is not so at the client'
cmp "$LAB_DATA/large" "$mapped" || fail 'a device that is read-only has other bytes'
if echo "sessname=other path=ip:$server device_path=fixed access_mode=rw" >/sys/class/rnbd-client/ctl/map_device; then
    fail 'a device that is read-only was mapped to be written'
fi
for device in "$sectors" "$pages" "$mapped"; do
    echo normal >"/sys/block/${device#/dev/}/rnbd/unmap_device"
done
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
losetup --detach "$behind"
