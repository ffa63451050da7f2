# SPDX-License-Identifier: Apache-2.0
# Shows that two guests reach each other by the wire, that it is captured, and that it can be cut and mended
# (wire.peer.sh).
# lab: limit=300
. "$LAB_LIB"
needs /usr/bin/tshark

answers() { busybox ping -q -c 3 -W 2 "$LAB_PEER" >ping.out; }

told there 90
answers || fail "no answer by the wire: $(cat ping.out)"

wire off
until_true 20 grep -qx 0 /sys/class/net/wire/carrier || fail 'the NIC has a carrier at a wire that is cut'
# The second guest's NIC knows nothing of it, and what it sends comes nowhere.
tell cut
told unheard 60
wire on
until_true 20 grep -qx 1 /sys/class/net/wire/carrier || fail 'the NIC got no carrier back'
until_true 20 answers || fail "no answer by a wire that is mended: $(cat ping.out)"
tell end

tshark -r "$LAB_MEETING/wire.pcap" -Y icmp -T fields -e ip.src -e icmp.type >captured
captured() { grep -cx "$1	$2" captured; }
[[ $(captured "$LAB_SELF" 8) -ge 6 && $(captured "$LAB_PEER" 0) -ge 6 ]] || fail "the capture has not all: $(xargs <captured)"
! captured "$LAB_PEER" 8 >sent || fail "the capture has $(<sent) requests that were sent into a wire that was cut"
