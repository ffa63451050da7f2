#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh installed BUILD | flags BUILD | shared BUILD | tutorial BUILD | subproject BUILD: builds examples as an embedder would, in a folder of its own.
#
# installed   with what `meson install` puts down and pkg-config tells; runs them
# flags       the same by other compilers, levels of optimisation and flags than the library's: no warning comes out of a header, no
#             class has another layout, and what is built works
# shared      with libverbena.so, of a build with -Dshared=enabled
# tutorial    the service of docs/howto/tutorial.md, from the files and by the commands that the page shows
# subproject  verbena is a Meson subproject with an embedder's defaults (-O0, g++); compiles the examples, links and runs them. The
#             libraries are those of BUILD, which was built in the same way: to build them here again takes minutes
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install_from() {
    DESTDIR=$work/root meson install -C "$1" --no-rebuild --quiet >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    local pc
    pc=$(find "$work/root" -name verbena.pc)
    export PKG_CONFIG_PATH=${pc%/*}
    prefix=$work/root$(pkg-config --variable=prefix verbena)
}
package() { pkg-config --define-variable=prefix="$prefix" "$@"; }
# compile COMPILER [FLAG...] SOURCE PACKAGE: into a program of SOURCE's name.
compile() {
    local name=${*: -2:1}
    name=${name##*/}
    # shellcheck disable=SC2046
    "${@:1:$#-1}" -std=c++20 -pthread $(package --cflags --libs "${@: -1}") -o "$work/${name%.cpp}"
}
greets() {
    local heard
    heard=$("$work/greeter" embedder 2>"$work/stderr") || { cat "$work/stderr"; return 1; }
    printf '%s\n' "$heard"
    [[ $heard == $'hello, embedder, by tcp\nhello, embedder, by iwarp' ]]
}
greets_through_asio() { [[ $("$work/asio" ada grace) == $'hello, ada\nhello, grace' ]]; }
serves() { python3 "$source/tests/integration/example_service_test.py" "$work/service"; }

case ${1-} in
installed)
    install_from "$2"
    # The systemd unit runs what was installed, and configurations to begin with came along.
    unit=$(find "$work/root" -path '*/systemd/system/verbenad.service')
    programs=$(sed -n 's/^ExecStart[A-Za-z]*=\([^ ]*\) .*/\1/p' "$unit" | sort -u)
    [[ -n $programs ]] || { echo "no ExecStart in $unit"; exit 1; }
    for program in $programs; do
        find "$work/root" -path '*/verbena/examples/*.toml' >"$work/configurations"
        (($(wc -l <"$work/configurations") >= 4)) || { echo 'configurations to begin with are missing'; exit 1; }
        while read -r configuration; do
            "$work/root$program" serve --check "$configuration" >"$work/log"
        done <"$work/configurations"
    done
    compile "${CXX:-clang++-19}" "$source/examples/greeter.cpp" verbena
    greets
    compile "${CXX:-clang++-19}" "$source/examples/service.cpp" verbena-service
    serves
    cat >"$work/scraped.cpp" <<'CPP'
#include <verbena/services/metrics.hpp>
int main()
{
    verbena::metric_registry registry;
    const auto process = verbena::metrics::expose_process(registry);
    return verbena::metrics::serve(registry, "127.0.0.1:0").url().empty();
}
CPP
    compile "${CXX:-clang++-19}" "$work/scraped.cpp" verbena-service
    "$work/scraped"
    # Packages name no absolute path but their prefix, so that a sysroot can stand in front of it.
    if grep -HnE '[=[:space:]](-[IL])?/' "${PKG_CONFIG_PATH}"/verbena*.pc | grep -v ':prefix='; then
        echo 'a package names a path of its own'
        exit 1
    fi
    [[ " $(PKG_CONFIG_SYSROOT_DIR=$work/root pkg-config --cflags verbena-module) " == *" -I$prefix/include "* ]]
    # A module links nothing, and the program that was installed takes it.
    # shellcheck disable=SC2046
    "${CXX:-clang++-19}" -std=c++20 -O2 -fPIC -shared $(package --cflags --libs verbena-module) "$source/examples/kv/kv.cpp" -o "$work/kv.so"
    "$work/root${programs%%$'\n'*}" module check "$work/kv.so"
    # Only where Asio was there when verbena was built.
    if package --exists verbena-asio; then
        compile "${CXX:-clang++-19}" "$source/examples/asio.cpp" verbena-asio
        greets_through_asio
    fi
    ;;
flags)
    install_from "$2"
    python3 "$source/tests/embed/layout.py" "$prefix/include" >"$work/layout.cpp"
    strict=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
    # The first is what the library was built with.
    while read -r -a command; do
        echo "${command[*]}"
        compile "${command[@]}" "${strict[@]}" "$work/layout.cpp" verbena-service
        "$work/layout" >"$work/now"
        [[ -f $work/first ]] || cp "$work/now" "$work/first"
        diff "$work/first" "$work/now" || { echo "other flags, other sizes or alignments"; exit 1; }
        # shellcheck disable=SC2043
        compile "${command[@]}" "$source/examples/greeter.cpp" verbena
        greets
    done <<'COMMANDS'
clang++-19 -O2
clang++-19 -O1 -DNDEBUG -flto -fuse-ld=lld-19
g++-12 -O0 -D_GLIBCXX_ASSERTIONS
g++-12 -O2 -DNDEBUG -flto -fvisibility=hidden
COMMANDS
    ;;
shared)
    install_from "$2"
    LD_LIBRARY_PATH=$(package --variable=libdir verbena)
    export LD_LIBRARY_PATH
    compile "${CXX:-clang++-19}" -O2 -DNDEBUG "$source/examples/greeter.cpp" verbena
    readelf -d "$work/greeter" | grep -q 'NEEDED.*libverbena\.so\.[0-9]*\.[0-9]*]'
    greets
    compile "${CXX:-clang++-19}" -O2 -DNDEBUG "$source/examples/service.cpp" verbena-service
    serves
    # A program of somebody's own has the modules that its file names. They are of the library's compiler.
    # shellcheck disable=SC2046
    "${LIBRARY_CXX:-g++-12}" -std=c++20 -fPIC -shared $(package --cflags --libs verbena-module) "$source/examples/kv/kv.cpp" -o "$work/kv.so"
    printf 'modules = ["%s"]\n[kv]\nlisten = ["tcp://127.0.0.1:0"]\nmax_keys = 7\n' "$work/kv.so" >"$work/own.toml"
    cat >"$work/own.cpp" <<'CPP'
#include <verbena/services/service.hpp>
#include <cstdio>
int main(int, char** argv)
try {
    verbena::service s("own", "1");
    s.load(argv[1]);
    s.set("metrics.listen", "off");
    s.set("daemon.shards", 1);
    s.configure();
    s.start();
    const bool serves = s.start_text().find("tcp://127.0.0.1:") != std::string::npos;
    return serves && s.effective().table("kv").number("max_keys") == 7 && s.stop() ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
CPP
    compile "${CXX:-clang++-19}" -O2 -DNDEBUG "$work/own.cpp" verbena-service
    "$work/own" "$work/own.toml"
    ;;
tutorial)
    install_from "$2"
    # Meson knows no --define-variable.
    sed -i "s|^prefix=.*|prefix=$prefix|" "${PKG_CONFIG_PATH}"/verbena*.pc
    PATH=$prefix/bin:$PATH
    export PATH CXX=${CXX:-clang++-19}
    mkdir "$work/votes"
    python3 "$source/tests/embed/tutorial.py" files "$work/votes"
    # The page's ports are fixed: in a network of its own nobody else has them.
    # shellcheck disable=SC2016
    unshare --net bash -c 'ip link set lo up && exec python3 "$1" run "$2"' bash "$source/tests/embed/tutorial.py" "$work/votes"
    # What the page says of its own test: without the cache of replies it fails.
    sed -i 's/calls(w.shard(), &kept);/calls(w.shard());/' "$work/votes/test.cpp"
    meson compile -C "$work/votes/build" faults >"$work/log" || { cat "$work/log"; exit 1; }
    if "$work/votes/build/faults" 2>"$work/log"; then echo 'votes count once without the cache, too'; exit 1; fi
    grep -E '^seed [0-9]+: [0-9]+ votes of 100$' "$work/log"
    # What is installed is found by the unit, and systemd takes that.
    DESTDIR=$work/target meson install -C "$work/votes/build" --no-rebuild --quiet
    unit=$work/target/usr/local/lib/systemd/system/votes.service
    read -r program configuration < <(sed -n 's/^ExecStart=//p' "$unit")
    [[ -x $work/target$program && -f $work/target$configuration ]]
    sed "s|^ExecStart=.*|ExecStart=$work/target$program|" "$unit" >"$work/votes.service"
    systemd-analyze verify --man=no "$work/votes.service" 2>&1 | tee "$work/log" >&2
    if grep -q votes "$work/log"; then exit 1; fi # it tells of other units of the machine, too
    ;;
subproject)
    mkdir -p "$work/app/subprojects"
    ln -s "$source" "$work/app/subprojects/verbena"
    cp "$source"/examples/{asio,greeter,service}.cpp "$source"/examples/kv/{kv.cpp,protocol.hpp} "$work/app/"
    cat >"$work/app/meson.build" <<'MESON'
project('app', 'cpp', default_options: ['cpp_std=c++20'])
executable('greeter', 'greeter.cpp', dependencies: dependency('verbena', fallback: 'verbena'))
shared_module('kv', 'kv.cpp', name_prefix: '', dependencies: dependency('verbena-module', fallback: 'verbena'))
executable('asio', 'asio.cpp', dependencies: dependency('verbena-asio', fallback: 'verbena'))
# Only with -Dverbena:services=enabled.
service_dep = dependency('verbena-service', required: false)
if service_dep.found()
  executable('service', 'service.cpp', dependencies: service_dep)
endif
MESON
    for services in auto enabled; do
        build=$work/app/build-$services
        CXX=${CXX:-g++-12} meson setup "$build" "$work/app" -Dverbena:services=$services >"$work/log" || { cat "$work/log"; exit 1; }
        # Nothing but the libraries: no test, program or installed file of verbena's comes with it.
        built='tests|services|examples'
        [[ $services == auto ]] || built='tests|services/(client|daemon|verbena|lib.*settings)|examples'
        if ninja -C "$build" -t targets all | grep -E "subprojects/verbena/($built)"; then
            echo 'a subproject must not build tests, programs or examples'
            exit 1
        fi
        libraries=$(ninja -C "$build" -t query greeter | grep -cE 'subprojects/verbena/.*libverbena_(core|protocols|transports|clients|plugins)\.a')
        ((libraries == 5)) || { echo "the program is linked with $libraries of the five libraries"; exit 1; }
        if meson introspect --installed "$build" | grep -o '[^"]*subprojects/verbena[^"]*' | grep .; then
            echo 'a subproject must install nothing'
            exit 1
        fi
    done
    ninja -C "$work/app/build-enabled" greeter.p/greeter.cpp.o service.p/service.cpp.o asio.p/asio.cpp.o kv.so >"$work/log" || { tail -n 40 "$work/log"; exit 1; }
    ninja -C "$work/app/build-enabled" -t query service | grep -q 'libverbena_service\.a'
    if ninja -C "$work/app/build-auto" -t targets all | grep '^service'; then
        echo 'a subproject has the library for services only if it is asked to'
        exit 1
    fi
    # The tutorial's meson.build finds verbena there, with the library for services.
    mkdir "$work/votes"
    python3 "$source/tests/embed/tutorial.py" files "$work/votes"
    ln -s "$work/app/subprojects" "$work/votes/subprojects"
    CXX=${CXX:-g++-12} meson setup --force-fallback-for=verbena "$work/votes/build" "$work/votes" >"$work/log" || { cat "$work/log"; exit 1; }
    ninja -C "$work/votes/build" -t query votes-server | grep -q 'subprojects/verbena/.*libverbena_service\.a'
    # By Meson's own command, which has what the libraries need besides.
    libraries=$(realpath "$2")
    for program in greeter service asio; do
        linking=$(ninja -C "$work/app/build-enabled" -t commands "$program" | tail -n 1)
        [[ $linking == *" -o $program "* && $linking == *" subprojects/verbena/"* ]] || { echo "no link of $program: $linking"; exit 1; }
        (cd "$work/app/build-enabled" && eval "${linking// subprojects\/verbena\// $libraries/}")
        cp "$work/app/build-enabled/$program" "$work/"
    done
    greets
    greets_through_asio
    serves
    ;;
*)
    echo 'run.sh installed BUILD | flags BUILD | shared BUILD | tutorial BUILD | subproject BUILD' >&2
    exit 2
    ;;
esac
