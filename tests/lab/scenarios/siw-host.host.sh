# SPDX-License-Identifier: Apache-2.0
# The server of siw-host: verbenad on this machine's loopback, with no RDMA device and no kernel module.
set -euo pipefail
mkdir -p exported state
"$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export,root_squash=no" \
    --listen iwarp://127.0.0.1:0 --listen tcp://127.0.0.1:0 --metrics 127.0.0.1:0 --state "$PWD/state" \
    --rpcbind no >verbenad.out 2>verbenad.log &
server=$!
trap 'kill -TERM "$server"; wait "$server"; exit 0' TERM
until grep -qx ready verbenad.out; do
    kill -0 "$server" 2>/dev/null || { echo "verbenad does not start: $(tail -n 3 verbenad.log)" >reason; exit 1; }
    sleep 0.05
done
port() { sed -n "s|^listening at $1://.*:\([0-9]*\)$|\1|p" verbenad.out; }
printf 'rdma_port=%s\ntcp_port=%s\n' "$(port iwarp)" "$(port tcp)" >ready.tmp
mv ready.tmp ready
wait "$server"
