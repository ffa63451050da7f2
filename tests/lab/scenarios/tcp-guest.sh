# SPDX-License-Identifier: Apache-2.0
# A stock kernel's NFSv3 client over TCP, on verbenad in the same guest.
# lab: limit=300
. "$LAB_LIB"
serve tcp lo --versions 3
daemon=$!
copy_both_ways mount_as_printed mounted
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"
