# SPDX-License-Identifier: Apache-2.0
# `verbena conform` between two hosts, as their user runs it: here the end that checks and writes the report, in the other
# guest (conform-hosts.peer.sh) the one that listens.
#   conform-hosts rxe|siw
# lab: limit=900
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/conform.sh"
conform_device "$1"

checked() {
    local name=$1
    shift
    local url=rdma://$LAB_PEER:$rdma_port
    reports "$name" "$url" "$@" || reports "$name" "$url" "$@"
}

told listening 120
conforms rdma rdma "$1"
! grep -F -e "$LAB_SELF" -e "$LAB_PEER" "$LAB_OUT/report.json" || fail 'the report, which is there to be shared, has an address'
tell checked
