# SPDX-License-Identifier: Apache-2.0
# What Wireshark finds odd on siw's wire when the kernel's client works on verbenad, and our client on the kernel's
# server: nothing that it does not find when the kernel's client does the same work on the kernel's server.
# lab: limit=400
. "$LAB_LIB"
verbena=$LAB_BUILD/services/verbena
needs /usr/bin/dumpcap /usr/bin/tshark "$verbena"
head -c 300001 "$LAB_DATA/large" >large
mkdir links
ln -s somewhere links/link

# Every procedure that the kernel's client uses, small and large data, long listings.
kernel_work() {
    local at=$PWD/mounted number
    mount_server "$at"
    mkdir "$at/folder"
    cp large "$at/folder/"
    echo small >"$at/folder/small"
    ln -s folder/small "$at/link"
    ln "$at/folder/small" "$at/second"
    mkfifo "$at/pipe"
    mv "$at/second" "$at/folder/third"
    chmod 600 "$at/folder/third"
    for number in {1..8}; do head -c 65537 large >"$at/folder/of eight $number" & done
    wait $(jobs -p | tail -n 8)
    for number in {1..40}; do : >"$at/folder/a file with a name that is long enough to fill a listing $number"; done
    umount "$at"
    mount_server "$at" nordirplus # nothing is cached
    ls "$at/folder" >listed
    umount "$at"
    mount_server "$at"
    ls -l "$at/folder" >listed
    cmp "$at/folder/large" large
    [[ $(cat "$at/link") == small ]]
    df "$at" >df.out
    rm -r "$at/folder" "$at/link" "$at/pipe"
    umount "$at"
}

client_work() {
    local url=nfs+iwarp://$server:20049$exported
    # One call at a time: of Read Responses to several calls in one TCP segment Wireshark 4.0 puts the pieces together wrongly.
    "$verbena" -q cp -r -j 1 -d 1 "$LAB_DATA/tree/folder 0" "$url/tree"
    "$verbena" -q cp large "$url/large"
    "$verbena" -q cat "$url/large" | cmp - large
    "$verbena" ls -l "$url/tree" >listed
    "$verbena" -q cp -r links "$url/links"
    "$verbena" -q cp -r "$url/links" back
    [[ $(readlink back/link) == somewhere ]]
    "$verbena" -q rm -r "$url/tree" "$url/large" "$url/links"
}

# Without reassembly of Sends, as with it Wireshark 4.0 decodes only the first of several in one TCP segment.
decode=(tshark -o tcp.try_heuristic_first:TRUE -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE)

# captured NAME WORK: captures while WORK runs; what is odd goes to NAME.odd, as lines `severity group protocol words`.
# What Wireshark says of TCP is left out: it is the same kernel's in all of them.
captured() {
    local log=$LAB_OUT/dumpcap-$1.log capture
    start "dumpcap-$1" dumpcap -q -i lo -B 64 -f 'tcp port 20049' -w "$PWD/$1.pcapng"
    capture=$!
    until_true 30 grep -q '^File:' "$log" || fail "dumpcap does not capture: $(tail -n 1 "$log")"
    timed "$1: work" "$2"
    sleep 2 # dumpcap reads twice a second
    kill -INT "$capture"
    wait "$capture"
    grep -q 'dropped on interface .*: [0-9]*/0 ' "$log" || fail "$1: the capture is not whole: $(tail -n 1 "$log")"
    cp "$1.pcapng" "$LAB_OUT/"
    timed "$1: decode" "${decode[@]}" -r "$1.pcapng" -q -z expert -z rpc,srt,100003,3 >"$LAB_OUT/$1.txt"
    awk '/^(Errors|Warns|Notes|Chats) \(/ { severity = $1 }
        severity && /^ +[0-9]+ / && $3 != "TCP" { $1 = severity; print }' "$LAB_OUT/$1.txt" | sort -u >"$1.odd"
    cp "$1.odd" "$LAB_OUT/"
    grep -q ' READ  *[1-9]' "$LAB_OUT/$1.txt" || fail "$1: Wireshark sees no READ"
    # The packets that it cannot read are replies whose data went by a Write chunk: READ's, and READLINK's to our client,
    # as the kernel's asks for no such chunk there.
    "${decode[@]}" -r "$1.pcapng" \
        -Y '_ws.malformed && !(nfs.procedure_v3 in {5, 6} && rpc.msgtyp == 1 && rpcordma.writes_count > 0)' >malformed
    [[ ! -s malformed ]] || fail "$1: $(head -n 1 malformed)"
}

serve iwarp siw --shards 1
daemon=$!
captured verbenad kernel_work
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"

exported=$PWD/exported mount_options=${mount_options%,mountport=*}
knfsd "$exported"
captured client client_work
captured kernel kernel_work

for name in verbenad client; do
    comm -23 "$name.odd" kernel.odd >more
    [[ ! -s more ]] || fail "$name: not seen among kernels: $(head -n 3 more | xargs -d '\n')"
done
[[ -s kernel.odd ]] || fail 'Wireshark finds nothing odd among kernels: it is another one than the tests know'
cat kernel.odd
