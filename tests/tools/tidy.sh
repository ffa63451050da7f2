#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh BUILD: clang-tidy 19 over every project source that BUILD compiles, with .clang-tidy's
# checks. The tests are left out: Boost.Test's macros take ten seconds a file and hide what is ours.
#
# Nearly all that a check reads is headers, the standard library's above all. So files of one target are
# read together, eight as one translation unit, which takes no longer than one of them. Files that don't
# compile so, by a name that two of them have in an anonymous namespace, are read one by one. That a file of
# a program includes what it uses is looked at for each.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?tidy.sh BUILD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t units < <(python3 - "$build" "$work" <<'PY'
import collections, json, os, re, sys
build, work = sys.argv[1:]
targets = collections.defaultdict(dict)
commands = []
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
    entries = json.load(file)
for entry in entries:
    path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
    if not path.endswith(".cpp") or os.path.relpath(path).startswith((build, "..", "tests/")):
        continue
    # Without the precompiled headers: checks of the preprocessor see nothing of what is in them.
    entry["command"] = re.sub(r" -include-pch \S+| -Winvalid-pch", "", entry["command"])
    commands.append(entry)
    targets[os.path.dirname(entry["output"])][path] = entry
known = set()
for target, files in sorted(targets.items()):
    paths = sorted(set(files) - known)
    known.update(paths)
    count = -(-len(paths) // 8)
    for i in range(count):
        part = paths[i * len(paths) // count:(i + 1) * len(paths) // count]
        if len(part) > 1:
            unit = os.path.join(work, f"{len(commands)}.cpp")
            with open(unit, "w", encoding="utf-8") as file:
                file.writelines(f'#include "{path}" // NOLINT(bugprone-suspicious-include)\n' for path in part)
            entry = files[part[0]]
            commands.append({"directory": entry["directory"], "file": unit,
                             "command": re.sub(r" -o \S+ -c \S+$", f" -c {unit}", entry["command"])})
            print(unit, *map(os.path.relpath, part))
        else:
            print(os.path.relpath(part[0]))
with open(os.path.join(work, "compile_commands.json"), "w", encoding="utf-8") as file:
    json.dump(commands, file)
PY
)
echo "${#units[@]} units"
((${#units[@]} > 0)) || exit 1
# read_unit WORK UNIT [FILE...]: FILEs are what the unit is made of, if not one file.
read_unit() {
    local work=$1 unit=$2 found=$1/${2//\//_}.found file status=0
    shift 2
    printf '%s\n' "${@:-$unit}"
    # The suite `embed` compiles the libraries without precompiled headers, each file by itself; nobody else does so with programs.
    for file in "$@"; do
        [[ $file != services/* ]] || clang-tidy-19 --quiet --config='{}' --checks='-*,llvm-twine-local' -p "$work" "$file" 2>/dev/null || status=1
    done
    ((status == 0)) || return 1
    clang-tidy-19 --quiet --config-file=.clang-tidy -p "$work" "$unit" >"$found" 2>/dev/null && return
    if (($#)) && grep -q clang-diagnostic-error "$found"; then
        for file in "$@"; do clang-tidy-19 --quiet --config-file=.clang-tidy -p "$work" "$file" 2>/dev/null || status=1; done
        return $status
    fi
    cat "$found"
    return 1
}
export -f read_unit
# What is read by way of a unit must be seen: a defect in a file of a layer is.
mkdir "$work/core"
echo 'bool planted(int n) { return n == n; }' >"$work/core/planted.cpp"
echo '#include "core/planted.cpp"' >"$work/planted.cpp"
if clang-tidy-19 --quiet --config-file=.clang-tidy "$work/planted.cpp" -- -std=c++20 >"$work/found" 2>&1 ||
    ! grep -q 'core/planted.cpp.*misc-redundant-expression' "$work/found"; then
    echo 'a planted defect is not found:'
    cat "$work/found"
    exit 1
fi
printf '%s\0' "${units[@]}" | xargs -0 -P "$(nproc)" -I UNIT bash -c 'read_unit "$0" $1' "$work" UNIT
