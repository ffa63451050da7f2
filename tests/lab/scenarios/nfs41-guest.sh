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

# A file that is open, locked and mapped stays, whatever another client does to its name: it is read and written until it
# is closed, and nothing of it is left then.
kept=kept_open.py
cat >"$kept" <<'PYTHON'
import fcntl, mmap, os, sys

# By both ways nothing is cached: the bytes come from the server.
def look(fd, mapped, expected):
    os.fsync(fd)
    for read in lambda: mapped[:8], lambda: os.pread(fd, 100, 0):
        mapped.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        found = read()
        if found != expected:
            sys.exit(f"{sys.argv[1:]}: {found}, not {expected}")

mine, theirs = sys.argv[1:]
for over in False, True:
    fd = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, b"old text")
    fcntl.lockf(fd, fcntl.LOCK_EX, 8)
    mapped = mmap.mmap(fd, 8, mmap.MAP_SHARED, mmap.PROT_READ)
    look(fd, mapped, b"old text")
    if over:
        with open(theirs + ".new", "w") as new:
            new.write("another file")
        os.rename(theirs + ".new", theirs)
    else:
        os.unlink(theirs)
    look(fd, mapped, b"old text")
    os.pwrite(fd, b"new", 0)
    look(fd, mapped, b"new text")
    fcntl.lockf(fd, fcntl.LOCK_UN, 8)
    mapped.close()
    os.close(fd)
os.unlink(theirs)
PYTHON
for place in memory export; do
    mount -t nfs -o "$version_3" "$server:/$place" other
    python3 "$kept" "root/$place/open" other/open || fail "$place: an open file went with its name"
    umount other
done
python3 "$kept" root/export/open "$PWD/exported/open" || fail 'an open file went with its name on the server'
# Linux closes later than the program does.
opens() { [[ $(metric opens) =~ ^0(\.0*)?$ ]]; }
until_true 30 opens || fail "opens that nobody closes: $(metric opens)"

# The server says what a directory was before each change of it, so that the client keeps its rights in it: it does not ask for them with each name.
asked() { awk '$1 == "ACCESS:" { calls += $2 } END { print calls + 0 }' /proc/self/mountstats; }
for place in memory export; do
    mkdir "root/$place/many"
    before=$(asked)
    for name in {1..200}; do
        : >"root/$place/many/$name"
    done
    made=$(asked)
    rm -r "root/$place/many"
    echo "$place: $((made - before)) calls of ACCESS for 200 files that were made, $(($(asked) - made)) for as many that were removed"
    [[ $(($(asked) - before)) -le 40 ]] || fail "$place: the client asks for its rights with each name"
done

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
# Gone or replaced on the server, such a file is given back all the same, and nothing is revoked.
held() { metric 'delegations{type="read"}'; }
given_back() { [[ $(held) == "$before" ]]; }
for how in 'rm exported/gone' 'mv exported/better exported/gone'; do
    printf better >exported/better
    printf ours >exported/gone
    before=$(held)
    exec 8<root/export/gone
    [[ $(cat <&8) == ours ]] || fail 'a file of the folder holds something else'
    ! given_back || fail "no read delegation of a file of the folder: $(metric 'lease_refusals_total{reason=".*"}' | xargs)"
    $how
    until_true 30 given_back || fail "$how: $(held) delegations, not $before"
    exec 8<&-
done
revoked=$(metric revocations_total)
[[ ${revoked%.*} == 0 ]] || fail "delegations of files without a name that were revoked: $revoked"
# A lock of the client is one for local processes too, and theirs are for the client. Who waits for it gets it.
cat >locks.py <<'PYTHON'
import fcntl, os, sys, threading

def is_free(fd, first):
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, first)
    except BlockingIOError:
        return False
    fcntl.lockf(fd, fcntl.LOCK_UN, 10, first)
    return True

client, local = (os.open(path, os.O_RDWR | os.O_CREAT, 0o666) for path in sys.argv[1:])
for who, one, other in ("client", client, local), ("local process", local, client):
    fcntl.lockf(one, fcntl.LOCK_EX, 10, 100)
    if is_free(other, 105) or not is_free(other, 110):
        sys.exit(f"a {who} locks 10 bytes: the other one finds them free, or those behind them locked")
    waits = threading.Thread(target=fcntl.lockf, args=(other, fcntl.LOCK_EX, 10, 100), daemon=True)
    waits.start()
    fcntl.lockf(one, fcntl.LOCK_UN, 10, 100)
    waits.join(60)
    if waits.is_alive():
        sys.exit(f"a {who} has unlocked what the other one waits for still")
    fcntl.lockf(other, fcntl.LOCK_UN, 10, 100)
PYTHON
python3 locks.py root/export/locked exported/locked || fail 'locks of the client and of local processes'
umount root
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
