# SPDX-License-Identifier: Apache-2.0
# verbena's client on a stock kernel's server, in version 3 by TCP and by our iWARP stack on its siw device, in version 4.1 by that.
# lab: limit=600
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs "$verbena"
links siw
mkdir exported
mount -t tmpfs -o mode=755 exported exported
knfsd "$PWD/exported"

# In version 4 it is the server's root.
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$PWD/exported"

for url in "nfs+tcp://$siw_address:2049$PWD/exported/tree?vers=3" "nfs+iwarp://$siw_address:20049/tree?vers=4.1"; do
    scheme=${url%%:*}-${url##*=}
    timed "$scheme ping" "$verbena" ping -c 5 "$url"
    timed "$scheme copy in" "$verbena" cp -r "$LAB_DATA" "$url"
    diff -r --no-dereference "$LAB_DATA" exported/tree >differences || fail "$scheme in: $(head -n 3 differences | xargs -d '\n')"
    timed "$scheme copy out" "$verbena" cp -r "$url" "back-$scheme"
    diff -r --no-dereference "$LAB_DATA" "back-$scheme" >differences || fail "$scheme out: $(head -n 3 differences | xargs -d '\n')"
    timed "$scheme remove" "$verbena" rm -r "$url"
    [[ -z $(ls -A exported) ]] || fail "$scheme: files are left after a removal"
done

# With a CRC32C in each FPDU, which siw makes and checks when it is asked to; the client takes no connection without.
url=nfs+iwarp://$siw_address:20049
timed 'with CRC: copy in' "$verbena" --crc cp "$LAB_DATA/large" "$url/large?vers=4.2"
cmp "$LAB_DATA/large" exported/large
# A URL that names no version: it is the highest one that both have.
timed 'with CRC: copy out' "$verbena" --crc cp "$url/large" back-crc
cmp "$LAB_DATA/large" back-crc
