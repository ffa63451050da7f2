# SPDX-License-Identifier: Apache-2.0
# What a mount can say: sizes from 4 KiB to 1 MiB with odd ranges, ten groups, nconnect, soft and hard.
#   options SERVER LINK [vers=4.1]     as `serve` of lib.sh takes them; a server in user space
# lab: limit=600
. "$LAB_LIB"
files=$LAB_ROOT/tests/lab/guest/files.py
serve "$1" "$2"
daemon=$!
[[ ${3:-} != vers=4* ]] || version_4 "${3#vers=}"

for size in 4096 16384 65536 1048576; do
    mount_server mounted "rsize=$size,wsize=$size"
    said=$(findmnt -no OPTIONS mounted)
    [[ ,$said, == *,rsize=$size,wsize=$size,* ]] || fail "asked for $size, the kernel took $said"
    timed "odd ranges, $size" python3 "$files" ranges "$PWD/mounted/ranges" 2048 $((LAB_STORM * 2))
    timed "odd ranges, $size, direct" python3 "$files" ranges "$PWD/mounted/ranges" 2048 $((LAB_STORM * 2)) direct
    unmount mounted
done

# Ten groups of AUTH_SYS: the last one lets in, and none but these.
mount_server mounted
as_user() { setpriv --reuid 2000 --regid 2000 --groups 2001,2002,2003,2004,2005,2006,2007,2008,2009,2010 -- "$@"; }
for group in 2010 2011; do
    echo secret >"mounted/$group"
    chown "0:$group" "mounted/$group"
    chmod 0660 "mounted/$group"
done
[[ $(as_user cat mounted/2010) == secret ]] || fail 'the tenth group may not read'
as_user tee -a mounted/2010 <<<more >/dev/null
if as_user cat mounted/2011 2>/dev/null; then fail 'a group that the caller is not in let it read'; fi
mkdir -m 2770 mounted/shared
chown 0:2005 mounted/shared
chmod 2770 mounted/shared
as_user touch mounted/shared/new
[[ $(stat -c %u:%g mounted/shared/new) == 2000:2005 ]] || fail "made as $(stat -c %u:%g mounted/shared/new), not 2000:2005"
unmount mounted

# connections: those that clients have to verbenad for NFS; a device's are no sockets.
connections() {
    if [[ $server_kind == rdma ]]; then
        curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n 's/^verbena_connections{transport="rdma"} //p'
    else
        ss -Htn state established "( sport = :$port )" | wc -l
    fi
}
server_kind=$1
port=$(sed -n 's/.*\<port=\([0-9]*\).*/\1/p' <<<",${mount_options//mountport/}")
mount_server mounted nconnect=4
timed 'four connections' python3 "$files" processes "$PWD/mounted" 4 5
count=$(connections)
# Linux makes one connection to a server of version 4 by RDMA, whatever nconnect says (nfs4_set_client()).
several=4
[[ ${3:-} != vers=4* || $2 == lo ]] || several=1
[[ $count == "$several" ]] || fail "nconnect=4 made $count connections"
umount mounted

# A server that says nothing: soft fails, hard goes on when it speaks again. How long a kernel of version 4 goes on with OPEN and CLOSE of a soft mount is its
# own affair (over 100 s on 6.1).
if [[ ${3:-} != vers=4* ]]; then
    mount_server mounted soft,timeo=20,retrans=1
    echo here >mounted/file
    kill -STOP "$daemon"
    begun=$SECONDS
    if timeout 100 dd if=/dev/zero of=mounted/file bs=4k count=1 conv=fsync 2>/dev/null; then
        fail 'a write to a silent server succeeded'
    fi
    ((SECONDS - begun < 90)) || fail "soft gave up after $((SECONDS - begun)) s"
    kill -CONT "$daemon"
    umount mounted
fi
mount_server mounted hard,timeo=20,retrans=1
kill -STOP "$daemon"
dd if="$LAB_DATA/large" of=mounted/file bs=1M count=4 conv=fsync status=none &
writer=$!
sleep 8
state=$(ps -o stat= -p "$writer" || echo gone)
[[ $state == D* ]] || fail "a hard mount does not wait for its server: who writes is $state"
kill -CONT "$daemon"
timed 'the write goes on' wait "$writer"
cmp -n $((4 << 20)) "$LAB_DATA/large" exported/file
umount mounted
