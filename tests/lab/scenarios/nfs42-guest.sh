# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv4.2 client on verbenad in the same guest, over TCP, or with the argument siw or rxe over RDMA: holes, room, copies within the server, clones, extended
# attributes and the umask, on a disk and in memory.
# lab: limit=300
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/disk.sh"
export_disk 300
serves=(--export ':/memory,backend=memfs,root_squash=no,clients=*')
case ${1:-lo} in
lo) serve tcp lo "${serves[@]}" ;;
siw) serve iwarp siw "${serves[@]}" ;;
rxe) serve rdma rxe "${serves[@]}" ;;
esac
daemon=$!
mount_options=${mount_options%%,vers=3*}
mkdir root
# Without a version asked for it is the highest.
mount -t nfs -o "$mount_options" "$server:/" root
[[ ,$(findmnt -no OPTIONS root), == *,vers=4.2,* ]] || fail "mounted as $(findmnt -no OPTIONS root)"
operations() { # NAME: how many were answered with OK
    local value
    value=$(curl -sS --fail --max-time 60 "$server:9464/metrics" |
        sed -n "s/^verbena_nfs4_operations_total{operation=\"$1\",result=\"ok\"} //p")
    echo "${value%.*}"
}
for place in export memory; do
    cd "root/$place"
    python3 - "$place" <<'PYTHON' || fail "on $place"
import ctypes, errno, fcntl, os, struct, subprocess, sys

MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)

def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r}, not {expected!r}")

fd = os.open("sparse", os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b"x" * MIB, MIB)
os.pwrite(fd, b"x", 4 * MIB)
os.fsync(fd)
expect("data", os.lseek(fd, 0, os.SEEK_DATA), MIB)
expect("hole", os.lseek(fd, MIB, os.SEEK_HOLE), 2 * MIB)
expect("the hole at the end", os.lseek(fd, 4 * MIB, os.SEEK_HOLE), 4 * MIB + 1)
try:
    os.lseek(fd, 4 * MIB + 1, os.SEEK_DATA)
    sys.exit("data behind the end")
except OSError as e:
    expect("behind the end", e.errno, errno.ENXIO)
before = os.fstat(fd).st_blocks
fallocate(fd, 3, MIB, MIB)  # a hole, the size stays
expect("a hole reads", os.pread(fd, 4, MIB + 100), bytes(4))
if os.fstat(fd).st_blocks >= before:
    sys.exit("a hole takes room")
fallocate(fd, 0, 8 * MIB, MIB)
expect("size", os.fstat(fd).st_size, 9 * MIB)

# More than one COPY does.
data = os.urandom(MIB)
source = os.open("source", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(80):
    os.pwrite(source, data[i:] + data[:i], i * MIB)
os.fsync(source)
target = os.open("target", os.O_RDWR | os.O_CREAT, 0o644)
done = 0
while done < 80 * MIB:
    n = os.copy_file_range(source, target, 80 * MIB - done, done, done)
    if n == 0:
        sys.exit(f"a copy ends at {done}")
    done += n
os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
for i in range(80):
    expect(f"MiB {i} of a copy", os.pread(target, MIB, i * MIB), data[i:] + data[:i])

clone = os.open("clone", os.O_RDWR | os.O_CREAT, 0o644)
try:
    fcntl.ioctl(clone, 0x40049409, source)  # FICLONE
    os.pwrite(source, b"changed", 0)
    os.fsync(source)
    expect("a clone", os.pread(clone, MIB, 0), data)
    expect("a clone's size", os.fstat(clone).st_size, 80 * MIB)
except OSError as e:
    if sys.argv[1] == "memory" or e.errno != errno.EOPNOTSUPP:
        raise

# By cp, which asks for a clone and copies where there is none.
with open("small", "wb") as small:
    small.write(4 * data)
subprocess.run(["cp", "--reflink=always" if sys.argv[1] == "memory" else "--reflink=auto", "small", "copied"], check=True)
subprocess.run(["cmp", "small", "copied"], check=True)
subprocess.run(["cp", "--sparse=auto", "sparse", "sparse.copied"], check=True)
subprocess.run(["cmp", "sparse", "sparse.copied"], check=True)

def user_xattrs(path):  # beside them is system.nfs4_acl
    return sorted(name for name in os.listxattr(path) if name.startswith("user."))

for path in ("source", "."):
    os.setxattr(path, "user.one", b"1")
    os.setxattr(path, "user.two", b"\0" * 1000, os.XATTR_CREATE)
    expect("xattrs", user_xattrs(path), ["user.one", "user.two"])
    expect("a value", os.getxattr(path, "user.one"), b"1")
    try:
        os.setxattr(path, "user.two", b"", os.XATTR_CREATE)
        sys.exit("it was there")
    except FileExistsError:
        pass
    os.removexattr(path, "user.two")
    expect("xattrs", user_xattrs(path), ["user.one"])
    try:
        os.getxattr(path, "user.two")
        sys.exit("it is gone")
    except OSError as e:
        expect("a missing one", e.errno, errno.ENODATA)

# ACLs by the wire's own form, so that no tool is needed: read and write for the owner, read for user 1234.
def ace(rights, who):
    return struct.pack(">IIII", 0, 0, rights, len(who)) + who + bytes(-len(who) % 4)

acl = struct.pack(">I", 2) + ace(0x160187, b"OWNER@") + ace(0x120081, b"1234")
os.setxattr("small", "system.nfs4_acl", acl)
kept = os.getxattr("small", "system.nfs4_acl")
if sys.argv[1] == "memory":
    expect("an ACL", kept, acl)
if b"1234" not in kept:
    sys.exit(f"an ACL without its user: {kept!r}")
# The group's bits are the mask of a POSIX ACL.
expect("a mode with an ACL", os.stat("small").st_mode & 0o7777, 0o600 if sys.argv[1] == "memory" else 0o640)

os.umask(0o027)
os.close(os.open("masked", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
expect("a mode", os.stat("masked").st_mode & 0o7777, 0o640)
os.mkdir("masked.d", 0o777)
expect("a directory's mode", os.stat("masked.d").st_mode & 0o7777, 0o750)
PYTHON
    cd ../..
done
for name in ALLOCATE COPY DEALLOCATE SEEK CLONE GETXATTR SETXATTR LISTXATTRS REMOVEXATTR; do
    [[ $(operations "$name") -ge 1 ]] || fail "$name was not asked for, or not answered: $(operations "$name")"
done
umount root
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
