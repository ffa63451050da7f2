# SPDX-License-Identifier: Apache-2.0
# The suites of `check`. Each has a line in the table and a function suite_NAME, which adds to
# `passed` and `failed`; a suite that ends with both at zero has failed.

# name, purposes of the packages it needs (see packages.sh), seconds after which it hangs (several times what it takes), description
suite_table="
format       format                       60   clang-format 19 changes no source file
style        -                            60   rules for source files that no compiler knows
reuse        reuse                        60   every file has a licence and an owner
unit         build,tests                 120   one executable per source file of tests/unit
sim          build,tests                 120   client and server on the loop provider, faults injected
"
[[ ! -d tests/integration ]] || suite_table+="
integration  build,tests,nfs_tools,wireshark 400   real processes on 127.0.0.1
"
[[ ! -e tests/lab/lab ]] || suite_table+="
lab          build,tests,lab             900   a stock kernel 6.1 under qemu as the peer, the smoke scenarios
"
default_suites=$(awk 'NF {print $1}' <<<"$suite_table")
suite_table+="
quickstart   build,tests,nfs_tools       300   \`./quickstart --once\`: the main job on real files
gcc          build,tests,gcc             600   unit, sim and integration, built by g++ 12 at -O0
asan         build,tests,sanitizers      600   unit, sim and integration under ASan and UBSan
lab_asan     build,tests,lab,sanitizers  900   the smoke scenarios and the verbs suites on rxe under ASan and UBSan
tsan         build,tests,sanitizers      600   unit and integration under TSan, three shards, scrapes running
fuzz         build,tests,sanitizers      400   each target of tests/fuzz for a while, under ASan and UBSan
coverage     build,tests,sanitizers      300   what decodes a stranger's bytes, format by format: 95 % of the lines of each file
embed        build,gcc                   400   verbena as a Meson subproject, with an embedder's defaults
tidy         build,tests,tidy           1500   clang-tidy 19 over what is not a test
lab612       build,tests,lab             900   the smoke scenarios on kernel 6.12
power        build,tests,lab             900   a guest loses its power 3 times under load
cells        build,tests,lab,wireshark 10800   the interoperation matrix at CI size, on kernel 6.1
lab_full     build,tests,lab,wireshark 36000   matrix and loss of power at full size, both kernels, into docs/interop.md
"

# All but what has an option of its own.
all_suites() { awk 'NF && $1 != "lab_full" {print $1}' <<<"$suite_table"; }
suite_field() { awk -v name="$1" -v field="$2" '$1 == name {print $field}' <<<"$suite_table"; }
suite_purposes() { suite_field "$1" 2 | tr -s ',-' '\n'; }
suite_share() { suite_field "$1" 3; }

# --- running ----------------------------------------------------------------------------------

# meson_suites FOLDER SECONDS SUITE...: runs those Meson suites that exist in FOLDER and counts. Four jobs more than processors: most
# of their time is waiting.
meson_suites() {
    local dir=$1 limit=$2 suite log counts
    shift 2
    for suite in "$@"; do
        log=$dir-$suite
        BOOST_TEST_REPORT_LEVEL=short BOOST_TEST_LOG_LEVEL=message BOOST_TEST_COLOR_OUTPUT=no step "$limit" "$log" \
            meson test -C "$dir" --no-rebuild --num-processes $((jobs + 4)) --suite "$suite" --logbase "$suite" \
            --print-errorlogs
        local status=$?
        counts=$(python3 tests/tools/count_tests.py "$dir/meson-logs/$suite.json") || counts='0 1'
        local good bad
        read -r good bad <<<"$counts"
        ((good + bad > 0 && (status == 0 || bad > 0))) || bad=$((bad + 1))
        passed=$((passed + good))
        failed=$((failed + bad))
        if ((bad)); then
            show_log "$log" 120
            tail -n +2 <<<"$counts" | sed 's/^/  /'
        fi
    done
}

# The Meson suites that the tree has, of those named.
present() {
    local suite
    for suite in "$@"; do [[ ! -d tests/$suite ]] || printf '%s\n' "$suite"; done
}

# verdict NAME COMMAND...: one test, passed if COMMAND succeeds.
verdict() {
    local name=$1
    shift
    if step "$share" "$name" "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        show_log "$name"
    fi
}

# counted NAME COMMAND...: a command that ends in a line `N passed, N failed`.
counted() {
    local name=$1 status=0
    shift
    step "$share" "$name" "$@" || status=$?
    if [[ $(tail -n 1 "$logs/$name.log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    fi
    ((status == 0 || failed > 0)) || failed=1
    ((failed == 0)) || show_log "$name"
}

# --- the suites -------------------------------------------------------------------------------

# Builds as build_in does, with a row of its own in the summary, so that the suite which happens to
# build first is not charged with it. A suite whose build failed has failed.
built_in() {
    local start=$SECONDS known=${built[$1]:-}
    build_in "$@" || failed=$((failed + 1))
    if [[ -z $known ]]; then
        rows+=("$(printf '%-14s %6d s %17s' "$1" $((SECONDS - start)) "${built[$1]}")")
        begun=$((begun + SECONDS - start))
    fi
    [[ ${built[$1]} == ok ]]
}
# With --all the other builds, and what else needs no processor for itself, go on beside the suites from the first build on.
build_clang() {
    local first=${built[build]:-}
    built_in build clang++-19 || return
    [[ $all == no || -n $first ]] || queue_ahead
}
queue_ahead() {
    ! can_run gcc || build_gcc build_ahead
    ! can_run asan || build_asan build_ahead
    ! can_run tsan || build_tsan build_ahead
    ! can_run embed || begin_embed begin_queued $((3 * $(suite_share embed)))
    ! can_run tidy || begin_tidy begin_queued $((3 * $(suite_share tidy)))
}
can_run() { [[ " $suites " == *[[:space:]]$1[[:space:]]* && -z $(missing_packages $(packages_of "$1")) ]]; }

suite_format() { verdict format tests/tools/format.sh; }
suite_reuse() { verdict reuse reuse lint; }
suite_style() { counted style python3 tests/tools/source_rules.py; }
suite_unit() { build_clang && meson_suites build "$share" unit; }
suite_sim() { build_clang && meson_suites build "$share" sim; }
# With --all the large directory has as many entries as are promised: a quarter of a minute more.
suite_integration() {
    [[ $all == no ]] || local -x VERBENA_TEST_ENTRIES=100000
    build_clang && meson_suites build "$share" integration
}

# in_lab NAME COMMAND...: a command of the lab as one step.
in_lab() {
    local name=$1 more=()
    shift
    [[ $install == yes ]] || more=(--no-install)
    build_clang && counted "$name" tests/lab/lab "$@" --build build "${more[@]}"
}
# Guests keep a processor busy each.
boots=$((jobs > 1 ? 2 : 1))
suite_lab() {
    build_clang || return
    local more=()
    [[ $install == yes ]] || more=(--no-install)
    if ! step "$share" lab_prepare tests/lab/lab prepare --kernel 6.1 "${more[@]}"; then
        failed=1
        show_log lab_prepare
        return
    fi
    # The lab's own test mostly waits.
    begin_beside "$share" lab_failing python3 tests/lab/failing_test.py
    in_lab lab smoke --boots $boots --kernel 6.1
    if end_beside lab_failing; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        show_log lab_failing
    fi
}
# Guests of one processor, which take half the time; on 6.1 they have two.
suite_lab612() { in_lab lab612 smoke --boots $boots --cpus 1 --kernel 6.12; }
# All. With --within the brief ones always, and of the others those that begin seven minutes before its end, as the longest take that;
# what is left out is named and counted.
suite_cells() {
    build_clang || return
    local limit=()
    if ((within)); then
        local more=$((within - 420 - SECONDS))
        limit=(--brief --more $((more > 0 ? more : 0)))
        share=3000
    fi
    in_lab cells cells "${limit[@]}" --boots $boots --size ci --kernel 6.1
    local left
    left=$(grep -sE '^[0-9]+ left out for want of time' "$logs/cells.log") || return 0
    printf '  %s\n' "$left"
    not_run+=("${left%% *} cells")
}
suite_power() { in_lab power power --kills 3 --kernel 6.1; }
suite_lab_full() { in_lab lab_full full --boots $boots --size full --kernel 6.1 --kernel 6.12 --report docs/interop.md; }

suite_quickstart() {
    local more=()
    [[ $install == yes ]] || more=(--no-install)
    build_clang && verdict quickstart ./quickstart --once "${more[@]}"
}

# -O0 is an embedder's Meson default, and where g++ 12 has no tail calls at all.
build_gcc() { "$1" build-gcc g++-12 -Doptimization=0 -Ddebug=false; }
suite_gcc() {
    build_gcc built_in &&
        meson_suites build-gcc "$share" $(present unit sim integration) &&
        counted coroutine_frames python3 tests/tools/coroutine_frames.py build-gcc
}
# One build serves asan and fuzz: a sanitizer build is what costs most.
# No vptr check: it asks for a pipe at times, and fails where a test has used up all descriptors.
build_asan() {
    "$1" build-asan clang++-19 -Doptimization=1 -Ddebug=false -Dfuzz=enabled \
        -Db_sanitize=address,undefined -Db_lundef=false \
        '-Dcpp_args=-gline-tables-only -fno-sanitize-recover=undefined -fno-sanitize=vptr'
}
under_asan() { ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"; }
suite_asan() { build_asan built_in && under_asan meson_suites build-asan "$share" $(present unit sim integration); }
# All smoke scenarios in which something of ours runs.
suite_lab_asan() {
    local more=()
    [[ $install == yes ]] || more=(--no-install)
    build_asan built_in &&
        under_asan counted lab_asan tests/lab/lab run siw-guest client-knfsd siw-host tcp-guest 'rdma-guest rxe' 'conform-rdma rxe' \
            --boots $boots --cpus 1 --kernel 6.1 --build build-asan "${more[@]}"
}
build_tsan() {
    "$1" build-tsan clang++-19 -Doptimization=1 -Ddebug=false -Dcpp_args=-gline-tables-only -Db_sanitize=thread -Db_lundef=false
}
suite_tsan() {
    build_tsan built_in &&
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 VERBENA_TEST_SHARDS=3 VERBENA_TEST_SCRAPES=1 \
            meson_suites build-tsan "$share" $(present unit integration)
}
suite_fuzz() { build_asan built_in && meson_suites build-asan "$share" fuzz; }
suite_coverage() { build_clang && counted coverage tests/tools/coverage.py build build-coverage; }
# outcome NAME: the verdict on a step that goes on beside, of which the suite NAME consists.
outcome() {
    if end_beside "$1"; then
        passed=1
    else
        failed=1
        show_log "$1"
    fi
}
begin_embed() { "$1" "$2" embed tests/embed/run.sh subproject; }
suite_embed() {
    [[ -n ${beside[embed]:-} ]] || begin_embed begin_beside "$share"
    outcome embed
}
begin_tidy() { "$1" "$2" tidy tests/tools/tidy.sh build; }
suite_tidy() {
    build_clang || return
    [[ -n ${beside[tidy]:-} ]] || begin_tidy begin_beside "$share"
    outcome tidy
}
