# SPDX-License-Identifier: Apache-2.0
# RoCEv2 between two guests, read by Wireshark: the kernel's client and ours (roce-wire.peer.sh) work on verbenad and on the
# kernel's server, and `verbena conform` between ours. Every procedure and chunk form is decoded, MOUNT's too, and nothing is
# odd that is not so among kernels too.
# lab: limit=900
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/wireshark.sh"
needs /usr/bin/tshark "$verbena"
modprobe -a rdma_ucm ib_uverbs
rdma_device rxe wire
export_disk 64 # so that COMMIT has something to do

# captured NAME: lets the other guest work on the server; what goes over the wire meanwhile is NAME.pcap.
captured() {
    local wire=$LAB_MEETING/wire.pcap begun
    begun=$(stat -c %s "$wire")
    declare -p server rdma_port exported mount_options >"$LAB_MEETING/$1.mount"
    tell "$1"
    told "$1-done" 240
    sleep 1 # the last acknowledgements
    { head -c 24 "$wire" && tail -c +$((begun + 1)) "$wire"; } >"$1.pcap" # the file's header, then frames
    cp "$1.pcap" "$LAB_OUT/"
}

fields=(ip.src infiniband.bth.opcode rpcordma.msg_type rpcordma.reads_count rpcordma.writes_count rpcordma.reply_count
    rpcordma.rdma_length rpcordma.position rpc.msgtyp nfs.procedure_v3 frame.protocols _ws.malformed mount.procedure_v3)

# decoded NAME: fails if a packet of NAME.pcap is malformed; NAME.forms gets the forms of its RPC-over-RDMA messages.
decoded() {
    timed "$1: decode" tshark -o tcp.try_heuristic_first:TRUE -r "$1.pcap" -z expert -z rpc,srt,100003,3 -T fields -E separator='|' "${fields[@]/#/-e}" \
        >"$LAB_OUT/$1.txt"
    odd "$1"
    # As in the capture of iWARP, it looks for the data of these replies where none is when a Write chunk has them.
    awk -F '|' '$12 != "" && !($10 ~ /^[56]/ && $9 ~ /^1/ && $5 > 0)' "$LAB_OUT/$1.txt" >malformed
    [[ ! -s malformed ]] || fail "$1: malformed: $(head -n 1 malformed)"
    awk -F '|' -v client="$LAB_PEER" '$3 != "" {
            form = ($1 == client ? "call" : "reply") " " ($3 == 0 ? "MSG" : $3 == 1 ? "NOMSG" : "type " $3)
            filled = $7 ~ /[1-9]/ # in a reply, which has the chunks that were offered and not used too
            if ($4 > 0) form = form ($8 ~ /^0/ ? " + Position-Zero Read chunk" : " + Read chunk")
            if ($5 > 0 && filled) form = form " + Write chunk"
            if ($6 > 0 && filled) form = form " + Reply chunk"
            print form
        }' "$LAB_OUT/$1.txt" | sort -u >"$1.forms"
    cp "$1.forms" "$LAB_OUT/"
}

# every_send NAME: the last or only packet of each Send of a reliable connection, where Wireshark has the whole, is decoded.
every_send() {
    awk -F '|' '$2 ~ /^(2|3|4|5|22|23)$/ && $11 !~ /:rpcordma:rpc|:rpcordma:data/' "$LAB_OUT/$1.txt" >unknown
    [[ ! -s unknown ]] || fail "$1: Sends that are not decoded: $(head -n 1 unknown)"
}

# every_form NAME: each that these clients and servers use; a call longer than a Send, in a Position-Zero Read chunk, is
# not among them (only SYMLINK gets so long, and its target goes by a Read chunk of its own): `verbena conform` has that.
every_form() {
    diff - "$1.forms" <<'END' || fail "$1: other forms are decoded"
call MSG
call MSG + Read chunk
call MSG + Reply chunk
call MSG + Write chunk
reply MSG
reply MSG + Write chunk
reply NOMSG + Reply chunk
END
}

server=$LAB_SELF exported=/export
mount_options=vers=3,proto=rdma,port=$rdma_port,mountproto=tcp,nolock,$several_writes,mountport=$tcp_port
verbenad rdma --shards 1
daemon=$!
captured verbenad
captured ours
kill "$daemon"
wait "$daemon" || fail "verbenad ended with status $?"

exported=$PWD/exported mount_options=${mount_options%,mountport=*}
knfsd "$exported"
captured kernel
captured client
rdma_port=7400
start listener "$verbena" conform --listen "rdma://$LAB_SELF:$rdma_port" --once
listener=$!
until_true 20 grep -q listening "$LAB_OUT/listener.log" || fail "it does not listen: $(tail -n 2 "$LAB_OUT/listener.log")"
captured conform
wait "$listener" || fail "the end that listens: $(tail -n 2 "$LAB_OUT/listener.log")"

for name in verbenad kernel client ours; do
    decoded "$name"
    every_send "$name"
    [[ $name == ours ]] || every_form "$name"
done
# The calls and replies of MOUNT by RDMA: all but UMNTALL (4), for which our client does not ask.
awk -F '|' '$13 != "" && $11 ~ /:rpcordma:rpc/ { print $9, $13 }' "$LAB_OUT/ours.txt" | sort -u | xargs >mount.forms
[[ $(<mount.forms) == '0 0 0 1 0 2 0 3 0 5 1 0 1 1 1 2 1 3 1 5' ]] || fail "of MOUNT are decoded: $(<mount.forms)"
every_procedure verbenad
every_procedure kernel
decoded conform # where what its two ends tell each other is no RPC
grep -qxF 'call NOMSG + Position-Zero Read chunk' conform.forms || fail "conform: $(xargs -d '\n' <conform.forms)"
nothing_new verbenad ours client conform
tell decoded
