#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh BUILD: clang-tidy 19 over every project source that BUILD compiles, with .clang-tidy's
# checks. The tests are left out: Boost.Test's macros take ten seconds a file and hide what is ours.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?tidy.sh BUILD}
mapfile -t files < <(python3 - "$build" <<'PY'
import json, os, sys
build = sys.argv[1]
files = {os.path.relpath(os.path.join(entry["directory"], entry["file"]))
         for entry in json.load(open(os.path.join(build, "compile_commands.json"), encoding="utf-8"))}
for file in sorted(files):
    if not file.startswith((build, "..", "tests/")):
        print(file)
PY
)
echo "${#files[@]} files"
((${#files[@]} > 0)) || exit 1
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I FILE \
    sh -c 'echo "FILE"; exec clang-tidy-19 --quiet -p "$0" FILE 2>/dev/null' "$build"
