#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails if clang-format 19 would change a source file, and shows the change; --fix makes it, and wraps prose in documents, which is a
# rule of suite `style`.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(tests/tools/sources.sh '*.cpp' '*.hpp' '*.h')
if [[ ${1:-} == --fix ]]; then
    clang-format-19 -i "${files[@]}"
    mapfile -t documents < <(tests/tools/sources.sh '*.md')
    exec python3 tests/tools/prose.py --fix "${documents[@]}"
fi
! clang-format-19 --dry-run -Werror "${files[@]}" 2>/dev/null || exit 0
# A process for each file takes ten times as long: only to show what to change.
for file in "${files[@]}"; do
    clang-format-19 "$file" | diff -u --label "$file" --label "$file (formatted)" "$file" - || true
done
echo 'tests/tools/format.sh --fix does this'
exit 1
