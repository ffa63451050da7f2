# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh that run `verbena conform`.
verbena=$LAB_BUILD/services/verbena
needs "$verbena"

# conform_device rxe|siw: on the wire to the other guest.
conform_device() {
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$1" wire
}

# reports NAME ARGUMENT...: one run of `verbena conform`, with the artefact NAME.json.
reports() {
    local name=$1 status=0
    shift
    "$verbena" conform "$@" --report "$LAB_OUT/$name.json" 2>"$LAB_OUT/said" || status=$?
    ((status <= 1)) || fail "status $status: $(<"$LAB_OUT/said")"
    [[ -s $LAB_OUT/$name.json ]] || fail "no report: $(<"$LAB_OUT/said")"
}

# conforms OURS THEIRS LINK: the checks between two providers, of which `reports report` has told. Fails by what is not known of the
# device, or not told in that way.
conforms() {
    local fails lacks
    # Where they listen, these devices of 6.1 let through what they should not (docs/internals/rdma.md):
    case $2/$3 in
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
    python3 - "$LAB_OUT/report.json" "$fails" "$lacks" "$1" "$2" "$3" <<'END_OF_PYTHON' 2>wrong || fail "the report: $(tail -n 1 wrong)"
import json, sys
report = json.load(open(sys.argv[1]))
fails, lacks = (set(names.split("|")) - {""} for names in sys.argv[2:4])
ours, theirs, link = sys.argv[4:]
failed = {case["name"]: case["reason"] for case in report["cases"] if case["result"] == "failed"}
assert failed == dict.fromkeys(fails, "it succeeded"), failed
unable = {case["name"] for case in report["cases"] if case["result"] == "not supported"}
assert unable == lacks, unable
groups = [case["group"] for case in report["cases"]]
assert (groups.count("verbs"), groups.count("rpc-over-rdma")) == (29, 20), groups
for end, provider in zip(("client", "server"), (ours, theirs)):
    said = report[end]
    assert said["capabilities"]["provider"] == provider and bool(said["devices"]) == (provider == "rdma"), said
if [ours, link] == ["rdma", "rxe"]:
    assert report["client"]["posts_by_ibv_wr"], report["client"]
END_OF_PYTHON
}
