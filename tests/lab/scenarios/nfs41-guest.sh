# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv4.1 client on verbenad in the same guest, over TCP, or with the argument siw or rxe over RDMA: a tree both ways,
# the pseudo file system, locks, links.
# lab: limit=300
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/nfs4.sh"
serves=(--export ':/memory,backend=memfs,root_squash=no,clients=*')
case ${1:-lo} in
lo) serve tcp lo "${serves[@]}" ;;
siw) serve iwarp siw "${serves[@]}" ;;
rxe) serve rdma rxe "${serves[@]}" ;;
esac
daemon=$!
version_3=$mount_options
version_4 4.1
mount_41() {
    mount_server "$1"
    [[ ,$(findmnt -no OPTIONS "$1"), == *,vers=4.1,* ]] || fail "mounted as $(findmnt -no OPTIONS "$1")"
}
copy_both_ways mount_41 mounted

# The pseudo file system leads to the export.
mkdir root
mount -t nfs -o "$mount_options" "$server:/" root
work_in_root

# Files in memory are delegated: a reader keeps what it has, and is called when somebody changes that by version 3.
metric() { curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n "s/^verbena_nfs4_$1 //p"; }
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

# Files of the host's folder are delegated under leases: a local process that writes one waits until the client has given it back.
before=$(metric 'delegations{type="read"}')
printf ours >exported/leased
[[ $(<root/export/leased) == ours ]] || fail 'a file of the folder holds something else'
reads=$(metric 'delegations{type="read"}')
[[ ${reads%.*} -gt ${before%.*} ]] || fail "no read delegation of a file of the folder: $(metric 'lease_refusals_total{reason=".*"}' | xargs)"
printf ' and more' >>exported/leased
[[ $(<root/export/leased) == 'ours and more' ]] || fail "the holder of a delegation still reads: $(<root/export/leased)"
recalled=$(metric local_recalls_total)
[[ ${recalled%.*} -ge 1 && $(metric revocations_total) == 0 ]] || fail "recalls for a local process: ${recalled:-nothing}"
umount root
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
