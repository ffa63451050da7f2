# SPDX-License-Identifier: Apache-2.0
# Two devices: doctor tells which address belongs to which, and --device and --source choose by it, or fail at once.
# lab: limit=200
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
