#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD: an operator's day on a host that systemd boots (day.py), and the container image (image.py), by Debian packages of BUILD.
# BUILD is then for its old prefix again.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
build=${1:?run.sh BUILD}
work=$(mktemp -d)
. tests/package/packages.sh
done_with() {
    put_back "$build"
    rm -rf --one-file-system "$work"
}
before=$(prefix_of "$build")
trap done_with EXIT

services/debian/package.sh --no-install --build "$build" --out "$work/packages"
deb=$(echo "$work"/packages/verbena_*.deb)
dpkg-deb -R "$deb" "$work/newer"
sed -i 's/^Version: .*/&+newer/' "$work/newer/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/newer" "$work/newer.deb" >/dev/null
dpkg-deb -x "$deb" "$work/client" # another host has its own programs
root_with() { # WHAT VARIANT PACKAGES
    mmdebstrap --quiet --variant="$2" ${3:+--include="$3"} "--aptopt=$work/apt.conf" --dpkgopt=force-unsafe-io bookworm "$work/$1" \
        /etc/apt/sources.list.d/*.sources
}
apt-config dump | grep '^Acquire::Check' >"$work/apt.conf" || true # what this host says of old lists
# What the package depends on is there before, so that what it leaves can be told, and no network is needed.
root_with root apt "systemd,systemd-sysv,dbus,iproute2,procps,curl,prometheus,nbdkit,libnbd-bin,$(depends_of "$deb")"
root_with base.tar minbase ''
mkdir "$work/day" "$work/image"
status=0
python3 tests/day/day.py "$work/root" "$deb" "$work/newer.deb" "$work/day" | tee "$work/day.out" || status=1
python3 tests/day/image.py "$work/base.tar" "$work/packages" "$work/client/usr/bin/verbena" "$work/image" | tee "$work/image.out" || status=1
cat "$work"/*.out | awk '/^[0-9]+ passed, [0-9]+ failed$/ {good += $1; bad += $3} END {print good + 0 " passed, " bad + 0 " failed"}'
exit $status
