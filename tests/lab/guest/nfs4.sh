# SPDX-License-Identifier: Apache-2.0
# What scenarios of NFS version 4 have in common. Sourced, behind lib.sh.

# work_in_root: in ./root, where the server's root is mounted, whose only directories are export (./exported) and memory: the pseudo file system leads to
# the export, and names, locks and links are as anywhere.
work_in_root() {
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
}
