#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails if clang-format 19 would change a source file, and shows the change; --fix makes it.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(tests/tools/sources.sh '*.cpp' '*.hpp' '*.h')
if [[ ${1:-} == --fix ]]; then
    exec clang-format-19 -i "${files[@]}"
fi
status=0
for file in "${files[@]}"; do
    clang-format-19 "$file" | diff -u --label "$file" --label "$file (formatted)" "$file" - || status=1
done
((status == 0)) || echo 'tests/tools/format.sh --fix does this'
exit $status
