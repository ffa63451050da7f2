# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh that run `verbena conform`.
verbena=$LAB_BUILD/services/verbena
needs "$verbena"

# conform_device rxe|siw: on the wire to the other guest.
conform_device() {
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$1" wire
}

# siw as the end that accepts leaves what comes while it sets the connection up in the socket, now and then, until more comes
# (docs/internals/rdma.md); who waits for an answer then waits in vain. Such a run is repeated once, such a check up to three times.

# reports NAME ARGUMENT...: one run of `verbena conform` from `conforms`, with the artefact NAME.json. Fails with 1 where nothing was
# checked, as siw left its first message unread.
reports() {
    local name=$1 status=0 said
    shift
    "$verbena" conform "$@" --report "$LAB_OUT/$name.json" 2>"$LAB_OUT/said" || status=$?
    said=$(<"$LAB_OUT/said")
    if ((status == 3)) && [[ $accepting == rdma/siw && $said =~ ': nothing came for 60 s: a message' && ! -e $LAB_OUT/$name-unread ]]; then
        mv "$LAB_OUT/said" "$LAB_OUT/$name-unread"
        echo "again, as siw may have left the first message unread: $said"
        return 1
    fi
    ((status <= 1)) || fail "status $status: $said"
    [[ -s $LAB_OUT/$name.json ]] || fail "no report: $said"
}

# conforms OURS THEIRS LINK: the checks between two providers, by the scenario's `checked NAME [OPTION...]`, which makes the
# artefact NAME.json. Fails by what is not known of the device, or not told in that way.
conforms() {
    local fails lacks name reason wanted accepting=$2/$3
    # Where they listen, these devices of 6.1 let through what they should not (docs/internals/rdma.md):
    case $accepting in
    rdma/rxe) fails='Write beyond the end|Write before the start|Read beyond the end|Read before the start' ;;
    rdma/siw) fails='Read without the right' ;;
    *) fails= ;;
    esac
    # And these say themselves that they can't, where they connect:
    case $1/$3 in
    rdma/siw) lacks='Write with Immediate|Send with Invalidate|Local Invalidate' ;;
    iwarp/siw) lacks='inline data|Write with Immediate|Send with Invalidate' ;;
    *) lacks= ;;
    esac
    checked report
    # The names of those that failed and should not go to `unexpected`, with the reason and what should have come, behind tabs.
    python3 - "$LAB_OUT/report.json" "$fails" "$lacks" "$1" "$2" "$3" <<'END_OF_PYTHON' >unexpected
import json, sys
report = json.load(open(sys.argv[1]))
fails, lacks = (set(names.split("|")) - {""} for names in sys.argv[2:4])
ours, theirs, link = sys.argv[4:]
failed = {case["name"]: case["reason"] for case in report["cases"] if case["result"] == "failed"}
let_through = {name for name, reason in failed.items() if reason == "it succeeded"}
again = failed.keys() - let_through
unable = {case["name"] for case in report["cases"] if case["result"] == "not supported"}
assert (let_through, unable) == (fails - again, lacks - again), (let_through, unable)
groups = [case["group"] for case in report["cases"]]
assert (groups.count("verbs"), groups.count("rpc-over-rdma")) == (29, 20), groups
for end, provider in zip(("client", "server"), (ours, theirs)):
    said = report[end]
    assert said["capabilities"]["provider"] == provider and bool(said["devices"]) == (provider == "rdma"), said
if [ours, link] == ["rdma", "rxe"]:
    assert report["client"]["posts_by_ibv_wr"], report["client"]
for name in again:
    wanted = "failed: it succeeded" if name in fails else "not supported" if name in lacks else "passed"
    print(name, failed[name], wanted, sep="\t")
END_OF_PYTHON
    # Each of these must end as it should when it is done again, for which the same excuse holds, and no other.
    while IFS=$'\t' read -r name reason wanted <&3; do
        for _ in 1 2 3; do
            [[ $accepting == rdma/siw && $reason =~ ^'nothing came for '|': server does not answer: Connection timed out'$ ]] ||
                fail "checks that failed: $name: $reason; of $(xargs -d '\n' <unexpected)"
            echo "again, as siw may have left its first message unread: $name: $reason"
            checked again --only "$name"
            reason=$(other_than_wanted)
            [[ -n $reason ]] || break
        done
        [[ -z $reason ]] || fail "$name: not $wanted when done again: $reason"
    done 3<unexpected
}
# What came in place of $wanted in the check $name that was done again, or nothing.
other_than_wanted() {
    python3 - "$LAB_OUT/again.json" "$name" "$wanted" <<'END_OF_PYTHON'
import json, sys
report, name, wanted = sys.argv[1:]
[case] = (case for case in json.load(open(report))["cases"] if case["name"] == name)
ended = case["result"] + (": " + case["reason"] if case["result"] == "failed" else "")
print("" if ended == wanted else case["reason"] if case["result"] == "failed" else ended)
END_OF_PYTHON
}
