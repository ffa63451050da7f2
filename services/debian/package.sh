#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
usage="Makes Debian packages of this tree: verbena (both programs, the unit, man pages, completion, nbdkit's plugin) and libverbena-dev.

  services/debian/package.sh [--build FOLDER] [--out FOLDER] [--no-install]

  --build FOLDER  a build of this tree, which is then one for /usr; made if it is not there (build-deb)
  --out FOLDER    where the packages go (build-deb/packages)
  --no-install    installs nothing that the build needs

The last lines are the paths of the packages."
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/tools/packages.sh
build=build-deb out='' installs=yes
while (($#)); do
    case $1 in
    --build) build=${2:?--build needs a folder} && shift ;;
    --out) out=${2:?--out needs a folder} && shift ;;
    --no-install) installs='' ;;
    -h | --help) printf '%s\n' "$usage" && exit 0 ;;
    *) printf 'package.sh: unknown argument %s\n\n%s\n' "$1" "$usage" >&2 && exit 2 ;;
    esac
    shift
done
out=${out:-$build/packages}
[[ -z $installs ]] || install_packages $(packages_for build) $(packages_for package)
mkdir -p "$out"
out=$(readlink -f "$out")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
debian=$PWD/services/debian

options=(-Dprefix=/usr -Dsysconfdir=/etc -Dlibdir="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)")
if [[ -f $build/build.ninja ]]; then
    meson configure "$build" "${options[@]}" >/dev/null
else
    CXX=clang++-19 CXX_LD=lld meson setup "$build" "${options[@]}" --buildtype=release -Dtests=disabled -Dexamples=disabled
fi
ninja -C "$build"
meson install -C "$build" --no-rebuild --destdir "$stage/all" --quiet

version=$(meson introspect "$build" --projectinfo | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
arch=$(dpkg --print-architecture)
# Whoever packs has a name for the field Maintainer, as dpkg-buildpackage asks for.
maintainer=${DEBEMAIL:-$(git log -1 --format='%an <%ae>' 2>/dev/null || printf 'unknown <root@localhost>')}
when=$(git log -1 --format=%ct 2>/dev/null || date +%s)

# What is whose: all that a program which is built against verbena needs is libverbena-dev's.
take() { # PACKAGE PATH...: those of the paths that were installed
    local package=$1 path
    shift
    for path in "$@"; do
        [[ -e $stage/all/$path ]] || continue
        mkdir -p "$stage/$package/$(dirname "$path")"
        mv "$stage/all/$path" "$stage/$package/$path"
    done
}
lib=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
mapfile -t libraries < <(cd "$stage/all" && find "$lib" -maxdepth 1 -name 'libverbena*')
take libverbena-dev usr/include "${libraries[@]}" "$lib/pkgconfig" usr/bin/verbena-check-coroutines usr/share/verbena/verbena_gdb.py
# Modules of others go there.
mkdir -p "$stage/all/$lib/verbena/modules"
mv "$stage/all" "$stage/verbena"

page() { # SECTION NAME SUMMARY, from Markdown
    local into=$stage/verbena/usr/share/man/man$1
    mkdir -p "$into"
    python3 "$debian/man_page.py" "$2" "$3" | lowdown -s -Tman --parse-no-intraemph -M "title=$2" -M "section=$1" -M "source=verbena $version" \
        -M "date=$(date -ud "@$when" +%F)" | gzip -9n >"$into/$2.$1.gz"
}
page 1 verbena 'files of NFS servers and block devices of RNBD servers, without mounting them' <docs/reference/cli.md
page 8 verbenad 'daemon for files and block devices over RDMA and TCP' <docs/reference/cli.md
page 5 verbenad.toml 'configuration of verbenad' <docs/reference/config.md

install -Dm644 services/examples/minimal.toml "$stage/verbena/etc/verbena/verbenad.toml"
install -Dm644 "$debian/sysusers.conf" "$stage/verbena/usr/lib/sysusers.d/verbena.conf"
find "$stage" -name '*.gz' -prune -o -type f -perm -u+x -print0 | xargs -0r strip --strip-unneeded 2>/dev/null || true
find "$stage" -name '*.so' -print0 | xargs -0r strip --strip-unneeded

# finish PACKAGE SECTION DEPENDS SUMMARY, with the rest of the description from the standard input.
finish() {
    local package=$1 root=$stage/$1 doc=$stage/$1/usr/share/doc/$1
    mkdir -p "$root/DEBIAN" "$doc"
    cp "$debian/copyright" "$doc/copyright"
    printf '%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.gz.\n\n -- %s  %s\n' "$package" "$version" "$maintainer" \
        "$(date -uRd "@$when")" | gzip -9n >"$doc/changelog.gz"
    gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.gz"
    for script in postinst prerm postrm conffiles; do
        [[ ! -f $debian/$package.$script ]] || cp "$debian/$package.$script" "$root/DEBIAN/$script"
    done
    chmod -R u=rwX,go=rX "$root"
    for script in postinst prerm postrm; do
        [[ ! -f $root/DEBIAN/$script ]] || chmod 755 "$root/DEBIAN/$script"
    done
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$package" "$version" "$arch" "$maintainer"
        printf 'Installed-Size: %s\nDepends: %s\nSection: %s\nPriority: optional\n' "$(du -sk --exclude=DEBIAN "$root" | cut -f1)" "$3" "$2"
        printf 'Description: %s\n' "$4"
        sed 's/^/ /'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    SOURCE_DATE_EPOCH=$when dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${package}_${version}_$arch.deb" >/dev/null
    printf '%s\n' "$out/${package}_${version}_$arch.deb" >>"$stage/made"
}
# Which packages have the shared libraries that the programs are linked with.
linked() {
    mkdir -p "$stage/shlibs/debian"
    printf 'Source: verbena\n\nPackage: verbena\nArchitecture: any\n' >"$stage/shlibs/debian/control"
    (cd "$stage/shlibs" && dpkg-shlibdeps -O "$stage"/verbena/usr/bin/* 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}
depends=$(linked)
[[ -n $depends ]] || { printf 'package.sh: dpkg-shlibdeps does not say what the programs are linked with\n' >&2 && exit 1; }
finish verbena net "$depends" 'asynchronous RDMA services: NFS and block daemon, and their client' <<'TEXT'
verbenad serves files by NFS (versions 3, 4.0, 4.1 and 4.2) and block devices
by RNBD, over TCP, over RDMA devices, and over an iWARP stack of its own that
needs neither a device nor a kernel module. verbena is the client of both
without mounting, and asks a running daemon.
TEXT
finish libverbena-dev libdevel "libc6-dev, liburing-dev, libisal-dev, libspdlog-dev, libsqlite3-dev, libibverbs-dev, librdmacm-dev, prometheus-cpp-dev, libmicrohttpd-dev, libtomlplusplus-dev, nlohmann-json3-dev, libasio-dev" \
    'framework for asynchronous RDMA services in C++20: headers and libraries' <<'TEXT'
A reactor with coroutines, providers of verbs (RDMA devices, iWARP in user
space, a loop for tests), RPC over RDMA and TCP, NFS, RTRS and RNBD, and a
library for whole services with modules, metrics and a control socket.
TEXT
cat "$stage/made"
