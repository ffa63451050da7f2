# SPDX-License-Identifier: Apache-2.0
# A device that is removed goes although a shared receive queue stands on it, and its user gets one on the next.
#   shared-queue rxe|siw
. "$LAB_LIB"
program=$LAB_BUILD/tests/lab/shared_queue/shared_queue
needs "$program"
links "$1"
start user "$program" "${1}0"
user=$!
said() { grep -qx "$1" "$LAB_OUT/user.log"; }
until_true 60 said ready || fail "no shared receive queue: $(tail -n 1 "$LAB_OUT/user.log")"
# The kernel waits here until all who have the device open have let go of it.
timed 'the device goes' timeout 60 rdma link delete "${1}0" || fail 'the device does not go'
until_true 20 said gone || fail "its user knows nothing: $(tail -n 1 "$LAB_OUT/user.log")"
rdma_device "$1" "lab-$1"
wait "$user" || fail "its user: $(tail -n 1 "$LAB_OUT/user.log")"
said again || fail 'no queue on the device that came back'
