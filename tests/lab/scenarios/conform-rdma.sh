# SPDX-License-Identifier: Apache-2.0
# The verbs conformance suites on the provider over rdma-core: conform-rdma rxe|siw.
# lab: limit=300
. "$LAB_LIB"
kind=${1:-rxe}
links "$kind"
address=${kind}_address
failed=
for suite in connections messages queues rights; do
    program=$LAB_BUILD/tests/unit/transports_conformance_${suite}_test
    needs "$program"
    VERBENA_TEST_RDMA=${!address}:0 timeout 120 "$program" --color_output=no --report_level=short \
        >"$LAB_OUT/$suite.log" 2>&1 || failed+=" $suite"
    tail -n 60 "$LAB_OUT/$suite.log"
done
needs "$LAB_BUILD/services/verbena"
"$LAB_BUILD/services/verbena" doctor >"$LAB_OUT/doctor" || [[ $? == 1 ]] # 1: it has something to say about the guest
grep -E 'RDMA (abilities|port)' "$LAB_OUT/doctor" || fail 'doctor does not tell what the device can do'
[[ -z $failed ]] || fail "suites that failed:$failed"
