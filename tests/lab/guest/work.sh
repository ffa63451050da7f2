# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh: real work on a mounted folder. How much is in LAB_NAMES (names of a large
# folder), LAB_STORM (files of a storm), LAB_MIB (MiB of sequential data and of fio's), LAB_REPOSITORY (folders of the
# tree that git gets) and in $LAB_DATA.

# as_user COMMAND...: as an ordinary user: of root the server asks no rights, and it acts for it as itself.
as_user() { HOME=$PWD setpriv --reuid 2000 --regid 2000 --clear-groups "$@"; }

# linux_work: all kinds of it through ./mounted, which mount_server mounts. Between writing and reading it is mounted
# anew, so that nothing comes from the client's cache.
linux_work() {
    # Where the source is, others than root may not get.
    install -m 755 "$LAB_ROOT/tests/lab/guest/files.py" .
    local files=$PWD/files.py mine=$PWD/mounted/of-the-user
    copy_both_ways mount_server mounted
    mount_server mounted
    sequential mounted
    timed 'fio, mixed, cached' fio_verify mounted 0
    timed 'fio, mixed, direct' fio_verify mounted 1
    mkdir "$mine"
    chown 2000:2000 "$mine"
    timed "storm of $LAB_STORM files" as_user python3 "$files" storm "$mine/storm" "$LAB_STORM"
    timed "create $LAB_NAMES names" python3 "$files" names "$PWD/mounted/names" "$LAB_NAMES"
    remount
    timed 'list and remove them' python3 "$files" list "$PWD/mounted/names" "$LAB_NAMES"
    git_work "$mine/repository"
    timed '8 processes' as_user python3 "$files" processes "$mine" 4 $((LAB_STORM / 10))
    rmdir "$mine"
    [[ -z $(ls -A mounted) ]] || fail "files are left: $(ls -A mounted | head -n 3 | xargs -d '\n')"
    unmount mounted
}

remount() { unmount mounted && mount_server mounted; }

# sequential FOLDER: the large file in and out, its checksum made before the guest was booted.
sequential() {
    local sum
    timed "write $LAB_MIB MiB" dd if="$LAB_DATA/large" of="$1/large" bs=1M conv=fsync status=none
    remount
    sum=$(timed "read $LAB_MIB MiB" sha256sum "$1/large")
    grep -qF "$(<"$LAB_DATA.sha256")" <<<"$sum" || fail 'the large file has another checksum'
    rm "$1/large"
}

# fio_verify FOLDER DIRECT: 4 KiB to 1 MiB at random, each block with a checksum that fio looks at later.
fio_verify() {
    fio --name=mixed --directory="$1" --size="${LAB_MIB}M" --rw=randrw --bsrange=4k-1m --blockalign=4k --direct="$2" \
        --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1 --end_fsync=1 --unlink=1 \
        --randseed=7 --output="$LAB_OUT/fio-$2.txt"
}

# git_work FOLDER: the user's repository of the tree. git makes its objects with mode 0444, writes and renames them: a server
# knows nothing of the open() that gave the right to write, so it must let the owner write whatever the mode says.
git_work() {
    local folder=$1
    # The guest's clock does not matter, and no configuration of the host does.
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=lab
    local number
    as_user mkdir "$folder"
    for ((number = 0; number < LAB_REPOSITORY; number++)); do cp -r "$LAB_DATA/tree/folder $number" "$folder/"; done
    touch "$folder/empty"
    # The copy is root's: the data, too, may be where others don't get.
    chown -R 2000:2000 "$folder"
    as_user git -C "$folder" init -q -b main
    timed 'git add' as_user git -C "$folder" add -A
    timed 'git commit' as_user git -C "$folder" commit -q -m lab
    [[ $(find "$folder/.git/objects" -type f -perm 0444 -printf . | wc -c) -gt 20 ]] || fail 'git wrote no files of mode 0444'
    remount
    timed 'git status' git_is "$folder" ''
    as_user tee "$folder/empty" <<<changed >/dev/null
    timed 'git status' git_is "$folder" ' M empty'
    as_user git -C "$folder" checkout -q empty
    timed 'git clone' as_user git clone -q --no-local "$folder" "$folder.clone"
    timed 'git gc' as_user git -C "$folder" gc -q
    timed 'git fsck' as_user git -C "$folder" fsck --full --strict
    git_is "$folder.clone" ''
    timed 'remove the repositories' as_user rm -r "$folder" "$folder.clone"
}

git_is() {
    local said
    said=$(as_user git -C "$1" status --porcelain)
    [[ $said == "$2" ]] || fail "git status says \"$said\" and not \"$2\""
}
