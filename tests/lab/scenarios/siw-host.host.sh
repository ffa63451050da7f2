# SPDX-License-Identifier: Apache-2.0
# The server of siw-host: verbenad on this machine's loopback, with no RDMA device and no kernel module.
set -euo pipefail
mkdir -p exported state
"$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export,root_squash=no" \
    --listen iwarp://127.0.0.1:0 --listen tcp://127.0.0.1:0 --metrics 127.0.0.1:0 --state "$PWD/state" \
    --rpcbind no >verbenad.out 2>verbenad.log &
server=$!
# How it ends counts too: a sanitizer tells of leaks by the status.
ended() {
    local status=0
    wait "$server" || status=$?
    ((status == 0)) || grep -m 1 -A 25 -E 'ERROR: |runtime error: ' verbenad.log || tail -n 25 verbenad.log
    exit "$status"
}
trap 'kill -TERM "$server"; ended' TERM
until grep -qx ready verbenad.out; do
    kill -0 "$server" 2>/dev/null || { echo "verbenad does not start: $(tail -n 3 verbenad.log)" >reason; exit 1; }
    sleep 0.05
done
port() { sed -n "s|^listening at $1://.*:\([0-9]*\)$|\1|p" verbenad.out; }
printf 'rdma_port=%s\ntcp_port=%s\n' "$(port iwarp)" "$(port tcp)" >ready.tmp
mv ready.tmp ready
ended
