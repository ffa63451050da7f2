#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh TARGET CORPUS: fuzzes for FUZZ_SECONDS (20), beginning with CORPUS and with what earlier runs found on the way, which is kept
# in ${XDG_CACHE_HOME:-~/.cache}/verbena/fuzz. An input that fails is left in TARGET.failures. The inputs are drawn; FUZZ_SEED=N repeats a
# run from the same corpora.
set -euo pipefail
target=$1
corpus=$2
kept=${XDG_CACHE_HOME:-$HOME/.cache}/verbena/fuzz/${corpus##*/}
mkdir -p "$kept" "$target.failures"
exec "$target" -seed="${FUZZ_SEED:-0}" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$target.failures/" "$kept" "$corpus"
