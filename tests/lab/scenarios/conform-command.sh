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

# checked NAME [OPTION...]: one run; its report is the artefact NAME.json.
checked() {
    local name=$1 listener unread=0 status=0
    shift
    rm -f "$LAB_OUT/listener-$name.log"
    start "listener-$name" "$verbena" conform --listen "$theirs" --once
    listener=$!
    until_true 20 grep -q listening "$LAB_OUT/listener-$name.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener-$name.log")"
    reports "$name" "${choice[@]}" "$ours" "$@" || unread=1
    if ((unread)); then
        kill "$listener" 2>/dev/null || true
        wait "$listener" || status=$?
        # It may have given up by itself; a signal other than ours is something else.
        ((status < 128 || status == 128 + 15)) || fail "the end that listens ended with status $status: $(tail -n 2 "$LAB_OUT/listener-$name.log")"
        checked "$name" "$@"
    else
        wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener-$name.log")"
    fi
}

conforms "$@"
