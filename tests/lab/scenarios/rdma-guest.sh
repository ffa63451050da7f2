# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client on verbenad's rdma-core provider, over one device in one guest:
# rdma-guest rxe|siw.
# lab: limit=300
. "$LAB_LIB"
serve rdma "${1:-rxe}" --shards 2
copy_both_ways mount_server mounted

# What was copied went through chunks both ways, on a device.
metrics=$LAB_OUT/metrics.txt
curl -sS --fail --max-time 10 "$server:9464/metrics" >"$metrics"
for direction in read write; do
    bytes=$(sed -n "s/^verbena_rpcrdma_chunk_bytes_total{direction=\"$direction\"} //p" "$metrics")
    awk -v bytes="$bytes" 'BEGIN { exit !(bytes > 0) }' || fail "bytes of $direction chunks: \"$bytes\""
done
ended=$(sed -n 's/^verbena_connection_ends_total{transport="rdma",cause="completion_error"} //p' "$metrics")
[[ $ended == 0 ]] || fail "connections ended with completion_error: \"$ended\""
