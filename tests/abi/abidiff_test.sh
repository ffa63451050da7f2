#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# abidiff_test.sh COMPILER...: abidiff.sh sees a member that moves, in a small library built twice, and nothing where there is nothing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for build in old same moved; do
    member='int after = 0;'
    [[ $build != moved ]] || member='long before = 0; int after = 0;'
    # Something is added too, which alone must not count.
    added=$([[ $build == old ]] || echo 'int added() { return 1; }')
    printf 'namespace v { struct thing { %s };\nint use(thing& t) { return t.after; }\n%s }\n' "$member" "$added" >"$work/$build.cpp"
    "$@" -g -fPIC -shared "$work/$build.cpp" -o "$work/$build.so"
done
here=$(dirname "$0")
"$here/abidiff.sh" "$work/old.so" "$work/same.so"
status=0
"$here/abidiff.sh" "$work/old.so" "$work/moved.so" >"$work/said" || status=$?
cat "$work/said"
((status == 1))
grep -q "struct v::thing" "$work/said"
grep -q "offset changed from 0 to 64" "$work/said"
