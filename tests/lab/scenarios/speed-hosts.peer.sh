# SPDX-License-Identifier: Apache-2.0
# The client of speed-hosts.
. "$LAB_LIB"
if [[ $2 != lo ]]; then
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$2" wire
fi
# in_folder FOLDER TCP_PORT RDMA_PORT EXPORTED: a script there that mounts the server at these ports.
in_folder() {
    local options=proto=tcp,port=$2
    [[ $device == lo ]] || options=proto=rdma,port=$3
    mkdir -p "$1/mounted"
    printf '#!/bin/sh\nexec mount -t nfs -o vers=3,mountproto=tcp,nolock,%q %q %q\n' "$options${5:-}" "$LAB_PEER:$4" \
        "$PWD/$1/mounted" >"$1/mount"
    chmod +x "$1/mount"
}
device=$2
told ready 120
in_folder knfsd 2049 20049 "$(dirname "$(<"$LAB_MEETING/at")")/knfsd/exported"
in_folder verbenad 12049 12050 /export ,mountport=12049
tar -c -f tree.tar -C "$LAB_DATA" tree
# What was just made counts as changed by somebody else, and posixfs tells nothing from before for a while.
sleep 4
python3 "$LAB_ROOT/tests/lab/guest/speed.py" "$LAB_OUT/speed.json" verbenad knfsd "${3:-3}" "${@:4}"
tell measured
