# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client over siw, through the guest's NIC, on verbenad's iWARP stack on the host,
# where there is no RDMA device (siw-host.host.sh).
# lab: limit=300 net=user
. "$LAB_LIB"
. "$LAB_OUT/ready"
nic=$(ip -o route get 10.0.2.2 | sed -n 's/.* dev \([^ ]*\).*/\1/p')
[[ -n $nic ]] || fail 'the guest has no way to the host'
modprobe -a rdma_ucm ib_uverbs
rdma_device siw "$nic" siw1

# 10.0.2.2 is the host's loopback.
server=10.0.2.2 exported=/export
mount_options=vers=3,proto=rdma,port=$rdma_port,mountproto=tcp,mountport=$tcp_port,nolock
mkdir mounted
copy_both_ways mount_server mounted
