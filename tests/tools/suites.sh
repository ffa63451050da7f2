# SPDX-License-Identifier: Apache-2.0
# The suites of `check`. Each has a line in the table and a function suite_NAME, which adds to
# `passed` and `failed`; a suite that ends with both at zero has failed.

# name, tier, purposes of the packages it needs (see packages.sh), seconds after which it hangs (several times what it takes; `--slow`
# multiplies them), share of the 12 minutes in seconds (`./check` on a machine that has nothing yet), description
suite_table="
format       check  format                       60    5  clang-format 19 changes no source file
style        check  -                            60    5  rules for source files that no compiler knows
reuse        check  reuse                        60    5  every file has a licence and an owner
unit         check  build,tests,sanitizers      1800   -  all unit tests and fuzz corpora, under ASan and UBSan
sim          check  build,tests,sanitizers      1800   -  client and server on the loop provider: fixed seeds, and fresh ones for at most half a minute
integration  check  build,tests,sanitizers,nfs_tools,wireshark 1800 - real processes on 127.0.0.1, under ASan and UBSan
lab          check  build,tests,sanitizers,lab  900  130  a stock kernel 6.1 as the peer of the same binaries, the smoke scenarios
tsan         hand   build,tests,sanitizers,nfs_tools 400 -   what has threads under TSan, verbenad with three shards and scrapes
quickstart   check  build,tests,sanitizers,nfs_tools 400 5  \`./quickstart --once\`: the main job on real files, by the programs of the tests; in --all by those that users have
plain        all    build,tests,gcc,nfs_tools,wireshark,block_tools 900 -  unit, sim and integration at -O2 without sanitizers; consumers of the installed package, by other compilers and flags
gcc          all    build,tests,gcc             600    -  unit, built by g++ 12 without precompiled headers, as an embedder builds: at -O0, and at -O2 with -Drdma=disabled; libverbena.so
no_rdma      hand   build,tests                 300    -  unit, built by clang 19 with -Drdma=disabled
tsan_full    all    build,tests,sanitizers,nfs_tools,wireshark 1500 -  unit and integration under TSan
site         all    site                        300    -  docs/site.sh: pages and API reference as HTML, without a warning, a broken link or anything from elsewhere
tidy         all    build,tests,tidy           1500    -  clang-tidy 19 over what is not a test
coverage     all    build,tests,sanitizers      300    -  what decodes a stranger's bytes, format by format: 95 % of the lines of each file
fuzz         all    build,tests,sanitizers      900    -  each target of tests/fuzz with drawn seeds and the corpus kept from earlier runs
sim_seeds    all    build,tests                1500    -  5,000 fresh seeds of simulation
lab612       all    build,tests,lab             900    -  the smoke scenarios on kernel 6.12
power        all    build,tests,lab            1500    -  a guest loses its power ten times under load of files, twice under that of a block device
package      all    build,tests,gcc,package,package_test 900 -  Debian packages, installed, used, upgraded and removed in a root that has nothing else
day          all    build,tests,gcc,package,package_test,day 1800 - an operator's day on a host that systemd boots, from the installation to the purge; and the container image
cells        all    build,tests,lab,wireshark  3600    -  twenty cells of the interoperation matrix at CI size, on kernel 6.1
mutants_changed all build,tests                3600    -  known bugs planted in the sources that a change touches, for 20 minutes: new ones, then drawn ones; a test must see each
mutants      hand   build,tests                3600    -  known bugs planted one at a time, each of which a test must see
lab_full     full   build,tests,lab,wireshark 36000    -  the lab's own test, matrix and loss of power at full size, both kernels, into docs/interop.md
"

suites_of() { awk -v tiers=" $* " 'NF && index(tiers, " " $2 " ") {print $1}' <<<"$suite_table"; }
suite_field() { awk -v name="$1" -v field="$2" '$1 == name {print $field}' <<<"$suite_table"; }
suite_purposes() { suite_field "$1" 3 | tr -s ',-' '\n'; }
suite_limit() { suite_field "$1" 4; }
suite_share() { suite_field "$1" 5; }
# Shares of what is no suite: the packages, the builds, and the run of unit, sim and integration.
declare -A build_share=([packages]=80 [build-asan]=300 [build]=180 [tests]=190)

# --- running ----------------------------------------------------------------------------------

# run_meson FOLDER SECONDS SUITE...: runs those Meson suites of FOLDER at once, and leaves the outcome in meson-logs/SUITE-SUITE.json. So many jobs
# more than processors, as most of the time of whole programs is waiting.
run_meson() {
    local dir=$1 limit=$2 base suite wanted=()
    shift 2
    base=$(tr ' ' - <<<"$*")
    for suite in "$@"; do wanted+=(--suite "$suite"); done
    rm -f "$dir/meson-logs/$base.json"
    BOOST_TEST_REPORT_LEVEL=short BOOST_TEST_LOG_LEVEL=message BOOST_TEST_COLOR_OUTPUT=no step "$limit" "$dir-$base" \
        meson test -C "$dir" --no-rebuild --num-processes $((jobs + 6)) -t "$slow" "${wanted[@]}" --logbase "$base" --print-errorlogs
}

# count_meson FOLDER STATUS BASE [SUITE]: counts what run_meson did, or of that one suite alone. STATUS is what it returned.
count_meson() {
    local dir=$1 status=$2 base=$3 counts good bad
    counts=$(python3 tests/tools/count_tests.py "$dir/meson-logs/$base.json" "${@:4}") || counts='0 1'
    read -r good bad <<<"$counts"
    # One suite of several may be good where another was not. From 100 on it is no number of failed tests: the run came to no end.
    ((good + bad > 0 && (status == 0 || bad > 0 || ($# == 4 && status < 100)))) || bad=$((bad + 1))
    passed=$((passed + good))
    failed=$((failed + bad))
    if ((bad)); then
        show_log "$dir-$base" 120
        tail -n +2 <<<"$counts" | sed 's/^/  /'
    fi
}

# meson_suites FOLDER SECONDS SUITE...: runs those Meson suites of FOLDER and counts all.
meson_suites() {
    local status=0
    run_meson "$@" || status=$?
    count_meson "$1" "$status" "$(tr ' ' - <<<"${*:3}")"
}

# verdict NAME COMMAND...: one test, passed if COMMAND succeeds.
verdict() {
    local name=$1
    shift
    if step "$limit" "$name" "$@"; then
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
    step "$limit" "$name" "$@" || status=$?
    if [[ $(tail -n 1 "$logs/$name.log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    elif ((status == 0)); then
        status=1 # it came to no end
    fi
    ((status == 0 || failed > 0)) || failed=1
    ((failed == 0)) || show_log "$name"
}

# outcome NAME: the verdict on a step that goes on beside.
outcome() {
    if end_beside "$1"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        show_log "$1"
    fi
}

# --- builds -----------------------------------------------------------------------------------

# Builds as build_in does, with a row of its own in the summary, so that the suite which happens to
# build first is not charged with it. A suite whose build failed has failed.
built_in() {
    local start=$SECONDS known=${built[$1]:-}${built_part[$1]:-} took
    build_in "$@" || failed=$((failed + 1))
    if [[ $known != "${built[$1]}${built_part[$1]}" ]]; then
        took=$((SECONDS - start))
        row "$1" "$took" "${build_share[$1]:--}" "${built[$1]}"
        begun=$((begun + took))
    fi
    [[ ${built[$1]} == ok ]]
}
runs() { [[ " $(xargs <<<"$suites") " == *" $1 "* ]]; }
can_run() { runs "$1" && [[ -z $(missing_packages $(packages_of "$1")) ]]; }

# The one build of `./check`: libraries, programs and all tests. What it finds ends the test.
# Not optimized, as with TSan: a library takes half as long to compile as at -O1, and the suites a fifth longer.
# Undefined behaviour is an illegal instruction, which ASan reports with its line. What would name the kind is a fifth of
# each object, and most of the 780,000 addresses that each start of verbenad fills in.
# No vptr check: it asks for a pipe at times, and fails where a test has used up all descriptors.
sanitized='-gline-tables-only -fsanitize-trap=undefined -fno-sanitize=vptr'
asan_build() {
    "$1" build-asan clang++-19 -Doptimization=0 -Ddebug=false -Db_sanitize=address,undefined -Db_lundef=false "-Dcpp_args=$sanitized"
}
tsan_build() {
    "$1" build-tsan clang++-19 -Doptimization=0 -Ddebug=false -Dcpp_args=-gline-tables-only -Db_sanitize=thread -Db_lundef=false
}
# What goes on beside the suites, at the lowest priority and one after the other, as most of their time is waiting.
queue_builds() {
    [[ -z ${queued_builds:-} ]] || return 0
    queued_builds=yes
    if can_run tsan_full; then
        tsan_build build_ahead
    elif can_run tsan; then
        targets=threads tsan_build build_ahead
    fi
    if can_run plain; then
        release_build build_ahead
    fi
    ! can_run gcc || { gcc_build build_ahead 0 && gcc_build build_ahead 2; }
    ! can_run tidy || begin_tidy begin_queued $((3 * $(suite_limit tidy)))
}
built_asan() {
    # Kernel, modules and data: mostly a download, beside the compiler.
    if can_run lab && [[ -z ${beside[lab_prepare]:-} ]]; then
        begin_beside "$(suite_limit lab)" lab_prepare tests/lab/lab prepare --kernel 6.1 "${uninstalled[@]}"
    fi
    asan_build built_in || return
    queue_builds
}
built_plain() { release_build built_in && queue_builds; }
# At -O0 all there is. At -O2 the unit tests and what they need, and no RDMA: that is one build less than where another compiler leaves it out.
gcc_build() {
    if [[ $2 == 0 ]]; then
        "$1" build-gcc-O0 g++-12 -Doptimization=0 -Ddebug=false -Db_pch=false -Dshared=enabled
    else
        targets=tests:unit "$1" build-gcc-O2-no-rdma g++-12 -Doptimization=2 -Ddebug=false -Db_pch=false -Drdma=disabled
    fi
}
no_rdma_build() { targets=tests:unit "$1" build-no-rdma clang++-19 -Doptimization=0 -Ddebug=false -Drdma=disabled; }
fuzz_build() {
    targets=fuzzers "$1" build-fuzz clang++-19 -Doptimization=1 -Ddebug=false -Dfuzz=enabled \
        -Db_sanitize=address,undefined -Db_lundef=false "-Dcpp_args=$sanitized"
}
under_asan() { ASAN_OPTIONS=detect_stack_use_after_return=1:handle_sigill=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"; }
# What sendmsg() reads counts when it returns, which may be when the peer has it, and answers by another shard.
under_tsan() { TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:intercept_send=0 VERBENA_TEST_SHARDS=3 VERBENA_TEST_SCRAPES=1 "$@"; }

# --- ./check ----------------------------------------------------------------------------------

suite_format() { verdict format tests/tools/format.sh; }
suite_reuse() { verdict reuse reuse lint; }
suite_style() { counted style python3 tests/tools/source_rules.py; }
# Those of unit, sim and integration that are wanted run at once: what waits in one leaves the processors to the others. The first suite
# that asks runs them, with a row of its own in the summary, and each counts its own.
of_asan=
asan_status=0
count_asan() {
    local suite=$1 start took
    built_asan || return
    start=$SECONDS # the build has a row of its own
    if [[ -z $of_asan ]]; then
        of_asan=$(for each in unit sim integration; do ! can_run $each || printf '%s ' $each; done | xargs)
        # All simulations together have half a minute of one processor for fresh seeds, whatever is added.
        local -x VERBENA_SIM_FRESH=100 VERBENA_SIM_SECONDS
        VERBENA_SIM_SECONDS=$((30 / $(cat tests/sim/*_test.cpp | grep -c 'fresh_seeds(\[')))
        under_asan run_meson build-asan "$limit" $of_asan || asan_status=$?
        took=$((SECONDS - start))
        row tests "$took" "${build_share[tests]}" ''
        begun=$((begun + took))
    fi
    count_meson build-asan "$asan_status" "${of_asan// /-}" "$suite"
}
suite_unit() { count_asan unit; }
suite_sim() { count_asan sim && told_seeds "build-asan/meson-logs/${of_asan// /-}.txt"; }
suite_integration() { count_asan integration; }
told_seeds() { grep -ohE 'fresh seeds: .*' "$1" | sed 's/^/  /'; }

# in_lab NAME FOLDER COMMAND...: a command of the lab as one step, on the programs in FOLDER.
in_lab() {
    local name=$1 dir=$2
    shift 2
    counted "$name" tests/lab/lab "$@" --build "$dir" "${uninstalled[@]}"
}
# Guests keep a processor busy each.
boots=$((jobs > 1 ? 2 : 1))
suite_lab() {
    built_asan || return
    if ! end_beside lab_prepare; then
        failed=1
        show_log lab_prepare
        return
    fi
    ! can_run quickstart || can_run plain || begin_quickstart
    under_asan in_lab lab build-asan smoke --boots $boots --kernel 6.1
}
suite_tsan() { targets=threads tsan_build built_in && under_tsan meson_suites build-tsan "$limit" threads; }
# With the programs that are there, beside the lab: another build takes three minutes. With the suite `plain` there is the one that users have.
begin_quickstart() {
    VERBENA_BUILD=build-asan begin_beside "$(suite_limit quickstart)" quickstart ./quickstart --once "${uninstalled[@]}"
}
suite_quickstart() {
    if can_run plain; then
        targets=$quickstart_targets release_build built_in || return
        verdict quickstart ./quickstart --once "${uninstalled[@]}"
    else
        built_asan || return
        [[ -n ${beside[quickstart]:-} ]] || begin_quickstart
        outcome quickstart
    fi
}

# --- ./check --all ----------------------------------------------------------------------------

# The large directory has as many entries as are promised, and the block daemon as many sessions.
suite_plain() {
    built_plain && VERBENA_TEST_ENTRIES=100000 VERBENA_TEST_SESSIONS=64 meson_suites build "$limit" unit sim integration &&
        verdict flags tests/embed/run.sh flags build && verdict tutorial tests/embed/run.sh tutorial build
}
# -O0 is an embedder's Meson default, and where g++ 12 has no tail calls at all.
suite_gcc() {
    gcc_build built_in 0 && meson_suites build-gcc-O0 "$limit" unit &&
        counted coroutine_frames python3 tests/tools/coroutine_frames.py build-gcc-O0 &&
        verdict subproject tests/embed/run.sh subproject build-gcc-O0 &&
        verdict shared tests/embed/run.sh shared build-gcc-O0
    gcc_build built_in 2 && meson_suites build-gcc-O2-no-rdma "$limit" unit
}
suite_no_rdma() { no_rdma_build built_in && meson_suites build-no-rdma "$limit" unit; }
suite_site() { verdict site docs/site.sh; }
suite_tsan_full() { tsan_build built_in && under_tsan meson_suites build-tsan "$limit" unit integration; }
begin_tidy() { "$1" "$2" tidy tests/tools/tidy.sh build; }
suite_tidy() {
    built_plain || return
    [[ -n ${beside[tidy]:-} ]] || begin_tidy begin_beside "$limit"
    outcome tidy
}
suite_package() { built_plain && verdict package tests/package/run.sh build; }
suite_day() { built_plain && counted day tests/day/run.sh build; }
suite_coverage() { built_plain && counted coverage tests/tools/coverage.py build build-coverage; }
suite_fuzz() { fuzz_build built_in && under_asan meson_suites build-fuzz "$limit" fuzz; }
suite_sim_seeds() {
    built_plain && VERBENA_SIM_FRESH=5000 VERBENA_SIM_SECONDS=0 meson_suites build "$limit" sim
    told_seeds build/meson-logs/sim.txt
}
suite_lab612() { built_plain && in_lab lab612 build smoke --boots $boots --kernel 6.12; }
suite_power() { built_plain && in_lab power build power --kills 10 --kernel 6.1; }
suite_cells() { built_plain && in_lab cells build cells --boots $boots --size ci --kernel 6.1; }

# --- by hand ----------------------------------------------------------------------------------

suite_mutants_changed() { counted mutants_changed python3 tests/mutants/run.py --changed --seconds 1200; }
suite_mutants() { counted mutants python3 tests/mutants/run.py; }

# --- ./check --lab-full -----------------------------------------------------------------------

suite_lab_full() {
    built_plain || return
    verdict lab_failing python3 tests/lab/failing_test.py
    in_lab lab_full build full --boots $boots --size full --kernel 6.1 --kernel 6.12 --report docs/interop.md
}
