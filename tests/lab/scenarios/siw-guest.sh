# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client over siw, on verbenad's iWARP stack in user space, in one guest.
# lab: limit=600
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/disk.sh"
export_disk 256 # a file system with a disk below it, as people export
serve iwarp siw --shards 1 --versions 3
daemon=$!
copy_both_ways mount_as_printed mounted

# What was copied went through chunks both ways, and no key was ever used that the kernel had taken back.
moved_by_chunks iwarp access_error

# Files written by the kernel, by our client over iWARP and by libnfs's tools over TCP: all three read the same in all.
verbena=$LAB_BUILD/services/verbena
needs "$verbena" /usr/bin/nfs-cp /usr/bin/nfs-cat
iwarp="nfs+iwarp://$server:20049$exported" tcp="nfs://$server$exported"
at='?version=3&nfsport=2049&mountport=2049'
names=(0-of-1 5-of-4095 7-of-4097 9-of-32767 11-of-65537)
sources=("${names[@]/#/$LAB_DATA/tree/folder 0/}")
writers=(by-kernel by-verbena by-libnfs)
mkdir -p expected read/verbena "${writers[@]/#/expected/}" "${writers[@]/#/read/libnfs/}"
for writer in "${writers[@]}"; do cp "${sources[@]}" "expected/$writer"; done

write_by_three() {
    local name
    mkdir "${writers[@]/#/mounted/}"
    cp "${sources[@]}" mounted/by-kernel
    "$verbena" -q cp "${sources[@]}" "$iwarp/by-verbena"
    for name in "${names[@]}"; do nfs-cp "$LAB_DATA/tree/folder 0/$name" "$tcp/by-libnfs/$name$at" >nfs-cp.out; done
}
read_by_verbena() { "$verbena" -q cp -r "${writers[@]/#/$iwarp/}" read/verbena; }
read_by_libnfs() {
    local file
    for file in $(cd expected && echo by-*/*); do nfs-cat "$tcp/$file$at" >"read/libnfs/$file"; done
}
sums() { (cd "$1" && sha256sum by-*/*); }

mount_server mounted
timed 'write by three clients' write_by_three
umount mounted # so that the kernel's cache knows nothing of them
mount_server mounted
timed 'read by verbena' read_by_verbena
timed 'read by libnfs' read_by_libnfs
sums expected >sums
for reader in mounted read/verbena read/libnfs; do
    sums "$reader" >found
    diff sums found >differences || fail "$reader: $(head -n 3 differences | xargs -d '\n')"
done
umount mounted

# With a CRC32C in each FPDU, which the kernel's client makes and checks when the server asks for it.
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
cat >crc.toml <<END
[daemon]
state = "$PWD/state"
[metrics]
listen = "$server:9464"
[nfs]
listen = ["iwarp://$server:$rdma_port", "tcp://$server:$tcp_port"]
iwarp_crc = true
rpcbind = "no"
[[nfs.export]]
directory = "$PWD/exported"
root_squash = false
clients = ["*"]
END
start verbenad-crc "$LAB_BUILD/services/verbenad" serve crc.toml
until_true 60 listens "$server" "$tcp_port" || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad-crc.log")"
mount_server mounted
timed 'with CRC: copy in' cp "$LAB_DATA/large" mounted/crc
umount mounted
mount_server mounted
cmp "$LAB_DATA/large" mounted/crc
umount mounted
checked=$(curl -sS --fail --max-time 10 "$server:9464/metrics" | sed -n 's/^verbena_iwarp_crc_checked_total //p')
((checked > 100)) || fail "FPDUs with a CRC: $checked"
