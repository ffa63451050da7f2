# SPDX-License-Identifier: Apache-2.0
# `verbena block` on the kernel's RNBD server, over rxe in one guest, with keys that stay and with new ones for each request: written, read
# back, and read by the kernel.
# lab: limit=300
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
links rxe
modprobe brd rd_nr=1 rd_size=$((64 << 10))
url=rnbd+rdma://$rxe_address/dev/ram0
size=$(stat -c %s "$LAB_DATA/large")

for always_invalidate in Y N; do
    modprobe rtrs_server always_invalidate=$always_invalidate
    modprobe rnbd_server
    [[ $(</sys/module/rtrs_server/parameters/always_invalidate) == "$always_invalidate" ]]
    "$verbena" block info "$url" | tee "$LAB_OUT/info.txt"
    grep -q '64.0 MiB' "$LAB_OUT/info.txt" || fail 'another size than the device has'
    dd if=/dev/zero of=/dev/ram0 bs=1M count=64 status=none
    timed "write ($always_invalidate)" "$verbena" -q block write "$url" "$LAB_DATA/large"
    cmp -n "$size" "$LAB_DATA/large" /dev/ram0
    timed "read ($always_invalidate)" "$verbena" -q block read --length "$(((size + 511) / 512 * 512))" "$url" read
    cmp -n "$size" "$LAB_DATA/large" read
    for pattern in randread randwrite; do
        "$verbena" block bench --seconds 2 -d 32 --connections 2 --pattern "$pattern" "$url"
    done
    modprobe -r rnbd_server rtrs_server
done
