# SPDX-License-Identifier: Apache-2.0
# How fast verbenad is beside knfsd: the same kernel client in turn on both, each with a tmpfs of its own. A measurement: it
# fails only when the work does.
#   speed SERVER LINK [vers=4.1] [PAIRS [WORD...]]     verbenad's listener and the link, as `serve` of lib.sh takes them: speed tcp lo
# lab: limit=2400
. "$LAB_LIB"
version=
if [[ ${3:-} == vers=4* ]]; then
    version=${3#vers=}
    set -- "${@:1:2}" "${@:4}"
fi
# in_folder FOLDER SERVER LINK [OPTION...]: serves there, and leaves a script that mounts it.
in_folder() {
    mkdir "$1"
    cd "$1"
    serve "${@:2}"
    [[ -z $version ]] || version_4 "$version"
    printf '#!/bin/sh\nexec mount -t nfs -o %q %q %q\n' "$mount_options" "$server:$exported" "$PWD/mounted" >mount
    chmod +x mount
    cd ..
}
# It would choose less on a machine of little memory.
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
echo 1048576 >/proc/fs/nfsd/max_block_size
in_folder knfsd knfsd "$2"
tcp_port=12049 rdma_port=12050
in_folder verbenad "$1" "$2" --shards "$(nproc)"
tar -c -f tree.tar -C "$LAB_DATA" tree
# What was just made counts as changed by somebody else, and posixfs tells nothing from before for a while.
sleep 4
python3 "$LAB_ROOT/tests/lab/guest/speed.py" "$LAB_OUT/speed.json" verbenad knfsd "${3:-3}" "${@:4}"
