# SPDX-License-Identifier: Apache-2.0
# Two NFSv4 clients of a stock kernel on one tree, of which one speaks 4.2 and the other one 4.1, and for some of it a third one of version 3:
# locks and flock among them, SQLite, git, and delegations that others recall. On a disk, which has delegations to read, and in memory, which has both kinds.
#   nfs4-clients SERVER LINK     as `serve` of lib.sh takes them: nfs4-clients tcp lo
# lab: limit=900
. "$LAB_LIB"
sqlite=$LAB_ROOT/tests/lab/guest/sqlite.py
serve "$1" "$2" --export ':/memory,backend=memfs,root_squash=no,clients=*'
daemon=$!
version_3=$mount_options
# Linux is one client for each minor version: it says another name (co_ownerid), and shares no cache.
mount_options=${mount_options%%,vers=3*},actimeo=1
mkdir first second
for place in "first 4.2" "second 4.1"; do
    mount -t nfs -o "$mount_options,vers=${place#* }" "$server:/" "${place% *}"
    [[ ,$(findmnt -no OPTIONS "${place% *}"), == *,vers="${place#* }",* ]] || fail "mounted as $(findmnt -no OPTIONS "${place% *}")"
    # The exports below are mounted when they are first looked at.
    ls "${place% *}"/{export,memory} >/dev/null
done
metric() {
    local value
    value=$(curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n "s/^verbena_nfs4_$1 //p")
    echo "${value%.*}"
}
[[ $(metric 'clients{state="active"}') == 2 ]] || fail "the server knows $(metric 'clients{state="active"}') clients"
# What one client has cached of a folder may be a second old at the other one.
settled() { sleep 1.5; }

# locks PLACE: what one client locks the other one can't, for as long and as far as it is locked.
locks() {
    echo text >"first/$1/locked"
    exec 9<>"first/$1/locked"
    flock -x 9
    ! flock -n "second/$1/locked" true || fail "$1: both clients have flock"
    exec 9>&-
    flock -n "second/$1/locked" true || fail "$1: flock is not given back"
    python3 - "first/$1/locked" "second/$1/locked" <<'PYTHON' || fail "$1: locks of ranges"
import fcntl, os, subprocess, sys
mine, theirs = sys.argv[1:]
ask = """import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(file, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))"""

def gets(how, length, start):
    return subprocess.run([sys.executable, "-c", ask, theirs, str(how | fcntl.LOCK_NB), str(length), str(start)],
                          stderr=subprocess.DEVNULL, timeout=60).returncode == 0

def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, not {expected}")

file = os.open(mine, os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX, 100, 1000)
expect("the same range", gets(fcntl.LOCK_EX, 100, 1000), False)
expect("to read it", gets(fcntl.LOCK_SH, 1, 1099), False)
expect("what is beside it", gets(fcntl.LOCK_EX, 1000, 0) and gets(fcntl.LOCK_EX, 0, 1100), True)
fcntl.lockf(file, fcntl.LOCK_SH, 100, 1000)
expect("to read what is read", gets(fcntl.LOCK_SH, 100, 1000), True)
expect("to write what is read", gets(fcntl.LOCK_EX, 100, 1000), False)
fcntl.lockf(file, fcntl.LOCK_UN, 50, 1000)
expect("a half that was given back", gets(fcntl.LOCK_EX, 50, 1000), True)
expect("the other half", gets(fcntl.LOCK_EX, 50, 1050), False)
# Who waits gets it.
waits = subprocess.Popen([sys.executable, "-c", ask, theirs, str(fcntl.LOCK_EX), "100", "1000"])
try:
    waits.wait(2)
    sys.exit("it did not wait")
except subprocess.TimeoutExpired:
    os.close(file)
expect("who waited", waits.wait(120), 0)
PYTHON
}

# databases PLACE: several processes count in one file; by its locks from both clients, with a WAL from one, as SQLite wants it.
databases() {
    local processes=() each
    python3 "$sqlite" make "first/$1/journal.db" delete
    for each in first second first second; do
        python3 "$sqlite" count "$each/$1/journal.db" 5 &
        processes+=($!)
    done
    for each in "${processes[@]}"; do wait "$each" || fail "$1: a process that counts failed"; done
    for each in first second; do python3 "$sqlite" is "$each/$1/journal.db" 20 || fail "$1: $each sees another sum"; done
    processes=()
    python3 "$sqlite" make "first/$1/wal.db" wal
    for each in 1 2 3; do
        python3 "$sqlite" count "first/$1/wal.db" 8 &
        processes+=($!)
    done
    for each in "${processes[@]}"; do wait "$each" || fail "$1: a process that counts in a WAL failed"; done
    python3 "$sqlite" is "first/$1/wal.db" 24 || fail "$1: a WAL has another sum"
    settled
    # The last one has written all of the WAL into the file.
    python3 "$sqlite" is "second/$1/wal.db" 24 || fail "$1: the other client sees another sum"
}

# repository: what one client commits the other one has, and the other way round.
repository() {
    local number
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=lab
    mkdir first/export/repository
    for ((number = 0; number < LAB_REPOSITORY; number++)); do cp -r "$LAB_DATA/tree/folder $number" first/export/repository/; done
    git -C first/export/repository init -q -b main
    git -C first/export/repository add -A
    git -C first/export/repository commit -q -m first
    settled
    [[ -z $(git -C second/export/repository status --porcelain) ]] || fail 'the other client sees changes that nobody made'
    git -C second/export/repository fsck --full --strict
    echo more >second/export/repository/more
    git -C second/export/repository add more
    git -C second/export/repository commit -q -m second
    settled
    [[ $(git -C first/export/repository log --format=%s | xargs) == 'second first' ]] || fail 'the first client does not see the second commit'
    git -C first/export/repository gc -q
    git -C first/export/repository fsck --full --strict
}

# write_to FILE TEXT: it is on the server when this returns.
write_to() { python3 -c 'import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
os.write(file, sys.argv[2].encode())
os.fsync(file)' "$@"; }
asked() {
    local name
    for name in OPEN READ CLOSE; do metric "operations_total{operation=\"$name\",result=\"ok\"}"; done | xargs
}
recalls() { metric 'callbacks_total{operation="CB_RECALL",result="ok"}'; }

# delegations: whoever has one is asked for it by the other client and by one of version 3, and sees what they wrote.
delegations() {
    local before number
    mkdir third
    mount -t nfs -o "$version_3,actimeo=1" "$server:/memory" third
    # Version 3 makes the files, as a file that was recalled has no delegation for a while.
    write_to third/shared one
    write_to third/written nobody
    [[ $(<second/memory/shared) == one ]] || fail "the reader has $(<second/memory/shared)"
    # An open that cuts a file brings none.
    python3 -c 'import os
file = os.open("first/memory/written", os.O_RDWR)
os.pwrite(file, b"mine..", 0)
os.fsync(file)'
    for number in read write; do
        [[ $(metric "delegations{type=\"$number\"}") -ge 1 ]] || fail "there is no $number delegation"
    done
    # A file that is delegated is opened, read and closed without the server.
    settled
    before=$(asked)
    for ((number = 0; number < 5; number++)); do
        [[ $(<second/memory/shared) == one ]] || fail "the reader has $(<second/memory/shared)"
    done
    [[ $(asked) == "$before" ]] || fail "OPEN, READ, CLOSE: $before, and $(asked) after a delegated file was read"
    before=$(recalls)
    write_to first/memory/shared two
    [[ $(<second/memory/shared) == two ]] || fail "the reader has $(<second/memory/shared) after the other client wrote"
    [[ $(recalls) -gt $before ]] || fail 'the other client recalled nothing'
    before=$(recalls)
    [[ $(<third/written) == mine.. ]] || fail 'version 3 does not see what a client with a delegation wrote'
    [[ $(recalls) -gt $before ]] || fail 'version 3 recalled nothing'
    write_to third/written theirs
    [[ $(<first/memory/written) == theirs ]] || fail "the writer has $(<first/memory/written) after version 3 wrote"
    mv third/written third/renamed
    [[ $(<second/memory/renamed) == theirs && ! -e third/written ]] || fail 'a renamed file'
    [[ $(metric revocations_total) == 0 ]] || fail "delegations were revoked: $(metric revocations_total)"
    umount third
}

cp "$LAB_DATA/large" first/export/large
timed 'a large file of the other client' sha256sum second/export/large >sum
grep -qF "$(<"$LAB_DATA.sha256")" sum || fail 'the other client sees another checksum'
for place in export memory; do
    timed "locks, $place" locks "$place"
    timed "databases, $place" databases "$place"
done
timed 'git' repository
timed 'delegations' delegations
umount first second
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
