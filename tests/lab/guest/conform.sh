# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh that run `verbena conform`.
verbena=$LAB_BUILD/services/verbena
needs "$verbena"

# conform_device rxe|siw: on the wire to the other guest.
conform_device() {
    modprobe -a rdma_ucm ib_uverbs
    rdma_device "$1" wire
}

# conforms OURS THEIRS LINK: the checks between two providers, by the scenario's `checked NAME [OPTION...]`, which makes the
# artefact NAME.json. Fails by what the device is not known to fail.
conforms() {
    local devices_own name reason
    # What these devices fail in 6.1 where they listen, by no fault of the providers (docs/internals/rdma.md):
    case $2/$3 in
    rdma/rxe) devices_own='^(Write|Read) (beyond the end|before the start)$' ;; # a window's bounds are not looked at
    rdma/siw) devices_own='^Read (without the right|beyond the end|before the start|by a key made up|by a revoked key)$' ;; # see there
    *) devices_own='^$' ;;
    esac
    checked report
    # The names of those that failed and should not go to `unexpected`, with the reason behind a tab.
    python3 - "$LAB_OUT/report.json" "$devices_own" "$1" "$2" "$3" <<'END_OF_PYTHON' >unexpected
import json, re, sys
report = json.load(open(sys.argv[1]))
own = [case for case in report["cases"] if case["result"] == "failed" and re.match(sys.argv[2], case["name"])]
unexpected = [case for case in report["cases"] if case["result"] == "failed" and case not in own]
# Those are run again below, and must pass then.
groups = [case["group"] for case in report["cases"] if case["result"] == "passed" or case in unexpected]
assert groups.count("verbs") >= 15 and groups.count("rpc-over-rdma") >= 20, groups
for end, provider in zip(("client", "server"), sys.argv[3:]):
    said = report[end]
    assert said["capabilities"]["provider"] == provider and bool(said["devices"]) == (provider == "rdma"), said
if [sys.argv[3], sys.argv[5]] == ["rdma", "rxe"]:
    assert report["client"]["posts_by_ibv_wr"], report["client"]
for case in unexpected:
    print(case["name"], case["reason"], sep="\t")
END_OF_PYTHON
    # siw as the end that accepts leaves what comes while it sets the connection up in the socket, now and then, until more
    # comes (docs/internals/rdma.md); then the check waits for an answer. Such a one must pass the next time.
    while IFS=$'\t' read -r name reason <&3; do
        [[ $2/$3 == rdma/siw && $reason == 'nothing came for '* ]] || fail "checks that failed: $(xargs -d '\n' <unexpected)"
        echo "again, as siw may have left its first message unread: $name: $reason"
        checked again --only "$name"
        python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["failed"] != 0)' "$LAB_OUT/again.json" ||
            fail "$name failed twice"
    done 3<unexpected
}
