# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client over siw, through the guest's NIC, on verbenad's iWARP stack on the host,
# where there is no RDMA device (siw-host.host.sh).
# lab: limit=300 net=user
. "$LAB_LIB"
serve_from_host
copy_both_ways mount_server mounted
