# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3 client over TCP, on verbenad in the same guest.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
mkdir exported mounted state
mount -t tmpfs -o mode=755 exported exported
start verbenad "$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export,root_squash=no" \
    --listen tcp://127.0.0.1:2049 --metrics 127.0.0.1:9464 --state "$PWD/state" --rpcbind no
until_true 20 listens 127.0.0.1 2049 || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"

mount_it() { mount -t nfs -o vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,nolock 127.0.0.1:/export mounted; }
copy_both_ways mount_it mounted
