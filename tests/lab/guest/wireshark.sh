# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh that compare what Wireshark finds odd with what it finds odd among kernels.
. "$LAB_ROOT/tests/lab/guest/disk.sh"
verbena=$LAB_BUILD/services/verbena
head -c 300001 "$LAB_DATA/large" >large

# kernel_work: every procedure that the kernel's client uses, small and large data, long listings, through ./mounted,
# which mount_server mounts.
kernel_work() {
    local at=$PWD/mounted number
    mount_server "$at"
    mkdir "$at/folder"
    cp large "$at/folder/"
    echo small >"$at/folder/small"
    ln -s folder/small "$at/link"
    ln "$at/folder/small" "$at/second"
    mkfifo "$at/pipe"
    mv "$at/second" "$at/folder/third"
    chmod 600 "$at/folder/third"
    local writers=()
    for number in {1..8}; do
        head -c 65537 large >"$at/folder/of eight $number" &
        writers+=("$!")
    done
    for number in "${writers[@]}"; do wait "$number"; done
    for number in {1..40}; do : >"$at/folder/a file with a name that is long enough to fill a listing $number"; done
    umount "$at"
    mount_server "$at" nordirplus # nothing is cached
    ls "$at/folder" >listed
    umount "$at"
    mount_server "$at"
    ls -l "$at/folder" >listed
    cmp "$at/folder/large" large
    [[ $(cat "$at/link") == small ]] || fail "through the link: $(cat "$at/link")"
    df "$at" >df.out
    rm -r "$at/folder" "$at/link" "$at/pipe"
    umount "$at"
}

# client_work SCHEME TARGET FOLDER: our client's in version 3, on what `serve knfsd` serves or the like, with a link to TARGET and a copy
# of FOLDER.
client_work() {
    local url=nfs+$1://$server:$rdma_port$exported
    rm -rf links back
    mkdir links
    ln -s "$2" links/link
    # One call at a time: of Read Responses to several calls in one TCP segment Wireshark 4.0 puts the pieces together wrongly.
    "$verbena" -q cp -r -j 1 -d 1 "$3" "$url/tree?vers=3"
    "$verbena" -q cp -j 1 -d 1 large "$url/large?vers=3"
    "$verbena" -q cat "$url/large?vers=3" | cmp - large
    "$verbena" ls -l "$url/tree?vers=3" >listed
    "$verbena" -q cp -r links "$url/links?vers=3"
    "$verbena" -q cp -r "$url/links?vers=3" back
    [[ $(readlink back/link) == "$2" ]] || fail "the link came back as $(readlink back/link)"
    "$verbena" -q rm -r "$url/tree?vers=3" "$url/large?vers=3" "$url/links?vers=3"
}

# Mounted with these a file takes several WRITEs, which the kernel's client then does not ask to be FILE_SYNC.
several_writes=rsize=131072,wsize=131072

# every_procedure NAME [NUMBER...]: each of these, else each of NFS version 3, was called and answered, by Wireshark's
# statistics in the artefact NAME.txt.
every_procedure() {
    local name=$1 number
    shift
    (($#)) || set -- {0..21}
    for number in "$@"; do
        grep -Eq "^ +$number +[A-Z]+ +[1-9]" "$LAB_OUT/$name.txt" || fail "$name: no procedure $number is decoded"
    done
}

# odd NAME: what is odd by Wireshark's statistics in the artefact NAME.txt goes to NAME.odd, as lines `severity group
# protocol words`. What it says of TCP is left out: that is the same kernel's in all captures.
odd() {
    awk '/^(Errors|Warns|Notes|Chats) \(/ { severity = $1 }
        severity && /^ +[0-9]+ / && $3 != "TCP" { $1 = severity; print }' "$LAB_OUT/$1.txt" | sort -u >"$1.odd"
    cp "$1.odd" "$LAB_OUT/"
}

# nothing_new NAME...: nothing in NAME.odd that is not in kernel.odd.
nothing_new() {
    local name
    for name in "$@"; do
        comm -23 "$name.odd" kernel.odd >more
        [[ ! -s more ]] || fail "$name: not seen among kernels: $(head -n 3 more | xargs -d '\n')"
    done
    [[ -s kernel.odd ]] || fail 'Wireshark finds nothing odd among kernels: it is another one than the tests know'
    cat kernel.odd
}
