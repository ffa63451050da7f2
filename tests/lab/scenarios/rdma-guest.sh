# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client on verbenad's rdma-core provider, over one device in one guest:
# rdma-guest rxe|siw.
# lab: limit=300
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/disk.sh"
kind=${1:-rxe}
address6=${kind}_address6
export_disk 256 # a file system with a disk below it, as people export
serve rdma "$kind" --versions 3 --listen "rdma://[${!address6}]:20049" --listen "tcp://[${!address6}]:2049"
daemon=$!
copy_both_ways mount_as_printed mounted

# What was copied went through chunks both ways, on a device.
moved_by_chunks rdma completion_error

# By IPv6, too.
server=[${!address6}] mount_options=proto=rdma6
mount_as_printed mounted
cp "$LAB_DATA/large" mounted/six
umount mounted
mount_as_printed mounted
timed 'compare what was copied by IPv6' cmp "$LAB_DATA/large" mounted/six
umount mounted

# In order, so that a sanitizer tells what was leaked.
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
