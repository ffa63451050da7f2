# SPDX-License-Identifier: Apache-2.0
# Real work of a stock kernel's NFSv3/RDMA client over siw, through the guest's NIC, on verbenad's iWARP stack on the
# host, where there is no RDMA device (work-host.host.sh).
# lab: limit=1200 net=user
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/work.sh"
serve_from_host
linux_work
