# SPDX-License-Identifier: Apache-2.0
# `verbena conform` between two of our programs, over a device and from our iWARP stack to one.
#   conform-command OURS THEIRS LINK     the providers of the end that checks and of the one that listens: rdma rdma rxe,
#                                        rdma rdma siw, iwarp rdma siw, rdma iwarp siw
# lab: limit=600
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
links "$3"
address=${3}_address
address=${!address}
ours=$1://$address:7400 theirs=$2://$address:7400
choice=()
[[ $1 != rdma ]] || choice=(--device "${3}0:1")
# What these devices fail in 6.1, by no fault of the providers (docs/internals/rdma.md):
case $3 in
rxe) devices_own='^(Write|Read) (beyond the end|before the start)$' ;; # a window's bounds are not looked at
siw) devices_own='^Read (without the right|beyond the end|before the start|by a key made up|by a revoked key)$' ;; # see there
esac

# checked NAME [OPTION...]: one run; its report is the artefact NAME.json.
checked() {
    local name=$1 listener
    shift
    start "listener-$name" "$verbena" conform --listen "$theirs" --once
    listener=$!
    until_true 20 grep -q listening "$LAB_OUT/listener-$name.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener-$name.log")"
    "$verbena" conform "${choice[@]}" "$ours" --report "$LAB_OUT/$name.json" "$@" || (($? == 1))
    [[ -s $LAB_OUT/$name.json ]] || fail 'no report'
    wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener-$name.log")"
}

checked report
# The names of those that failed and should not go to `unexpected`, with the reason behind a tab.
python3 - "$LAB_OUT/report.json" "$devices_own" "$1" "$3" <<'END' >unexpected
import json, re, sys
report = json.load(open(sys.argv[1]))
own = [case for case in report["cases"] if case["result"] == "failed" and re.match(sys.argv[2], case["name"])]
unexpected = [case for case in report["cases"] if case["result"] == "failed" and case not in own]
# Those are run again below, and must pass then.
groups = [case["group"] for case in report["cases"] if case["result"] == "passed" or case in unexpected]
assert groups.count("verbs") >= 15 and groups.count("rpc-over-rdma") >= 20, groups
if sys.argv[3:] == ["rdma", "rxe"]:
    assert report["client"]["posts_by_ibv_wr"], report["client"]
for case in unexpected:
    print(case["name"], case["reason"], sep="\t")
END
# siw as the end that accepts leaves what comes while it sets the connection up in the socket, now and then, until more
# comes (docs/internals/rdma.md); then the check waits for an answer. Such a one must pass the next time.
while IFS=$'\t' read -r name reason <&3; do
    [[ $2/$3 == rdma/siw && $reason == 'nothing came for '* ]] || fail "checks that failed: $(xargs -d '\n' <unexpected)"
    echo "again, as siw may have left its first message unread: $name: $reason"
    checked again --only "$name"
    python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["failed"] != 0)' "$LAB_OUT/again.json" ||
        fail "$name failed twice"
done 3<unexpected
