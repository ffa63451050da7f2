# SPDX-License-Identifier: Apache-2.0
# The client of roce-wire: works on the servers that the first guest names.
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/wireshark.sh"
needs "$verbena"
modprobe -a rdma_ucm ib_uverbs
rdma_device rxe wire
mkdir mounted
# It and the call about it are longer than a Send of 4,096 octets.
target=$(printf 'component/%.0s' {1..405})

long_link() {
    mount_server mounted
    ln -s "$target" mounted/link
    umount mounted
    mount_server mounted
    [[ $(readlink mounted/link) == "$target" ]] || fail 'the long link has another target'
    rm mounted/link
    umount mounted
}

# works NAME COMMAND...: runs it when the first guest says where.
works() {
    local name=$1
    shift
    told "$name" 240
    . "$LAB_MEETING/$name.mount"
    timed "$name" "$@"
    tell "$name-done"
}
kernel_all() {
    kernel_work
    long_link
}
mkdir few
for number in 1 2 3; do head -c $((number * 3001)) large >"few/$number"; done
client_all() {
    # A listing that fits in one packet: of a longer one, which the kernel's server writes into the Reply chunk's only segment
    # piece by piece, Wireshark 4.0 loses a piece (docs/howto/wireshark.md).
    client_work rdma "$target" few
}
# On verbenad, which answers MOUNT on the same connection.
ours_all() {
    client_all
    "$verbena" mounts "nfs+rdma://$server:$rdma_port$exported" >mounts.out
}
# What no NFS client sends: calls in Position-Zero Read chunks.
conform() { "$verbena" conform --only Position-Zero "rdma://$server:$rdma_port" >conform.out; }

works verbenad kernel_all
works ours ours_all
works kernel kernel_all
works client client_all
works conform conform
told decoded 400
