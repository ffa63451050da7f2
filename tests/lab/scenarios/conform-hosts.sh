# SPDX-License-Identifier: Apache-2.0
# `verbena conform` between two hosts, as their user runs it: here the end that checks and writes the report, in the other
# guest (conform-hosts.peer.sh) the one that listens, and at first is not to be found.
#   conform-hosts rxe|siw
# lab: limit=900
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/conform.sh"
conform_device "$1"

# The kernel has given up asking for the other end's address.
given_up() {
    awk 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "res_failed") at = i } NR > 1 && $at !~ /^0*$/ { n = 1 } END { exit !n }' \
        /proc/net/stat/arp_cache
}

told listening 120
until_true 60 given_up && tell given-up &
reports report "rdma://$LAB_PEER:$rdma_port"
conforms rdma rdma "$1"
wait $! || fail 'the other end was found at once'
! grep -F -e "$LAB_SELF" -e "$LAB_PEER" "$LAB_OUT/report.json" || fail 'the report, which is there to be shared, has an address'
tell checked
