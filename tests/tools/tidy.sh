#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh BUILD: clang-tidy 19 over every project source that BUILD compiles, with .clang-tidy's
# checks. The tests are left out: Boost.Test's macros take ten seconds a file and hide what is ours.
#
# Nearly all that a check reads is headers, the standard library's above all. So files of one target are
# read together, eight as one translation unit, which takes no longer than one of them. Files that don't
# compile so, by a name that two of them have in an anonymous namespace, are read one by one. So are, for what
# is seen of no file that another one includes, those with using-declarations; and those of a program, which
# must include what they use: the suite `embed` compiles the libraries without precompiled headers, file by file.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?tidy.sh BUILD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t units < <(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/tools python3 - "$build" "$work" <<'PY'
import collections, json, os, re, sys
import compile_commands
build, work = sys.argv[1:]
targets = collections.defaultdict(dict)
commands = []

def command_for(path, entry):
    command, count = re.subn(r" -o \S+ -c \S+$", f" -c {path}", entry["command"])
    if count != 1:
        sys.exit(f"unknown form of a command: {entry['command']}")
    return {"directory": entry["directory"], "file": path, "command": command}

for entry, paths in compile_commands.compiled(build):
    # Without the precompiled headers: checks of the preprocessor see nothing of what is in them.
    entry["command"] = re.sub(r" -include-pch \S+| -Winvalid-pch", "", entry["command"])
    for path in paths:
        if not path.endswith(".cpp") or os.path.relpath(path).startswith((build, "..", "tests/")):
            continue
        commands.append(command_for(path, entry))
        targets[os.path.dirname(entry["output"])][path] = entry
units = []

def add_unit(paths, entry):
    unit = os.path.join(work, f"{len(commands)}.cpp")
    with open(unit, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{path}" // NOLINT(bugprone-suspicious-include)\n' for path in paths)
    for path in [unit] + [path for path in paths if path.startswith(work)]:
        commands.append(command_for(path, entry))
    units.append([unit, *(path if path.startswith(work) else os.path.relpath(path) for path in paths)])

# The first one has defects that must be found, or nothing is.
planted = [os.path.join(work, "core", name) for name in ("planted.cpp", "planted_too.cpp")]
os.mkdir(os.path.dirname(planted[0]))
with open(planted[0], "w", encoding="utf-8") as file:
    file.write("namespace planted_here { void unused(); }\nusing planted_here::unused;\n")
with open(planted[1], "w", encoding="utf-8") as file:
    file.write("bool planted(int n) { return n == n; }\n")
add_unit(planted, next(iter(next(iter(targets.values())).values())))
known = set()
for target, files in sorted(targets.items()):
    paths = sorted(set(files) - known)
    known.update(paths)
    count = -(-len(paths) // 8)
    for i in range(count):
        part = paths[i * len(paths) // count:(i + 1) * len(paths) // count]
        if len(part) > 1:
            add_unit(part, files[part[0]])
        else:
            units.append([os.path.relpath(part[0])])
with open(os.path.join(work, "compile_commands.json"), "w", encoding="utf-8") as file:
    json.dump(commands, file)
for unit in units:
    print(*unit)
PY
)
((${#units[@]} > 1)) || exit 1
echo "${#units[@]} units"
# read_unit WORK UNIT [FILE...]: FILEs are what the unit is made of, if not one file.
read_unit() {
    local work=$1 unit=$2 found=$1/${2//\//_}.found file status=0
    shift 2
    printf '%s\n' "${@:-$unit}"
    for file in "$@"; do
        [[ $file == services/* ]] || grep -qE '^ *using [^=]*::[^=]*;' "$file" || continue
        clang-tidy-19 --quiet --config='{}' --checks='-*,misc-unused-using-decls' --warnings-as-errors='*' -p "$work" "$file" 2>/dev/null || status=1
    done
    clang-tidy-19 --quiet --config-file=.clang-tidy -p "$work" "$unit" >"$found" 2>/dev/null && return $status
    if (($#)) && grep -q clang-diagnostic-error "$found"; then
        for file in "$@"; do clang-tidy-19 --quiet --config-file=.clang-tidy -p "$work" "$file" 2>/dev/null || status=1; done
        return $status
    fi
    cat "$found"
    return 1
}
export -f read_unit
read -ra planted <<<"${units[0]}"
if read_unit "$work" "${planted[@]}" >"$work/planted" || ! grep -q 'planted_too.cpp:.*misc-redundant-expression' "$work/planted" ||
    ! grep -q 'planted.cpp:.*misc-unused-using-decls' "$work/planted"; then
    echo 'planted defects are not found:'
    cat "$work/planted"
    exit 1
fi
printf '%s\0' "${units[@]:1}" | xargs -0 -P "$(nproc)" -I UNIT bash -c 'read_unit "$0" $1' "$work" UNIT
