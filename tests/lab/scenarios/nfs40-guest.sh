# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv4.0 client on verbenad in the same guest, over TCP, or with the argument siw or rxe over RDMA: a tree both ways, the pseudo file system,
# locks, links, delegations that are recalled over a connection of the server's, and a server that is killed under an open file and a lock.
# lab: limit=300
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/nfs4.sh"
serves=(--versions 3 --versions 4.0 --lease 10 --export ':/memory,backend=memfs,root_squash=no,clients=*')
case ${1:-lo} in
lo) kind=tcp && serve tcp lo "${serves[@]}" ;;
siw) kind=iwarp && serve iwarp siw "${serves[@]}" ;;
rxe) kind=rdma && serve rdma rxe "${serves[@]}" ;;
esac
daemon=$!
version_3=$mount_options
# Version 4 has no MOUNT, and its locks are the server's.
mount_options=${mount_options%%,vers=3*},vers=4.0
mount_40() {
    mount_server "$1"
    [[ ,$(findmnt -no OPTIONS "$1"), == *,vers=4.0,* ]] || fail "mounted as $(findmnt -no OPTIONS "$1")"
}
copy_both_ways mount_40 mounted
mkdir root
mount -t nfs -o "$mount_options" "$server:/" root
work_in_root

# Files in memory are delegated: a reader keeps what it has, and is called when somebody changes that by version 3.
metric() { curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n "s/^verbena_nfs4_$1 //p"; }
[[ $(metric 'callback_paths{state="up"}') == 1 ]] || fail "the client is not called: $(metric 'callback_.*' | xargs)"
mkdir other
echo mine >root/memory/shared
[[ $(<root/memory/shared) == mine ]] || fail 'a file in memory holds something else'
reads=$(metric 'delegations{type="read"}')
[[ ${reads%.*} -ge 1 ]] || fail "no read delegation: ${reads:-nothing}"
mount -t nfs -o "$version_3" "$server:/memory" other
echo theirs >other/shared
[[ $(<root/memory/shared) == theirs ]] || fail "the holder of a delegation still reads: $(<root/memory/shared)"
recalled=$(metric 'callbacks_total{operation="CB_RECALL",result="ok"}')
[[ ${recalled%.*} -ge 1 && $(metric revocations_total) == 0 ]] || fail "recalls that were answered: ${recalled:-nothing}"
umount other

# What is open and locked is taken back from a server that starts again.
exec 8>>root/export/kept
flock -n 8 || fail 'no lock'
echo before >&8
sync root/export/kept
kill -KILL "$daemon"
{ wait "$daemon" || true; } 2>/dev/null
verbenad "$kind" "${serves[@]}" 8>&- # or it had the file open that it serves
daemon=$!
echo after >&8
sync root/export/kept
[[ $(<"$PWD/exported/kept") == $'before\nafter' ]] || fail "the file that was open holds: $(<"$PWD/exported/kept")"
reclaims=$(curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n 's/^verbena_nfs4_reclaims_total{outcome="granted"} //p')
[[ ${reclaims%.*} -ge 2 ]] || fail "an open and a lock were not taken back: ${reclaims:-nothing}"
exec 8>&-
rm root/export/kept
umount root
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
