# SPDX-License-Identifier: Apache-2.0
# What Wireshark finds odd on siw's wire when the kernel's client works on verbenad, and our client on the kernel's
# server: nothing that it does not find when the kernel's client does the same work on the kernel's server. Every procedure
# and form of chunk is decoded.
# lab: limit=900
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/wireshark.sh"
needs /usr/bin/dumpcap /usr/bin/tshark "$verbena"
client_work_iwarp() { client_work iwarp somewhere "$LAB_DATA/tree/folder 0"; }

# Without reassembly of Sends, as with it Wireshark 4.0 decodes only the first of several in one TCP segment.
decode=(tshark -o tcp.try_heuristic_first:TRUE -o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE)

# captured NAME WORK: captures while WORK runs; what is odd goes to NAME.odd.
captured() {
    local log=$LAB_OUT/dumpcap-$1.log capture
    start "dumpcap-$1" dumpcap -q -i lo -B 64 -f 'tcp port 20049 or udp port 9' -w "$PWD/$1.pcapng"
    capture=$!
    until_true 120 grep -q '^File:' "$log" || fail "dumpcap does not capture: $(tail -n 1 "$log")"
    timed "$1: work" "$2"
    # What comes last shows that all has come before it.
    echo "end of $1" >/dev/udp/127.0.0.1/9
    until_true 60 grep -qa "end of $1" "$1.pcapng" || fail "$1: the capture has no end"
    kill -INT "$capture"
    wait "$capture"
    grep -q 'dropped on interface .*: [0-9]*/0 ' "$log" || fail "$1: the capture is not whole: $(tail -n 1 "$log")"
    cp "$1.pcapng" "$LAB_OUT/"
    timed "$1: decode" "${decode[@]}" -r "$1.pcapng" -q -z expert -z rpc,srt,100003,3 >"$LAB_OUT/$1.txt"
    odd "$1"
    # The packets that it cannot read are replies whose data went by a Write chunk: READ's, and READLINK's to our client,
    # as the kernel's asks for no such chunk there.
    "${decode[@]}" -r "$1.pcapng" \
        -Y '_ws.malformed && !(nfs.procedure_v3 in {5, 6} && rpc.msgtyp == 1 && rpcordma.writes_count > 0)' >malformed
    [[ ! -s malformed ]] || fail "$1: $(head -n 1 malformed)"
}

export_disk 64 # so that COMMIT has something to do
serve iwarp siw --shards 1
daemon=$!
mount_options+=,$several_writes
captured verbenad kernel_work
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"

exported=$PWD/exported mount_options=${mount_options%,mountport=*}
knfsd "$exported"
captured client client_work_iwarp
mount_options+=,$several_writes
captured kernel kernel_work

every_procedure verbenad
every_procedure kernel
timed 'chunks' "${decode[@]}" -r verbenad.pcapng -Y rpcordma -T fields -E separator='|' -e rpcordma.reads_count -e rpcordma.writes_count \
    -e rpcordma.reply_count -e rpcordma.msg_type >chunks
awk -F '|' '{ read += $1 ~ /[1-9]/; write += $2 ~ /[1-9]/; reply += $3 ~ /[1-9]/; nomsg += $4 ~ /1/ }
    END { print "messages with", read + 0, "Read,", write + 0, "Write,", reply + 0, "Reply chunks,", nomsg + 0, "NOMSG"
          exit !(read && write && reply && nomsg) }' chunks >forms || fail "not every form is decoded: $(<forms)"
cat forms
# Ours asks for neither NULL, SETATTR, ACCESS, MKNOD, RENAME, LINK, FSSTAT nor PATHCONF in that work.
every_procedure client 1 3 {5..10} 12 13 {16,17,19,21}
nothing_new verbenad client
