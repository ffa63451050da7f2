# SPDX-License-Identifier: Apache-2.0
# `verbena conform` between two of our programs, over a device and from our iWARP stack to one.
#   conform-command OURS THEIRS LINK     the providers of the end that checks and of the one that listens: rdma rdma rxe,
#                                        rdma rdma siw, iwarp rdma siw, rdma iwarp siw
# lab: limit=300
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
links "$3"
address=${3}_address
address=${!address}
start listener "$verbena" conform --listen "$2://$address:7400" --once
listener=$!
until_true 20 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
# What these devices fail in 6.1, by no fault of the providers (docs/internals/rdma.md):
case $3 in
rxe) devices_own='^(Write|Read) (beyond the end|before the start)$' ;; # a window's bounds are not looked at
siw) devices_own='^Read (without the right|beyond the end|before the start|by a key made up|by a revoked key)$' ;; # see there
esac
choice=()
[[ $1 != rdma ]] || choice=(--device "${3}0:1")
"$verbena" conform "${choice[@]}" "$1://$address:7400" --report "$LAB_OUT/report.json" || (($? == 1))
[[ -s $LAB_OUT/report.json ]] || fail 'no report'
python3 - "$LAB_OUT/report.json" "$devices_own" "$1" "$3" <<'END' >unexpected || fail "checks that failed: $(xargs -d '\n' <unexpected)"
import json, re, sys
report = json.load(open(sys.argv[1]))
groups = [case["group"] for case in report["cases"] if case["result"] == "passed"]
assert groups.count("verbs") >= 15 and groups.count("rpc-over-rdma") >= 20, groups
if sys.argv[3:] == ["rdma", "rxe"]:
    assert report["client"]["posts_by_ibv_wr"], report["client"]
bad = [case for case in report["cases"] if case["result"] == "failed" and not re.match(sys.argv[2], case["name"])]
for case in bad:
    print(f"{case['name']}: {case['reason']};")
sys.exit(bool(bad))
END
wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener.log")"
