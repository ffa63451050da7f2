# SPDX-License-Identifier: Apache-2.0
# A stock kernel's RNBD client on verbenad's devices, over rxe in one guest: a file system made, filled, read back and checked. What is
# served is a block device, which has it afterwards, and a file.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links rxe
server=$rxe_address
modprobe loop
truncate -s 256M behind
behind=$(losetup --find --show behind)
start verbenad "$LAB_BUILD/services/verbenad" block --shards 2 --listen "rdma://$server:1234" --state "$PWD/state" \
    --device "disk=$behind,clients=192.0.2.0/24" --device "small=$PWD/small,size=16M,block_size=4096" --metrics "$server:9464"
daemon=$!
until_true 60 grep -q '^ready' "$LAB_OUT/verbenad.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/verbenad.log")"

# map DEVICE [SESSION]: $mapped is the block device that the kernel made of it.
map() {
    echo "sessname=${2:-lab} path=ip:$server device_path=$1 access_mode=rw" >/sys/class/rnbd-client/ctl/map_device ||
        fail "the kernel does not map $1: $(dmesg | tail -n 5)"
    mapped=$(basename "$(readlink -f "/sys/class/rnbd-client/ctl/devices/$1@${2:-lab}")")
    until_true 10 test -b "/dev/$mapped" || fail "no /dev/$mapped"
}
unmap() { echo normal >"/sys/block/$1/rnbd/unmap_device"; }

modprobe rnbd_client
timed 'map a device' map disk
disk=$mapped
[[ $(blockdev --getsize64 "/dev/$disk") == $((256 << 20)) ]] || fail "size of disk: $(blockdev --getsize64 "/dev/$disk")"
timed 'make a file system' mkfs.ext4 -q "/dev/$disk"
mkdir mounted
mount "/dev/$disk" mounted
timed 'copy a tree in' cp -r "$LAB_DATA/tree" "$LAB_DATA/large" mounted
umount mounted
timed 'check the file system' e2fsck -fn "/dev/$disk" >"$LAB_OUT/e2fsck.txt" 2>&1 || fail "e2fsck: $(tail -n 5 "$LAB_OUT/e2fsck.txt")"
mount "/dev/$disk" mounted
timed 'compare' diff -r --no-dereference "$LAB_DATA/tree" mounted/tree
cmp "$LAB_DATA/large" mounted/large
fstrim mounted
umount mounted

# Who is not named may not open it; a second device stands beside the first.
if echo "sessname=lab path=ip:$server device_path=none" >/sys/class/rnbd-client/ctl/map_device; then
    fail 'a device that does not exist was mapped'
fi
unmap "$disk"
! mount "$behind" mounted 2>/dev/null || fail 'a device that verbenad serves was mounted'
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
mount -o ro "$behind" mounted
cmp "$LAB_DATA/large" mounted/large
umount mounted
losetup --detach "$behind"

# With a new key for each request.
start renewing "$LAB_BUILD/services/verbenad" block --shards 1 --always-invalidate --listen "rdma://$server:1234" --state "$PWD/renewing" \
    --device renewed=64M,clients=192.0.2.0/24 --metrics "$server:9465"
daemon=$!
until_true 60 grep -q '^ready' "$LAB_OUT/renewing.log" || fail "verbenad does not start: $(tail -n 3 "$LAB_OUT/renewing.log")"
timed 'map a device whose keys are renewed' map renewed renewing
timed 'fill it' dd if="$LAB_DATA/large" of="/dev/$mapped" bs=64k oflag=direct conv=fsync status=none
echo 3 >/proc/sys/vm/drop_caches
timed 'read it' cmp "$LAB_DATA/large" -n "$(stat -c %s "$LAB_DATA/large")" "/dev/$mapped"
[[ $(curl -sS --fail "$server:9465/metrics" | awk '/^verbena_rtrs_invalidations_total/ {print $2}') -gt 100 ]] || fail 'no key was renewed'
unmap "$mapped"
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
