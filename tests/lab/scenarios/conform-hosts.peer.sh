# SPDX-License-Identifier: Apache-2.0
# The end of conform-hosts that listens, for as long as the other has checks.
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/conform.sh"
conform_device "$1"
start listener "$verbena" conform --listen "rdma://$LAB_SELF:$rdma_port"
listener=$!
until_true 60 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
# Until the other end's kernel no longer asks for it, this end is not to be found.
ip link set wire arp off
tell listening
told given-up 120
ip link set wire arp on
told checked 1100
kill "$listener" || fail "it has ended: $(tail -n 2 "$LAB_OUT/listener.log")"
