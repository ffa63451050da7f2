# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv4.1 client on an export that gives RDMA layouts, which it does not know: it works by READ and WRITE, over RDMA, beside
# `verbena` with layouts on the same files, and neither of them sees anything old: pnfs-guest [iwarp siw|rdma rxe].
# lab: limit=300
. "$LAB_LIB"
transport=${1:-iwarp} kind=${2:-siw}
serve "$transport" "$kind" --export ':/layouts,backend=memfs,root_squash=no,clients=*,pnfs'
version_4 4.1
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
by_layout=nfs+$transport://$server:$rdma_port/layouts
mount -t nfs -o "$mount_options" "$server:/layouts" mounted
[[ ,$(findmnt -no OPTIONS mounted), == *,vers=4.1,* ]] || fail "mounted as $(findmnt -no OPTIONS mounted)"
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
random() { head -c "$1" /dev/urandom; }

# Written by the kernel, read by RDMA.
random 9000001 >bytes
cp bytes mounted/by-kernel
"$verbena" cat --layout require "$by_layout/by-kernel" >back
same bytes back
# Written by RDMA, read by the kernel.
random 7000003 >bytes
"$verbena" cp --layout require bytes "$by_layout/by-rdma"
same bytes mounted/by-rdma
[[ $(stat -c %s mounted/by-rdma) == 7000003 ]] || fail "the kernel sees $(stat -c %s mounted/by-rdma) bytes"

# The same file in turn: each finds what the other one wrote before.
for round in 1 2 3 4 5; do
    random $((1000000 * round + round)) >bytes
    "$verbena" cp --layout require bytes "$by_layout/in-turn"
    same bytes mounted/in-turn
    random $((900000 * round + 7)) >bytes
    cp bytes mounted/in-turn
    "$verbena" cat --layout require "$by_layout/in-turn" >back
    same bytes back
done

# The kernel cuts, removes and replaces files that are read by RDMA again and again meanwhile: who reads gets what was there before, or an error
# that says that it changed, and the server goes on.
random 20000000 >bytes
cp bytes mounted/busy
(
    while [[ ! -e stop ]]; do "$verbena" cat "$by_layout/busy" >/dev/null 2>>"$LAB_OUT/reader.log" || :; done
) &
reader=$!
for round in 1 2 3 4 5 6; do
    timeout 60 truncate -s $((round * 1000)) mounted/busy || fail "truncate waits for a layout"
    cp bytes mounted/busy
    cp bytes mounted/busy.new
    mv mounted/busy.new mounted/busy
done
touch stop
wait "$reader"
# Of a file whose layouts were in the way, none is given for a while.
"$verbena" cat "$by_layout/busy" >back
same bytes back

metric() { curl -sS --fail --max-time 60 "$server:9464/metrics" | sed -n "s/^verbena_nfs4_$1 //p"; }
granted=$(metric layout_grants_total)
[[ ${granted%.*} -ge 12 ]] || fail "layouts that were granted: ${granted:-nothing}"
asked=$(awk '$1 == "LAYOUTGET:" { print $2 }' /proc/self/mountstats)
[[ ${asked:-0} == 0 ]] || fail "the kernel has asked for $asked layouts"
rm -r mounted/*
umount mounted
