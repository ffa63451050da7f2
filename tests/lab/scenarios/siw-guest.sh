# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3/RDMA client over siw, on verbenad's iWARP stack in user space, in one guest.
# lab: limit=300
. "$LAB_LIB"
serve iwarp siw --shards 1
copy_both_ways mount_server mounted

# What was copied went through chunks both ways, and no key was ever used that the kernel had taken back.
metrics=$LAB_OUT/metrics.txt
curl -sS --fail --max-time 10 "$server:9464/metrics" >"$metrics"
for direction in read write; do
    bytes=$(sed -n "s/^verbena_rpcrdma_chunk_bytes_total{direction=\"$direction\"} //p" "$metrics")
    awk -v bytes="$bytes" 'BEGIN { exit !(bytes > 0) }' || fail "bytes of $direction chunks: \"$bytes\""
done
refused=$(sed -n 's/^verbena_connection_ends_total{transport="iwarp",cause="access_error"} //p' "$metrics")
[[ $refused == 0 ]] || fail "connections ended with access_error: \"$refused\""
