#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
usage="Writes and reads a file over iWARP on loopback and shows both, live, as Wireshark decodes them.

  docs/howto/wireshark.sh [BUILD]     BUILD: the build folder (build)

It needs Debian's package tshark and the right to capture, as root has it. Nothing stays behind."
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { printf '%s\n' "$usage"; exit 0; }
build=${1:-$(dirname "$0")/../../build}
die() { printf 'wireshark.sh: %s\n' "$*" >&2; exit 1; }
[[ -x $build/services/verbenad ]] || die "$build/services/verbenad is not there; build it first"
command -v tshark >/dev/null || die 'tshark is not there: apt-get install tshark'

work=$(mktemp -d)
running=()
cleanup() {
    for pid in "${running[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap cleanup EXIT

# until_found TEXT FILE: waits until TEXT stands in FILE; returns 1 after 60 s.
until_found() {
    local end=$((SECONDS + 60))
    until grep -q -e "$1" "$2"; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

"$build/services/verbenad" nfs --export :/export,backend=memfs --listen iwarp://127.0.0.1:0 --metrics off \
    --rpcbind no --state "$work/state" >"$work/verbenad" 2>&1 &
running+=("$!")
until_found '^ready$' "$work/verbenad" || die "verbenad does not serve: $(tail -n 1 "$work/verbenad")"
port=$(sed -n 's|^listening at iwarp://.*:||p' "$work/verbenad")

# READ, WRITE and what brings a WRITE's data: a line for each packet, its layers, and the whole RPC-over-RDMA header.
tshark -l -i lo -f "tcp port $port" -o tcp.try_heuristic_first:TRUE \
    -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE -P -O rpcordma \
    -Y 'nfs.procedure_v3 in {6, 7} || rpcordma.reads_count > 0' 2>"$work/tshark" > >(exec tee "$work/shown") &
running+=("$!")
until_found 'Capture started' "$work/tshark" || die "tshark does not capture: $(tail -n 1 "$work/tshark")"

url=nfs+iwarp://127.0.0.1:$port/export/file?vers=3
head -c 100000 /dev/urandom >"$work/file"
"$build/services/verbena" -q cp "$work/file" "$url"
"$build/services/verbena" -q cat "$url" | cmp - "$work/file"
for name in 'WRITE Call' 'WRITE Reply' 'READ Call' 'READ Reply'; do
    until_found "$name" "$work/shown" || die "tshark has not shown a $name"
done
