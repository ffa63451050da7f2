# SPDX-License-Identifier: Apache-2.0
# Real work of a stock kernel's NFS client, of version 3 or another one, on a server in the same guest.
#   work SERVER LINK [vers=4.1]     as `serve` of lib.sh takes them: work iwarp siw
# lab: limit=1200
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/work.sh"
serve "$1" "$2"
[[ ${3:-} != vers=4* ]] || version_4 "${3#vers=}"
linux_work
