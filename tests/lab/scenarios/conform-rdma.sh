# SPDX-License-Identifier: Apache-2.0
# The verbs conformance suites on the provider over rdma-core:
#   conform-rdma rxe|siw [region|type_1_window|type_2_window]
# The second word: what grants are made by. Without it the best that the device has; then the suite of rights by the others
# too.
# lab: limit=400
. "$LAB_LIB"
kind=${1:-rxe} grants=${2:-}
links "$kind"
address=${kind}_address
failed=
# suite NAME [GRANTS]
suite() {
    local program=$LAB_BUILD/tests/unit/transports_conformance_${1}_test log=$LAB_OUT/$1${2:+-$2}.log
    needs "$program"
    [[ -z ${2:-} ]] || local -x VERBENA_TEST_RDMA_GRANTS=$2
    VERBENA_TEST_RDMA=${!address}:0 timeout 120 "$program" --color_output=no --report_level=short >"$log" 2>&1 || failed+=" $1${2:+ ($2)}"
    tail -n 60 "$log"
}
for name in connections messages queues rights; do
    suite "$name" "$grants"
done
if [[ -z $grants && $kind == rxe ]]; then
    suite rights type_1_window
    suite rights region
fi
needs "$LAB_BUILD/services/verbena"
"$LAB_BUILD/services/verbena" doctor >"$LAB_OUT/doctor" || [[ $? == 1 ]] # 1: it has something to say about the guest
grep -E 'RDMA (abilities|port)' "$LAB_OUT/doctor" || fail 'doctor does not tell what the device can do'
lacking='no check of the right to read, no bound on a peer.s reads'
if [[ $kind == siw ]]; then
    grep -q "RDMA abilities.*$lacking" "$LAB_OUT/doctor" || fail 'doctor does not tell what siw lacks'
else
    ! grep -qE 'RDMA abilities.*no (check|bound)' "$LAB_OUT/doctor" || fail "doctor tells that $kind lacks what it has"
fi
[[ -z $failed ]] || fail "suites that failed:$failed"
