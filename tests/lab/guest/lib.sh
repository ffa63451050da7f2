# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios (`. "$LAB_LIB"`): failing with a reason, links, servers, data and its comparison.
# A command that fails ends the scenario; the reason is then the command and its line.
set -Eeuo pipefail
trap 'fail "line $LINENO of ${BASH_SOURCE##*/}: \"$BASH_COMMAND\" returned $?"' ERR

# fail REASON: ends the scenario. Only the first reason is kept, as the others follow from it.
fail() {
    trap - ERR
    [[ -s $LAB_OUT/reason ]] || printf '%s\n' "$*" | tee "$LAB_OUT/reason"
    exit 1
}

# needs FILE...: programs that the build must have made.
needs() {
    local file
    for file in "$@"; do [[ -x $file ]] || fail "$file is not there; build it first"; done
}

# timed LABEL COMMAND...: tells on the error output how long it took. Each command of a function that it runs must succeed,
# unless the caller looks at the status of `timed`.
timed() {
    local label=$1 begun=${EPOCHREALTIME/./} took status
    shift
    "$@"
    status=$? # not 0 only if the caller looks at it
    took=$((${EPOCHREALTIME/./} - begun))
    printf '%6d.%03d s  %s\n' $((took / 1000000)) $((took / 1000 % 1000)) "$label" >&2
    return "$status"
}

# until_true SECONDS COMMAND...: repeats COMMAND until it succeeds; returns 1 when the time is over.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# load_until_stop KIND N COUNT: rounds of `files.py KIND` in ./mounted until there is a file ./stop.
load_until_stop() {
    until [[ -e stop ]]; do python3 "$LAB_ROOT/tests/lab/guest/files.py" "$1" "$PWD/mounted" "$2" "$3" || return 1; done
}

listens() { (: </dev/tcp/"$1"/"$2") 2>/dev/null; }

# --- links ------------------------------------------------------------------------------------

# The addresses that the guest has on its own: neither siw nor rxe takes lo for connection set-up.
rxe_address=192.0.2.1 rxe_address6=2001:db8:1::1
siw_address=198.51.100.1 siw_address6=2001:db8:2::1

# links rxe|siw...: software RDMA devices on dummy interfaces, reachable from the guest itself.
links() {
    local kind
    modprobe -a dummy rdma_ucm ib_uverbs
    for kind in "$@"; do
        local address=${kind}_address address6=${kind}_address6
        [[ ! -e /sys/class/net/lab-$kind ]] || continue
        ip link add "lab-$kind" type dummy
        ip address add "${!address}/24" dev "lab-$kind"
        ip address add "${!address6}/64" dev "lab-$kind" nodad
        ip link set "lab-$kind" up
        rdma_device "$kind" "lab-$kind"
    done
}

# rdma_device rxe|siw INTERFACE [NAME]: adds a device to an interface, KIND0 if it gets no name.
rdma_device() {
    ulimit -l unlimited # siw of 6.1 goes by it for root too
    case $1 in
    # Without crc32_generic adding an rxe link fails with ENOENT.
    rxe) modprobe -a crc32_generic rdma_rxe ;;
    siw) modprobe siw ;;
    esac
    rdma link add "${3:-${1}0}" type "$1" netdev "$2"
}

# --- two guests -------------------------------------------------------------------------------

# A scenario with a peer part has a NIC `wire` with the address $LAB_SELF; that of the other guest is $LAB_PEER.

# tell WORD: lets the other guest's `told WORD` return.
tell() { touch "$LAB_MEETING/said-$1"; }

# told WORD SECONDS: waits for the other guest to `tell` it.
told() { until_true "$2" test -e "$LAB_MEETING/said-$1" || fail "the other guest did not tell \"$1\" within $2 s"; }

# wire off|on: cuts or mends the wire, at the first guest's end: its NIC loses the carrier, the second's does not.
wire() {
    echo "$1" >"$LAB_MEETING/wire.new"
    mv "$LAB_MEETING/wire.new" "$LAB_MEETING/wire.wanted"
    until_true 30 test ! -e "$LAB_MEETING/wire.wanted" || fail "the wire was not put $1"
}

# --- servers ----------------------------------------------------------------------------------

# Those of the servers that `serve` starts; knfsd always takes these.
tcp_port=2049 rdma_port=20049

# start NAME COMMAND...: runs a server in the background, its output in the artefact NAME.log; $! is its id.
start() {
    local name=$1
    shift
    "$@" >"$LAB_OUT/$name.log" 2>&1 &
}

# knfsd FOLDER...: exports folders (not from the guest's root: overlays cannot be exported) by the kernel's
# server on TCP 2049 and RDMA 20049. The driver stops it after the scenario.
knfsd() {
    local folder number=0
    modprobe -a nfsd rpcrdma
    # Made by the packages when they are installed, and so missing where they are only unpacked.
    grep -q '^_rpc:' /etc/passwd || echo '_rpc:x:120:65534::/run/rpcbind:/usr/sbin/nologin' >>/etc/passwd
    mkdir -p /run/rpcbind /var/lib/nfs/v4recovery
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab /etc/exports
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    rpcbind
    until_true 60 rpcinfo -T tcp 127.0.0.1 100000 >/dev/null || fail 'rpcbind does not answer'
    for folder in "$@"; do
        number=$((number + 1))
        exportfs -o "rw,no_root_squash,insecure,no_subtree_check,fsid=$number" "*:$folder"
    done
    rpc.mountd
    rpc.nfsd --rdma=20049 8
    # Nobody has state to reclaim.
    echo Y >/proc/fs/nfsd/v4_end_grace
}

# serve SERVER LINK [OPTION...]: a server of ./exported (a tmpfs), and how it is mounted: $server, $mount_options.
# SERVER is `knfsd` or the scheme of one of verbenad's listeners (iwarp, tcp, rdma); LINK is siw, rxe, or lo for TCP.
# Options go to verbenad.
serve() {
    local kind=$1 link=$2
    shift 2
    if [[ $link == lo ]]; then
        server=127.0.0.1 mount_options=proto=tcp,port=$tcp_port
    else
        links "$link"
        local address=${link}_address
        server=${!address} mount_options=proto=rdma,port=$rdma_port
    fi
    mkdir -p exported mounted
    mountpoint -q exported || mount -t tmpfs -o mode=755 exported exported
    mount_options+=,vers=3,mountproto=tcp,nolock
    if [[ $kind == knfsd ]]; then
        exported=$PWD/exported
        knfsd "$exported"
    else
        exported=/export mount_options+=,mountport=$tcp_port
        verbenad "$kind" "$@"
    fi
}

# version_4 VERSION: what `serve` serves is mounted with 4.1 or 4.2. That has no MOUNT, and its locks are the server's.
version_4() {
    mount_options=${mount_options%%,vers=3*},vers=$1
    # The folder is knfsd's root then: what lies above it, the guest's own root, can't be exported.
    [[ $exported == /export ]] || { exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$exported" && exported=/; }
}

# verbenad SCHEME [OPTION...]: starts it on $server, or on $listens_on if set; $! is its process; $tcp_port answers MOUNT.
# Waits until it listens. It has two shards, also where the guest has one processor, so that what they share is in use.
verbenad() {
    local scheme=$1 on=${listens_on:-$server}
    local listen=("tcp://$on:$tcp_port")
    shift
    [[ " $* " == *' --shards '* ]] || set -- --shards 2 "$@"
    [[ $scheme == tcp ]] || listen=("$scheme://$on:$rdma_port" "${listen[@]}")
    needs "$LAB_BUILD/services/verbenad"
    mkdir -p state
    : >verbenad.out
    start verbenad ${verbenad_in:-} "$LAB_BUILD/services/verbenad" nfs --export "$PWD/exported:/export,root_squash=no,clients=*" \
        "${listen[@]/#/--listen=}" --metrics "$server:9464" --state "$PWD/state" --rpcbind no "$@"
    until_true 60 listens "$server" "$tcp_port" || fail "verbenad does not listen: $(tail -n 3 "$LAB_OUT/verbenad.log")"
}

# serve_from_host: what `serve` sets, for the server of the scenario's host part, through a siw device on the NIC.
serve_from_host() {
    local nic
    . "$LAB_OUT/ready"
    nic=$(ip -o route get 10.0.2.2 | sed -n 's/.* dev \([^ ]*\).*/\1/p')
    [[ -n $nic ]] || fail 'the guest has no way to the host'
    modprobe -a rdma_ucm ib_uverbs
    rdma_device siw "$nic" siw1
    # 10.0.2.2 is the host's loopback.
    server=10.0.2.2 exported=/export
    mount_options=vers=3,proto=rdma,port=$rdma_port,mountproto=tcp,mountport=$tcp_port,nolock
    mkdir mounted
}

# moved_by_chunks TRANSPORT CAUSE: payloads went through chunks both ways, and no connection by TRANSPORT ended by CAUSE.
moved_by_chunks() {
    local metrics=$LAB_OUT/metrics.txt direction bytes ended
    curl -sS --fail --max-time 60 "$server:9464/metrics" >"$metrics"
    for direction in read write; do
        bytes=$(sed -n "s/^verbena_rpcrdma_chunk_bytes_total{direction=\"$direction\"} //p" "$metrics")
        awk -v bytes="$bytes" 'BEGIN { exit !(bytes > 0) }' || fail "bytes of $direction chunks: \"$bytes\""
    done
    ended=$(sed -n "s/^verbena_connection_ends_total{transport=\"$1\",cause=\"$2\"} //p" "$metrics")
    [[ $ended == 0 ]] || fail "connections ended with $2: \"$ended\""
}

# mount_server FOLDER [OPTIONS]: mounts what `serve` serves.
mount_server() { mount -t nfs -o "$mount_options${2:+,$2}" "$server:$exported" "$1"; }

# printed_line: $found is the line that verbenad printed for the transport of $mount_options.
printed_line() {
    local line
    found=()
    while read -ra line; do
        [[ "${line[*]:0:4}" != 'mount -t nfs -o' || ,${line[4]}, != *,"${mount_options%%,*}",* || ${line[5]} != "$server:$exported" ]] ||
            found=("${line[@]:0:6}")
    done <"$LAB_OUT/verbenad.log"
    ((${#found[@]}))
}

# mount_as_printed FOLDER: by that line, which comes when verbenad listens already.
mount_as_printed() {
    local found
    until_true 30 printed_line ||
        fail "verbenad printed no line for ${mount_options%%,*}: $(grep 'mount' "$LAB_OUT/verbenad.log")"
    "${found[@]}" "$1"
}

# unmount FOLDER: and the kernel never had to connect again, as it does when it lost a connection or got no reply.
unmount() {
    local count once=1
    count=$(connects "$1")
    # Over TCP it counts when it begins to and when it has.
    [[ ,$(findmnt -no OPTIONS "$1"), != *,proto=tcp*,* ]] || once=2
    ((count == once)) || fail "the kernel connected $((count / once)) times for $1"
    umount "$1"
}

# connects FOLDER: how often the kernel has connected for the mount on FOLDER, by all its transports.
connects() {
    awk -v at="$(realpath "$1")" '/^device / { its = $5 == at } its && $1 == "xprt:" { n += $5 } END { print n; exit !n }' \
        /proc/self/mountstats
}

# --- data -------------------------------------------------------------------------------------

# listing FOLDER: name, kind, mode, owner, time of change and link target of everything in it.
listing() { (cd "$1" && find . -mindepth 1 -printf '%p %y %m %U:%G %T@ %l\n' | sort); }

# same_data LABEL A B: fails unless both folders hold the same, octet by octet.
same_data() {
    timed "compare: $1" compare "$2" "$3" || fail "$1: $(head -n 5 differences | xargs -d '\n')"
}
compare() { diff <(listing "$1") <(listing "$2") >differences && diff -r --no-dereference "$1" "$2" >differences; }

# copy_both_ways MOUNT_COMMAND FOLDER: copies $LAB_DATA in, looks at it through a new mount, and copies it out.
# `MOUNT_COMMAND FOLDER` mounts it.
copy_both_ways() {
    local mount_it=$1 folder=$2
    mkdir -p back "$folder"
    timed 'mount' "$mount_it" "$folder"
    timed 'copy in' cp -a "$LAB_DATA/." "$folder/"
    timed 'unmount' unmount "$folder"
    # Through a new mount nothing comes from the client's cache; the copy must be made through another one.
    timed 'mount again' "$mount_it" "$folder"
    same_data 'what was copied in' "$LAB_DATA" "$folder"
    unmount "$folder"
    "$mount_it" "$folder"
    timed 'copy out' cp -a "$folder/." back/
    same_data 'what was copied out' "$LAB_DATA" back
    timed 'remove' find "$folder" -mindepth 1 -delete
    [[ -z $(ls -A "$folder") ]] || fail "files are left after a removal: $(ls -A "$folder" | head -n 3 | xargs)"
    timed 'unmount' unmount "$folder"
}
