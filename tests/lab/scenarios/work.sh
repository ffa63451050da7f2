# SPDX-License-Identifier: Apache-2.0
# Real work of a stock kernel's NFSv3 client on a server in the same guest.
#   work SERVER LINK     as `serve` of lib.sh takes them: work iwarp siw
# lab: limit=1200
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/work.sh"
serve "$1" "$2"
linux_work
