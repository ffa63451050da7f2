# SPDX-License-Identifier: Apache-2.0
# Two devices: doctor tells which address belongs to which; --device, --source and verbenad's ?device= choose by it, or fail.
# lab: limit=300
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
links rxe siw
"$verbena" doctor >"$LAB_OUT/doctor" || [[ $? == 1 ]] # 1: it has something to say about the guest
grep -E "RDMA port +rxe0 port 1: Ethernet, active, .*RoCE v2 .*on lab-rxe, ${rxe_address//./\\.}( |;|\$)" "$LAB_OUT/doctor" ||
    fail "doctor of rxe0: $(grep 'RDMA port' "$LAB_OUT/doctor")"
grep -E "RDMA port +siw0 port 1: Ethernet, active, .*iWARP .* on lab-siw, ${siw_address//./\\.}(,|;|\$)" "$LAB_OUT/doctor" ||
    fail "doctor of siw0: $(grep 'RDMA port' "$LAB_OUT/doctor")"

url=rdma://$rxe_address:7400
# fails STATUS TEXT WORDS...: within 20 s, with that text.
fails() {
    local wanted=$1 text=$2 status=0
    shift 2
    timeout 20 "$verbena" conform "$@" >"$LAB_OUT/said" 2>&1 || status=$?
    [[ $status == "$wanted" ]] && grep -qF -e "$text" "$LAB_OUT/said" || fail "$*: $status, $(tail -n 2 "$LAB_OUT/said")"
}
fails 1 'leads to another device' --device siw0 --listen "$url"
fails 1 'leads to another port' --device rxe0:2 --listen "$url"
start listener "$verbena" conform --listen "$url" --once
listener=$!
until_true 20 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
grep -q 'device=rxe0 port=1' "$LAB_OUT/listener.log" || fail "which device: $(<"$LAB_OUT/listener.log")"
fails 1 'no RDMA device of this name' --device none "$url"
fails 2 '--device is NAME' --device rxe0:x "$url"
fails 3 'no RDMA device or port' --device rxe0:2 "$url"
fails 3 "$url: connect" --device siw0 "$url"
fails 3 "$url: connect" --source "$siw_address" "$url"
fails 3 "$url: connect" --source 203.0.113.9 "$url"
"$verbena" conform --device rxe0:1 --source "$rxe_address" "$url" >"$LAB_OUT/report" || (($? == 1))
grep -q '^passed *sends whole' "$LAB_OUT/report" || fail "no check passed: $(tail -n 2 "$LAB_OUT/report")"
wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener.log")"

# --- verbenad's listeners ---
needs "$LAB_BUILD/services/verbenad"
mkdir -p exported state
# refused TEXT URL: verbenad ends within 30 s with status 2 and that text.
refused() {
    local status=0
    timeout 30 "$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export" --listen "$2" --metrics off \
        --state "$PWD/state" --rpcbind no >"$LAB_OUT/said" 2>&1 || status=$?
    [[ $status == 2 ]] && grep -qF -e "$1" "$LAB_OUT/said" || fail "$2: $status, $(tail -n 2 "$LAB_OUT/said")"
}
refused 'the address leads to another device than the one chosen' "rdma://$rxe_address:7401?device=siw0"
refused 'the address leads to another port than the one chosen' "rdma://$rxe_address:7401?device=rxe0:2"
refused 'no RDMA device of this name' "rdma://$rxe_address:7401?device=none"
# On every address: clients of the one device are served, those of the other rejected.
start verbenad "$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export" \
    --listen 'rdma://*:7401?device=rxe0:1' --listen "tcp://*:7402" --metrics "$rxe_address:9464" --state "$PWD/state" --rpcbind no
daemon=$!
until_true 60 listens "$rxe_address" 7402 || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"
"$verbena" --soft --timeout 20 ping -c 1 "nfs+rdma://$rxe_address:7401/export" >"$LAB_OUT/said" 2>&1 ||
    fail "by the chosen device: $(tail -n 2 "$LAB_OUT/said")"
! "$verbena" --soft --timeout 20 ping -c 1 "nfs+rdma://$siw_address:7401/export" >"$LAB_OUT/said" 2>&1 ||
    fail 'a client of the other device was served'
grep -qF 'the peer rejected the connection' "$LAB_OUT/said" || fail "a client of the other device: $(<"$LAB_OUT/said")"
grep -qF "came_by=siw0" "$LAB_OUT/verbenad.log" || fail "verbenad does not say why: $(tail -n 3 "$LAB_OUT/verbenad.log")"
curl -sS --fail --max-time 20 "$rxe_address:9464/metrics" >"$LAB_OUT/metrics"
grep -q '^verbena_connection_ends_total{transport="rdma",cause="other_device"} [1-9]' "$LAB_OUT/metrics" ||
    fail "no metric tells of it: $(grep connection_ends "$LAB_OUT/metrics")"
grep -q '^verbena_rdma_receiver_not_ready_total{device="rxe0",port="1",counter="send_rnr_err"} ' "$LAB_OUT/metrics" ||
    fail "no counters of the device: $(grep -c . "$LAB_OUT/metrics") lines"
kill "$daemon"
wait "$daemon" || fail "verbenad: $?, $(tail -n 2 "$LAB_OUT/verbenad.log")"
