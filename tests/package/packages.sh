# SPDX-License-Identifier: Apache-2.0
# What tests of the Debian packages share. Sourced.

# The options that services/debian/package.sh changes, as Meson takes them.
prefix_of() {
    meson introspect "$1" --buildoptions | python3 -c '
import json, sys
all = {option["name"]: option["value"] for option in json.load(sys.stdin)}
print(*("-D%s=%s" % (name, all[name]) for name in ("prefix", "sysconfdir", "libdir")))'
}
# put_back BUILD: for the prefix that prefix_of told, in $before.
put_back() {
    # shellcheck disable=SC2086 # three options
    meson configure "$1" $before >/dev/null && ninja -C "$1" >/dev/null
}
# What a package depends on, with commas between them.
depends_of() { dpkg-deb -f "$1" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g'; }
