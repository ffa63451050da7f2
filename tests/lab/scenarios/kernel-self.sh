# SPDX-License-Identifier: Apache-2.0
# The kernel against itself: its NFSv3/RDMA client on its own server, over siw or rxe. It shows that the lab
# works, and what a good run looks like, without any part of verbena.
#   kernel-self [siw|rxe]
# lab: limit=300
. "$LAB_LIB"
# Nothing here uses these yet: that those built for this kernel load, and go again.
modprobe -a rnbd_client rnbd_server
modprobe -r -a rnbd_client rnbd_server rtrs_client rtrs_server
serve knfsd "${1:-siw}"
copy_both_ways mount_server mounted
