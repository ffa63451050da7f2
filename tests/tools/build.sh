# SPDX-License-Identifier: Apache-2.0
# Build folders. Sourced by `check` and `quickstart`, which share `build`.

jobs=$(nproc)
# Where ccache is installed, one checkout's objects serve the next one, wherever it lies.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
declare -A built=() # build folder -> ok | failed

# build_in FOLDER COMPILER [MESON OPTION...]: configures once, then builds $targets (all if empty). The first call of a
# run builds, later ones return what came out of it. One job more than processors: a compiler waits for its headers now and then.
build_in() {
    local dir=$1 compiler=$2 status=ok
    shift 2
    if [[ -z ${built[$dir]:-} ]]; then
        [[ $dir == build ]] || printf '  building in %s\n' "$dir"
        configure "$dir" "$compiler" "$@" &&
            step 1500 "$dir-ninja" ninja -C "$dir" -j $((jobs + 1)) ${targets:-} || {
            status=failed
            printf '  %s does not build:\n' "$dir"
            grep -A 40 -m 3 -E '^FAILED|error:|ERROR' "$logs"/"$dir"-*.log | head -n 80 | sed 's/^/    /'
        }
        built[$dir]=$status
    fi
    [[ ${built[$dir]} == ok ]]
}

configure() {
    local dir=$1 compiler=$2 linker=lld
    shift 2
    [[ ! -f $dir/build.ninja ]] || return 0
    # Debian's lld-19 has no name by which g++ would find it.
    [[ $compiler == clang* ]] || linker=bfd
    # ccache keeps no file that reads a precompiled header, and made to (sloppiness), it gives old headers back.
    ! command -v ccache >/dev/null || { compiler="ccache $compiler" && set -- "$@" -Db_pch=false; }
    CXX=$compiler CXX_LD=$linker step 300 "$dir-setup" meson setup "$dir" -Dwerror=true "$@"
}
