# SPDX-License-Identifier: Apache-2.0
# What pynfs's tests of a minor version come to on a stock kernel's server, for `tests/interop/pynfs.py --beside`: results.json of the artefacts. By hand.
#   pynfs-knfsd PYNFS [PYTHONPATH [MINOR [TEST...]]]     a checkout of pynfs that was built, where ply is, 0 or (without) 2, which has 1's
#                                                        tests, and their codes or flags, `all` without
# lab: limit=3600
. "$LAB_LIB"
minor=${3:-2} codes=("${@:4}")
tests=$1/nfs4.1
[[ $minor != 0 ]] || tests=$1/nfs4.0
[[ -f $tests/testserver.py ]] || fail "no pynfs in $1"
mkdir exported
mount -t tmpfs -o mode=755 exported exported
mkdir -m 777 exported/tree
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
# Tests wait for the lease's end; as pynfs.py has it.
echo 12 >/proc/fs/nfsd/nfsv4leasetime
echo 12 >/proc/fs/nfsd/nfsv4gracetime
knfsd "$PWD/exported"
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$PWD/exported"
cd "$tests"
PYTHONPATH=${2:-} PYTHONDONTWRITEBYTECODE=1 timeout 3300 python3 testserver.py 127.0.0.1:2049/tree --minorversion=$minor --maketree --rundeps \
    --jsonout="$LAB_OUT/results.json" "${codes[@]:-all}" >"$LAB_OUT/pynfs.log" 2>&1 || true
[[ -s $LAB_OUT/results.json ]] || fail "pynfs did not run: $(tail -n 3 "$LAB_OUT/pynfs.log")"
