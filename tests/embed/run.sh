#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh installed BUILD | subproject: builds examples/greeter.cpp as an embedder would, in a folder of its
# own. `installed` uses what `meson install` puts down and pkg-config tells, and runs it, and likewise a program with
# metrics::serve(); `subproject` has
# verbena as a Meson subproject with an embedder's defaults (-O0, g++), and compiles the example: the suite gcc builds the libraries
# in the same way.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

greets() {
    local heard
    heard=$("$1" embedder 2>"$work/stderr") || { cat "$work/stderr"; return 1; }
    printf '%s\n' "$heard"
    [[ $heard == $'hello, embedder, by tcp\nhello, embedder, by iwarp' ]]
}

case ${1-} in
installed)
    DESTDIR=$work/root meson install -C "$2" --no-rebuild --quiet >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    # The systemd unit runs what was installed, and a configuration to begin with came along.
    unit=$(find "$work/root" -path '*/systemd/system/verbenad.service')
    programs=$(sed -n 's/^ExecStart[A-Za-z]*=\([^ ]*\) .*/\1/p' "$unit" | sort -u)
    [[ -n $programs ]] || { echo "no ExecStart in $unit"; exit 1; }
    for program in $programs; do
        "$work/root$program" serve --check "$(find "$work/root" -path '*/verbena/examples/memory.toml')" >"$work/log"
    done
    pc=$(find "$work/root" -name verbena.pc)
    export PKG_CONFIG_PATH=${pc%/*}
    prefix=$work/root$(pkg-config --variable=prefix verbena)
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs verbena)
    # shellcheck disable=SC2086
    "${CXX:-clang++-19}" -std=c++20 -pthread "$source/examples/greeter.cpp" $flags -o "$work/greeter"
    greets "$work/greeter"
    cat >"$work/scraped.cpp" <<'CPP'
#include <verbena/services/metrics.hpp>
int main()
{
    verbena::metric_registry registry;
    const auto process = verbena::metrics::expose_process(registry);
    return verbena::metrics::serve(registry, "127.0.0.1:0").url().empty();
}
CPP
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs verbena-service)
    # shellcheck disable=SC2086
    "${CXX:-clang++-19}" -std=c++20 -pthread "$work/scraped.cpp" $flags -o "$work/scraped"
    "$work/scraped"
    ;;
subproject)
    mkdir -p "$work/app/subprojects"
    ln -s "$source" "$work/app/subprojects/verbena"
    cp "$source/examples/greeter.cpp" "$work/app/"
    cat >"$work/app/meson.build" <<'MESON'
project('app', 'cpp', default_options: ['cpp_std=c++20'])
executable('greeter', 'greeter.cpp', dependencies: dependency('verbena', fallback: 'verbena'))
MESON
    CXX=${CXX:-g++-12} meson setup "$work/app/build" "$work/app" >"$work/log" || { cat "$work/log"; exit 1; }
    # Nothing but the libraries: no test, program or installed file of verbena's comes with it.
    if ninja -C "$work/app/build" -t targets all | grep -E 'subprojects/verbena/(tests|services|examples)/'; then
        echo 'a subproject must not build tests, services or examples'
        exit 1
    fi
    libraries=$(ninja -C "$work/app/build" -t query greeter | grep -cE 'subprojects/verbena/.*libverbena_(core|protocols|transports|plugins)\.a')
    ((libraries == 4)) || { echo "the program is linked with $libraries of the four libraries"; exit 1; }
    ninja -C "$work/app/build" greeter.p/greeter.cpp.o >"$work/log" || { tail -n 40 "$work/log"; exit 1; }
    if meson introspect --installed "$work/app/build" | grep -o '[^"]*subprojects/verbena[^"]*' | grep .; then
        echo 'a subproject must install nothing'
        exit 1
    fi
    ;;
*)
    echo 'run.sh installed BUILD | subproject' >&2
    exit 2
    ;;
esac
