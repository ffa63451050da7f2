# SPDX-License-Identifier: Apache-2.0
# The kernel against itself: its NFSv3/RDMA client on its own server, over siw or rxe. It shows that the lab
# works, and what a good run looks like, without any part of verbena.
#   kernel-self [siw|rxe]
# lab: limit=300
. "$LAB_LIB"
kind=${1:-siw}
links "$kind"
address=${kind}_address
mkdir exported mounted
mount -t tmpfs -o mode=755 exported exported
knfsd "$PWD/exported"

mount_it() {
    mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,nolock "${!address}:$PWD/exported" mounted
}
copy_both_ways mount_it mounted
