# SPDX-License-Identifier: Apache-2.0
# Build folders. Sourced by `check` and `quickstart`, which share `build`; as a command, `build.sh FOLDER COMPILER [MESON
# OPTION...]` builds one.

jobs=$(nproc)
# Where ccache is installed, one checkout's objects serve the next one, wherever it lies.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
declare -A built=()      # build folder -> ok | failed
declare -A built_part=() # and the targets that were built, nothing for all

# build_in FOLDER COMPILER [MESON OPTION...]: configures once, then builds $targets (all if empty; tests:SUITE for what the tests
# of a Meson suite need). The first call of a run builds, or waits for a build that is queued; later ones return what came out
# of it, unless they ask for more.
build_in() {
    local dir=$1 status=ok
    if [[ -z ${built[$dir]:-} || (${built[$dir]} == ok && -n ${built_part[$dir]} && ${targets:-} != "${built_part[$dir]}") ]]; then
        [[ $dir == build ]] || printf '  building in %s\n' "$dir"
        if [[ -n ${beside[$dir]:-} && ${queued_part[$dir]} != "${targets:-}" ]]; then
            end_beside "$dir" # of other targets
        fi
        if [[ -n ${beside[$dir]:-} ]]; then
            end_beside "$dir"
        else
            step 1500 "$dir" env targets="${targets:-}" bash tests/tools/build.sh "$@"
        fi || {
            status=failed
            printf '  %s does not build:\n' "$dir"
            grep -A 40 -m 3 -E '^FAILED|error:|ERROR' "$logs/$dir.log" | head -n 80 | sed 's/^/    /'
        }
        built[$dir]=$status
        built_part[$dir]=${targets:-}
    fi
    [[ ${built[$dir]} == ok ]]
}
# The folder `build`: optimized, and stack traces have lines. All else that a debugger wants is a sixth of what clang takes.
release_build() { "$1" build clang++-19 -Ddebug=false -Dcpp_args=-gline-tables-only; }
# What `./quickstart` needs of it.
quickstart_targets='services/verbenad services/verbena services/nbdkit-verbena-plugin.so'
# Queues what build_in of the same arguments then waits for.
declare -A queued_part=()
build_ahead() {
    queued_part[$1]=${targets:-}
    begin_queued 3000 "$1" env targets="${targets:-}" bash tests/tools/build.sh "$@"
}

configure() {
    local dir=$1 compiler=$2 linker=lld
    shift 2
    [[ ! -f $dir/build.ninja ]] || return 0
    # Debian's lld-19 has no name by which g++ would find it.
    [[ $compiler == clang* ]] || linker=bfd
    # ccache keeps no file that reads a precompiled header, and made to (sloppiness), it gives old headers back.
    ! command -v ccache >/dev/null || { compiler="ccache $compiler" && set -- "$@" -Db_pch=false; }
    CXX=$compiler CXX_LD=$linker meson setup "$dir" -Dwerror=true "$@"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    configure "$@" || exit
    if [[ ${targets:-} == tests:* ]]; then
        ninja -C "$1" build.ninja >/dev/null || exit # what it knows of tests is not older than the sources
        targets=$(python3 tests/tools/test_targets.py "$1" "${targets#tests:}") || exit
    fi
    # Large pages: clang takes a quarter less of the processor, most of all where a page fault is dear, as in a guest.
    export GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864
    # One job more than processors: a compiler waits for its headers now and then.
    exec ninja -C "$1" -j $((jobs + 1)) ${targets:-}
fi
