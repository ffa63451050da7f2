# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv4.1 client on verbenad in the same guest, over TCP, or with the argument siw or rxe over RDMA: a tree both ways,
# the pseudo file system, locks, links.
# lab: limit=300
. "$LAB_LIB"
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
[[ $(ls root | xargs) == 'export memory' ]] || fail "the root holds: $(ls root | xargs)"
echo text >root/export/file
[[ $(<"$PWD/exported/file") == text ]] || fail 'a file that was written through the root is another one'
# A lock is held against local users of the mount, and given back.
(
    flock -n 9 || exit 1
    flock -n root/export/file true && exit 2
    exit 0
) 9<>root/export/file || fail "flock: $?"
flock -n root/export/file true || fail 'a lock was not given back'
(set -o noclobber && echo other >root/export/file) 2>/dev/null && fail 'an exclusive creation took a file that was there'
mv root/export/file root/export/moved
ln root/export/moved root/export/linked
ln -s moved root/export/symbolic
[[ $(<root/export/symbolic) == text && $(stat -c %h root/export/linked) == 2 ]] || fail 'links lead elsewhere'
truncate -s 100000 root/export/moved
[[ $(stat -c %s "$PWD/exported/moved") == 100000 ]] || fail 'truncate'
rm root/export/{moved,linked,symbolic}

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
umount root
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
