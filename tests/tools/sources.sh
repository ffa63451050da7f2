#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sources.sh [PATTERN...]: the files of the project whose names match, one per line: what git tracks
# or would track, and in a tree without git all that lies outside of build folders.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ -e .git ]] && git rev-parse --git-dir >/dev/null 2>&1; then
    # A file that was removed but not yet staged is still listed.
    git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
        [[ ! -f $file ]] || printf '%s\n' "$file"
    done | sort
else
    tests=()
    for pattern in "$@"; do tests+=(-o -name "$pattern"); done
    ((${#tests[@]})) || tests=(-o -true)
    find . -path './build*' -prune -o -path ./.git -prune -o -type f \( "${tests[@]:1}" \) -print |
        sed 's|^\./||' | sort
fi
