#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# abidiff.sh OLD NEW: what a release changes for binaries that were built against the one before, by abidiff (abigail-tools). OLD and
# NEW are build folders with debug information, or two shared objects. In folders it compares verbenad, as modules see it, and
# libverbena.so where both have it (-Dshared=enabled). Additions are no change. Exit status 0: none.
set -euo pipefail
(($# == 2)) || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
pairs=()
if [[ -d $1 && -d $2 ]]; then
    for file in services/verbenad libverbena.so; do
        if [[ -e $1/$file && -e $2/$file ]]; then pairs+=("$file"); fi
    done
    ((${#pairs[@]})) || { echo "$1 and $2 have no services/verbenad" >&2; exit 2; }
else
    pairs=('')
fi
changed=0
for file in "${pairs[@]}"; do
    status=0 # not --exported-interfaces-only, which finds nothing in what clang 19 writes
    abidiff --no-added-syms --leaf-changes-only --impacted-interfaces "$1${file:+/$file}" "$2${file:+/$file}" || status=$?
    # Bits: 1 error, 2 usage, 4 a change, 8 an incompatible one.
    (((status & 3) == 0)) || { echo "abidiff fails on ${file:-$1}" >&2; exit 2; }
    ((status == 0)) || { echo "${file:-$2}: changed"; changed=1; }
done
exit $changed
