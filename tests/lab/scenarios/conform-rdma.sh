# SPDX-License-Identifier: Apache-2.0
# The verbs conformance suites on the provider over rdma-core:
#   conform-rdma rxe|siw [region|type_1_window|type_2_window]
# The second word: what grants are made by. Without it the best that the device has; then the suite of rights by the others
# too.
# lab: limit=900
. "$LAB_LIB"
kind=${1:-rxe} grants=${2:-}
links "$kind"
address=${kind}_address address6=${kind}_address6
failed=
# suite NAME [GRANTS]: by $at, an address of the device
at=${!address}:0
suite() {
    local program=$LAB_BUILD/tests/unit/unit_conformance log=$LAB_OUT/$1${2:+-$2}.log
    local cases=$1
    [[ $1 != rights ]] || cases+=,grants_are_made_by_what_was_asked_for
    needs "$program"
    [[ -z ${2:-} ]] || local -x VERBENA_TEST_RDMA_GRANTS=$2
    VERBENA_TEST_RDMA=$at timeout 240 "$program" --run_test="conformance_test/$cases" --color_output=no --report_level=short >"$log" 2>&1 || failed+=" $1${2:+ ($2)}"
    tail -n 60 "$log"
}
for name in connections messages queues rights; do
    suite "$name" "$grants"
done
if [[ -z $grants ]]; then
    at=[${!address6}]:0
    suite connections
    at=${!address}:0
fi
if [[ -z $grants && $kind == rxe ]]; then
    suite rights type_1_window
    suite rights region
fi
needs "$LAB_BUILD/services/verbena"
# What the suites find by asking the device must be what the device can: a wrong "no" would leave checks out.
case $kind in
rxe)
    is="rxe0: RoCE, port active, MTU 1024, grants by type_2_window, remote invalidate, write with immediate, shared receives, \
check of the right to read, no check of a grant's bounds, bound on a peer's reads, 128 reads"
    ;;
siw)
    is="siw0: iWARP, port active, MTU 1024, grants by region, no remote invalidate, no write with immediate, shared receives, \
no check of the right to read, check of a grant's bounds, no bound on a peer's reads, 128 reads"
    ;;
esac
# tells FILE TEXT: doctor's output has a line with it.
tells() { grep -qF "$2" "$1" || fail "doctor does not tell: $2"; }
verbena=$LAB_BUILD/services/verbena
"$verbena" doctor >"$LAB_OUT/doctor" || [[ $? == 1 ]] # 1: it has something to say about the guest
grep -E 'RDMA|memlock|fork' "$LAB_OUT/doctor"
tells "$LAB_OUT/doctor" "ok       RDMA abilities $is"
tells "$LAB_OUT/doctor" "ok       RDMA port     ${kind}0 port 1: Ethernet, active"
tells "$LAB_OUT/doctor" 'ok       memlock       unlimited'
tells "$LAB_OUT/doctor" 'ok       fork          protection of registered memory: not needed'

little() { ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock "$@"; }
(little "$verbena" doctor) >"$LAB_OUT/doctor-little" || [[ $? == 1 ]]
tells "$LAB_OUT/doctor-little" 'note     memlock       64.0 KiB: too little to register memory with an RDMA device'

# Where only the soft limit is low, `verbena` raises it.
softly() { ulimit -S -l 64 && exec setpriv --bounding-set=-ipc_lock "$@"; }
url=rdma://${!address}:7400
start listener softly "$verbena" conform --listen "$url" --once
until_true 20 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
(softly timeout 60 "$verbena" conform "$url" --only 'private data, both') || fail 'verbena leaves the soft limit as it is'
(softly "$verbena" doctor) >"$LAB_OUT/doctor-soft" || [[ $? == 1 ]]
tells "$LAB_OUT/doctor-soft" 'ok       memlock       unlimited'

# A server that may lock too little memory rejects whoever comes, and says why and what helps; doctor does before.
server=${!address} verbenad_in=little
mkdir exported
verbenad rdma
if timeout 60 "$verbena" --soft --timeout 5 ls "nfs+rdma://$server:$rdma_port/export" >refused 2>&1; then fail 'served without memory'; fi
grep -q 'the peer rejected the connection' refused || fail "the client says: $(<refused)"
grep -qE 'rejected a peer.*the limit of locked memory is spent.*ulimit -l.*LimitMEMLOCK' "$LAB_OUT/verbenad.log" ||
    fail "verbenad says: $(tail -n 2 "$LAB_OUT/verbenad.log")"
[[ -z $failed ]] || fail "suites that failed:$failed"
