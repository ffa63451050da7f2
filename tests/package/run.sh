#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD: makes Debian packages of BUILD, installs them in a root that has nothing else of ours, uses and removes them there.
# BUILD is then for its old prefix again.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
build=${1:?run.sh BUILD}
work=$(mktemp -d)
. tests/package/packages.sh
before=$(prefix_of "$build")
done_with() {
    put_back "$build"
    rm -rf "$work"
}
trap done_with EXIT
fail() {
    printf 'package: %s\n' "$1" >&2
    exit 1
}

services/debian/package.sh --no-install --build "$build" --out "$work/packages"
for deb in verbena libverbena-dev; do
    compgen -G "$work/packages/${deb}_*.deb" >/dev/null || fail "no package $deb"
done
for page in 1/verbena 5/verbenad.toml 8/verbenad; do
    dpkg-deb --fsys-tarfile "$work"/packages/verbena_*.deb | tar -xO "./usr/share/man/man${page%/*}/${page#*/}.${page%/*}.gz" |
        gunzip >"$work/page" || fail "no man page ${page#*/}"
    [[ -z $(man --warnings -l "$work/page" 2>&1 >/dev/null) ]] || fail "man complains of the page ${page#*/}"
    man -l "$work/page" | grep -q "^ *${page#*/} - " || fail "the page ${page#*/} says nothing of what it is about"
done

root=$work/root
# What the packages depend on is there before, so that what they leave can be told, and no network is needed; systemd makes the user.
apt-config dump | grep '^Acquire::Check' >"$work/apt.conf" || true # what this host says of old lists
mmdebstrap --quiet --variant=apt --include="systemd,iproute2,$(depends_of "$work"/packages/verbena_*.deb),$(depends_of "$work"/packages/libverbena-dev_*.deb)" \
    "--aptopt=$work/apt.conf" bookworm "$root" /etc/apt/sources.list.d/*.sources
cp "$work"/packages/*.deb "$root/tmp"
inside() { unshare --fork --pid --mount --net chroot "$root" /bin/sh -ec "ip link set lo up 2>/dev/null || true; mount -t proc proc /proc; $1"; }
in_root() { chroot "$root" /bin/sh -ec "$1"; }
# All that the packages, or what they pull in, could leave; not what apt and dpkg write of themselves.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache \
        -o -path ./var/log -o -path ./var/backups -o -path ./run \) -prune -o -print | sort)
}
files >"$work/before"
in_root 'apt-get install -y -q /tmp/verbena_*.deb /tmp/libverbena-dev_*.deb >/dev/null'

in_root 'getent passwd verbena >/dev/null' || fail 'there is no user verbena'
in_root 'verbenad serve /etc/verbena/verbenad.toml --check --quiet' || fail 'the configuration that comes with it is refused'
in_root 'test -f /usr/lib/*/pkgconfig/verbena-service.pc -a -f /usr/include/verbena/services/service.hpp' || fail 'nothing to build against'
inside '
    verbenad serve /usr/share/doc/verbena/examples/memory.toml >/tmp/said 2>/tmp/log &
    n=0
    until grep -qx ready /tmp/said; do n=$((n + 1)); [ $n -lt 300 ] && kill -0 $! || { cat /tmp/said /tmp/log >&2; exit 1; }; sleep 0.1; done
    verbena -q mkdir nfs+tcp://127.0.0.1/scratch/made
    verbena ls nfs+tcp://127.0.0.1/scratch | grep -qx made
    verbena admin status | grep -q "^program"
    kill $! && wait $!' || fail 'what was installed does not serve'
unit=$(find "$root/usr/lib/systemd" "$root/lib/systemd" -name verbenad.service -print -quit)
grep -q '^ExecStart=/usr/bin/verbenad serve /etc/verbena/verbenad.toml$' "$unit" || fail 'the unit starts another program'
cat >"$root/tmp/complete" <<'TEXT'
. /usr/share/bash-completion/completions/verbena
COMP_WORDS=(verbenad mod) COMP_CWORD=1
compopt() { :; }
_verbena
[[ " ${COMPREPLY[*]} " == *" modules "* ]]
TEXT
inside 'bash -e /tmp/complete' || fail 'bash completes no command'

# An upgrade asks nothing of a configuration that was changed.
printf '# mine\n' >>"$root/etc/verbena/verbenad.toml"
in_root 'apt-get install -y -q --reinstall /tmp/verbena_*.deb >/dev/null'
grep -qx '# mine' "$root/etc/verbena/verbenad.toml" || fail 'an upgrade writes over the configuration'
mkdir -p "$root/var/lib/verbena"
in_root 'apt-get remove -y -q verbena libverbena-dev >/dev/null'
[[ -f $root/etc/verbena/verbenad.toml && -d $root/var/lib/verbena ]] || fail 'a removal takes the configuration or the state'
in_root 'dpkg --purge verbena >/dev/null' # nothing else has a configuration
files >"$work/after"
# The user stays, as in Debian: files may be its own.
if ! diff "$work/before" "$work/after"; then
    fail 'what was purged leaves something'
fi
printf 'package: installed, used, upgraded and removed\n'
