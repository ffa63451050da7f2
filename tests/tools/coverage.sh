#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [FOLDER]: line coverage of everything that decodes a stranger's bytes, by the unit tests
# and the replayed fuzz corpora, built in FOLDER (build-coverage). Prints a table; fails below 95 %.
# Needs llvm-19 besides what a build needs. `coverage.sh FOLDER --missed` also prints the lines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${1:-build-coverage}
least=95

# What decodes, by name of the format.
declare -A sources=(
    [xdr]='protocols/include/verbena/protocols/xdr/decoder.hpp'
    [rpc]='protocols/rpc/message.cpp protocols/rpc/auth_sys.cpp protocols/rpc/record_reader.cpp'
    [rpcrdma]='protocols/rpcrdma/header.cpp protocols/rpcrdma/private_data.cpp'
    [iwarp]='transports/iwarp/wire.cpp transports/iwarp/startup.cpp transports/iwarp/receive.cpp'
    [mount3]='protocols/nfs/mount3.cpp protocols/nfs/portmap.cpp'
    [nfs3]='protocols/nfs/v3/arguments.cpp protocols/nfs/v3/attributes.cpp protocols/nfs/v3/results.cpp
        protocols/nfs/v3/directory.cpp protocols/nfs/file_handle.cpp'
    [config]='services/daemon/config_file.cpp services/daemon/config.cpp services/daemon/export_spec.cpp'
)
tests=(protocols_xdr_test protocols_rpc_message_test protocols_rpc_record_test protocols_rpcrdma_header_test
    protocols_rpcrdma_private_data_test transports_iwarp_refusals_test
    transports_iwarp_test transports_iwarp_wire_test protocols_mount3_test protocols_portmap_test
    protocols_nfs_file_handle_test
    protocols_nfs3_arguments_test protocols_nfs3_results_test protocols_nfs3_directory_test services_config_test
    services_export_spec_test)
corpora=(config handles iwarp mount3 nfs3 rpc_message rpc_stream rpcrdma_header xdr)

if [[ ! -f $folder/build.ninja ]]; then
    compiler=clang++-19
    ! command -v ccache >/dev/null || compiler="ccache $compiler"
    flags="['-fprofile-instr-generate','-fcoverage-mapping']"
    CXX=$compiler CXX_LD=lld meson setup "$folder" -Doptimization=0 -Ddebug=false \
        -Dcpp_args="$flags" -Dcpp_link_args="$flags" >/dev/null
fi
binaries=("${tests[@]/#/tests/unit/}" "${corpora[@]/#/tests/fuzz/replay_}")
ninja -C "$folder" "${binaries[@]}" >"$folder/ninja.log" || { tail -n 40 "$folder/ninja.log"; exit 1; }

rm -f "$folder"/*.profraw
export LLVM_PROFILE_FILE=$PWD/$folder/%p.profraw
for name in "${tests[@]}"; do
    "$folder/tests/unit/$name" >"$folder/$name.log" 2>&1 || { cat "$folder/$name.log"; exit 1; }
done
for name in "${corpora[@]}"; do
    "$folder/tests/fuzz/replay_$name" "tests/fuzz/corpus/$name" >"$folder/$name.log" 2>&1 ||
        { cat "$folder/$name.log"; exit 1; }
done
llvm-profdata-19 merge -sparse "$folder"/*.profraw -o "$folder/all.profdata"

objects=()
for binary in "${binaries[@]}"; do objects+=(-object "$folder/$binary"); done
status=0
printf '%-9s %-56s %6s %7s\n' format source lines covered
for format in xdr rpc rpcrdma iwarp mount3 nfs3 config; do
    for source in ${sources[$format]}; do
        line=$(llvm-cov-19 export -summary-only -instr-profile "$folder/all.profdata" "${objects[@]}" \
            -sources "$source" 2>/dev/null |
            python3 -c 'import json, sys
lines = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print(lines["count"], "%.1f" % lines["percent"])')
        printf '%-9s %-56s %6s %6s%%\n' "$format" "$source" $line
        awk -v covered="${line#* }" -v least=$least 'BEGIN {exit !(covered < least)}' || continue
        status=1
        printf '  below %s %%\n' $least
        [[ ${2:-} != --missed ]] || llvm-cov-19 show -instr-profile "$folder/all.profdata" "${objects[@]}" \
            -sources "$source" 2>/dev/null | grep -E '^ +[0-9]+\| +0\|' || true
    done
done
exit $status
