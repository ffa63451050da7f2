# SPDX-License-Identifier: Apache-2.0
# `verbena conform` between two of our programs, over a device and from our iWARP stack to one.
#   conform-command OURS THEIRS LINK     the providers of the end that checks and of the one that listens: rdma rdma rxe,
#                                        rdma rdma siw, iwarp rdma siw, rdma iwarp siw
# lab: limit=600
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/conform.sh"
links "$3"
address=${3}_address
address=${!address}
ours=$1://$address:7400 theirs=$2://$address:7400
choice=()
[[ $1 != rdma ]] || choice=(--device "${3}0:1")

start listener "$verbena" conform --listen "$theirs" --once
listener=$!
until_true 20 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
reports report "${choice[@]}" "$ours"
wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener.log")"
conforms "$@"
