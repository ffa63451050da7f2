#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh TARGET CORPUS: fuzzes for FUZZ_SECONDS (20), beginning with CORPUS. What it finds on the way is
# kept in TARGET.corpus beside the program, an input that fails in TARGET.failures. FUZZ_SEED (1) chooses the inputs, so that
# a change is not refused for what another would have met; 0 draws it.
set -euo pipefail
target=$1
corpus=$2
mkdir -p "$target.corpus" "$target.failures"
exec "$target" -seed="${FUZZ_SEED:-1}" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$target.failures/" "$target.corpus" "$corpus"
