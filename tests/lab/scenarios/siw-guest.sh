# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client over siw, on verbenad's iWARP stack in user space, in one guest.
# lab: limit=300
. "$LAB_LIB"
needs "$LAB_BUILD/services/verbenad"
links siw
mkdir exported mounted state
mount -t tmpfs -o mode=755 exported exported
start verbenad "$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export,root_squash=no,clients=*" \
    --listen "iwarp://$siw_address:20049" --listen "tcp://$siw_address:2049" --metrics 127.0.0.1:9464 \
    --state "$PWD/state" --shards 1 --rpcbind no
until_true 20 listens "$siw_address" 2049 || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"

mount_it() {
    mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=2049,nolock "$siw_address:/export" mounted
}
copy_both_ways mount_it mounted

# What was copied went through chunks both ways, and no key was ever used that the kernel had taken back.
metrics=$LAB_OUT/metrics.txt
curl -sS --fail --max-time 10 127.0.0.1:9464/metrics >"$metrics"
for direction in read write; do
    bytes=$(sed -n "s/^verbena_rpcrdma_chunk_bytes_total{direction=\"$direction\"} //p" "$metrics")
    awk -v bytes="$bytes" 'BEGIN { exit !(bytes > 0) }' || fail "bytes of $direction chunks: \"$bytes\""
done
refused=$(sed -n 's/^verbena_connection_ends_total{transport="iwarp",cause="access_error"} //p' "$metrics")
[[ $refused == 0 ]] || fail "connections ended with access_error: \"$refused\""
