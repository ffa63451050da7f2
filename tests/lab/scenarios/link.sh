# SPDX-License-Identifier: Apache-2.0
# The link between a stock kernel's hard mount and verbenad, in a network of its own, goes down and comes up: work goes
# on and its data are whole.
#   link SERVER DEVICE     iwarp siw, rdma siw, or tcp lo, which here stands for no device
# lab: limit=400
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/traffic.sh"
# A folder of names that ends with the scenario, and the network with it.
mkdir -p /run/netns
mount -t tmpfs netns /run/netns
ip netns add lab
ip link add lab-near type veth peer name lab-far netns lab
ip address add 203.0.113.2/24 dev lab-near
ip netns exec lab ip address add 203.0.113.1/24 dev lab-far
ip netns exec lab ip link set lo up
ip netns exec lab ip link set lab-far up
ip link set lab-near up
if [[ $2 != lo ]]; then
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$2" lab-near
    [[ $1 != rdma ]] || ip netns exec lab rdma link add "${2}1" type "$2" netdev lab-far
fi

mkdir exported mounted
mount -t tmpfs -o mode=755 exported exported
server=203.0.113.1 exported=/export verbenad_in='ip netns exec lab'
mount_options=vers=3,mountproto=tcp,mountport=2049,nolock,proto=tcp,port=2049
[[ $1 == tcp ]] || mount_options=vers=3,mountproto=tcp,mountport=2049,nolock,proto=rdma,port=20049
verbenad "$1"
mount_server mounted hard,timeo=50,retrans=1

# Segments that were sent again, at both ends, tell that the link was missed. siw's are TCP's too.
sent_again() { { cat /proc/net/snmp && ip netns exec lab cat /proc/net/snmp; } | awk '$1 == "Tcp:" && $13 ~ /^[0-9]/ { n += $13 } END { print n }'; }
missed() { (($(sent_again) > before)); }
load_until_stop processes 2 "$LAB_STORM" &
load=$!
steady_load
steady=$!
# With the far end down the near one has no carrier. Down itself, with its siw device, it left the kernel's next connect
# waiting for ever in one of four runs, for a cause not known yet; so that is done over TCP only.
ends=(far near far)
[[ $2 == lo ]] || ends=(far far far)
for end in "${ends[@]}"; do
    { kill -0 "$load" && kill -0 "$steady"; } 2>/dev/null || fail 'the load failed'
    until_writes 60 || fail 'the load stands still'
    if [[ $end == far ]]; then in=(ip netns exec lab); else in=(); fi
    before=$(sent_again)
    "${in[@]}" ip link set "lab-$end" down
    sleep 4
    "${in[@]}" ip link set "lab-$end" up
    until_true 30 missed || fail 'nobody missed the link'
done
until_writes 60 || fail 'the load stands still'
touch stop
timed 'the load ends well' wait "$load"
timed 'the other load ends well' wait "$steady"
umount mounted
steady_load_is_whole exported/acknowledged
