# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client on verbenad's rdma-core provider, over one device in one guest:
# rdma-guest rxe|siw.
# lab: limit=300
. "$LAB_LIB"
serve rdma "${1:-rxe}" --shards 2
copy_both_ways mount_as_printed mounted

# What was copied went through chunks both ways, on a device.
moved_by_chunks rdma completion_error
