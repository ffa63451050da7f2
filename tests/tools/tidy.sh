#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh BUILD: clang-tidy 19 over every project source that BUILD compiles, with .clang-tidy's
# checks. The tests are left out: Boost.Test's macros take ten seconds a file and hide what is ours.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?tidy.sh BUILD}
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
# Without the precompiled headers: checks of the preprocessor see nothing of what is in them.
mapfile -t files < <(python3 - "$build" "$commands" <<'PY'
import json, os, re, sys
build, commands = sys.argv[1:]
entries = json.load(open(os.path.join(build, "compile_commands.json"), encoding="utf-8"))
for entry in entries:
    entry["command"] = re.sub(r" -include-pch \S+| -Winvalid-pch", "", entry["command"])
with open(os.path.join(commands, "compile_commands.json"), "w", encoding="utf-8") as plain:
    json.dump(entries, plain)
for file in sorted({os.path.relpath(os.path.join(entry["directory"], entry["file"])) for entry in entries}):
    if not file.startswith((build, "..", "tests/")):
        print(file)
PY
)
echo "${#files[@]} files"
((${#files[@]} > 0)) || exit 1
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I FILE \
    sh -c 'echo "FILE"; exec clang-tidy-19 --quiet -p "$0" FILE 2>/dev/null' "$commands"
