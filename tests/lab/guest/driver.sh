# SPDX-License-Identifier: Apache-2.0
# Sourced by the plan, as the guest's first process. Runs each scenario in namespaces of its own, so that
# its processes and mounts end with it, and writes for each, in /lab/job/NAME: `begun`, `log`, `reason` if
# the scenario gave one, `dmesg` if the kernel said something, and at last `result` (status and seconds).

# What the kernel prints when it is in trouble. siw and the NFS client print none of it in a good run.
trouble='BUG:|Oops|WARNING: |general protection fault|blocked for more than|INFO: rcu|refcount_t:|KASAN'

touch /lab/job/booted
ip link set lo up
# To this machine and no further: what a kernel's client asks elsewhere somebody else may answer.
if [[ $LAB_NET == user ]]; then
    ip link set eth0 up
    ip address add 10.0.2.15/24 dev eth0
fi
if [[ -n ${LAB_MAC:-} ]]; then
    for nic in /sys/class/net/*; do
        if [[ $(<"$nic/address") == "$LAB_MAC" ]]; then ip link set "${nic##*/}" name wire; fi
    done
    ip link set wire up
    ip address add "$LAB_SELF/24" dev wire
fi
hostname lab
echo 1 >/proc/sys/kernel/sysrq
# The console is for the kernel: as a serial line it may stall for seconds on a loaded host.
exec >/dev/vport*p1 2>&1

# scenario NAME SECONDS SCRIPT [ARGUMENT...]
scenario() {
    local name=$1 limit=$2 log tee pid watcher begun=${EPOCHREALTIME/./} took status=0 said spoilt=
    shift 2
    export LAB_OUT=/lab/job/$name
    printf -- '--- %s\n' "$name"
    touch "$LAB_OUT/begun"
    dmesg --clear
    exec {log}> >(exec tee "$LAB_OUT/log")
    tee=$!
    unshare --mount --pid --fork --kill-child --mount-proc \
        bash -c 'mount -t tmpfs work /lab/work && cd /lab/work && exec bash "$@"' scenario "$@" \
        </dev/null >&"$log" 2>&1 {log}>&- &
    pid=$!
    (sleep "$limit" && hung "$pid") {log}>&- &
    watcher=$!
    exec {log}>&-
    # Bash tells on its error output about children that a signal ended.
    { wait "$pid" || status=$?; } 2>/dev/null
    { kill "$watcher" && wait "$watcher"; } 2>/dev/null
    ended_within 30 "$tee" || spoilt='a process of it does not end'
    took=$((${EPOCHREALTIME/./} - begun))
    reset_kernel &
    ended_within 120 $! || spoilt='the kernel does not let go of what it made'
    dmesg --notime >"$LAB_OUT/dmesg"
    if said=$(grep -m 1 -E "$trouble" "$LAB_OUT/dmesg"); then
        echo "the kernel said: $said" >>"$LAB_OUT/reason"
        grep -A 30 -m 1 -E "$trouble" "$LAB_OUT/dmesg"
    fi
    if [[ $spoilt ]]; then
        echo w >/proc/sysrq-trigger
        ps -A f -o pid,stat,wchan:24,args >"$LAB_OUT/processes"
        dmesg --notime >"$LAB_OUT/dmesg"
        tail -n 60 "$LAB_OUT/dmesg"
        echo "$spoilt" >>"$LAB_OUT/reason"
    fi
    printf '%d %d.%d\n' "$status" $((took / 1000000)) $((took / 100000 % 10)) >"$LAB_OUT/result"
    # What comes next is not to suffer from it: it has a boot of its own.
    if [[ $spoilt ]]; then finish; fi
}

# ended_within SECONDS PID: waits for a child and returns its status, or 1 if it has not ended by then. One that hangs in the kernel
# cannot even be killed.
ended_within() {
    timeout "$1" tail --pid "$2" -s 0.1 -f /dev/null || return 1
    wait "$2"
}

# hung PID: writes down what the scenario was doing, then kills it.
hung() {
    echo w >/proc/sysrq-trigger
    ps -A f -o pid,stat,wchan:24,args >"$LAB_OUT/processes"
    ss -tnoie >"$LAB_OUT/sockets"
    echo "not finished after $limit s" >>"$LAB_OUT/reason"
    printf 'lab: not finished after %d s; the end of the kernel log:\n' "$limit"
    dmesg --notime | tail -n 40
    kill -KILL "$1"
}

# Puts down what a scenario may have left in the kernel and what no namespace ends with; returns 1 if some of it stays.
reset_kernel() {
    local device
    if [[ -d /sys/module/nfsd ]]; then stop_knfsd || return; fi
    for device in /sys/class/infiniband/*; do
        [[ ! -e $device ]] || rdma link delete "${device##*/}" 2>/dev/null
    done
    for device in /sys/class/net/lab*; do
        [[ ! -e $device ]] || ip link delete "${device##*/}" 2>/dev/null
    done
    # A device goes by itself with its interface, and that with its network, which may be happening now.
    until nothing_left; do sleep 0.1; done
}
nothing_left() {
    local transports='/sys/kernel/sunrpc/xprt-switches/*/xprt-*-' # of the kernel's RPC clients; one to rpcbind stays
    [[ -z $(compgen -G '/sys/class/infiniband/*'; compgen -G '/sys/class/net/lab*'
            compgen -G "${transports}tcp"; compgen -G "${transports}rdma") ]]
}

# The server of the kernel takes itself out of rpcbind, which ended with the scenario, and would wait for it.
stop_knfsd() {
    local registry server status
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    [[ $(</proc/fs/nfsd/threads) != 0 ]] || return 0
    rpcbind -f &
    registry=$!
    # With a thread that hangs in the kernel this would hang too.
    echo 0 >/proc/fs/nfsd/threads &
    server=$!
    ended_within 10 "$server"
    status=$?
    exportfs -au
    kill "$registry" && wait "$registry"
    return "$status"
}

# The end of the plan.
finish() {
    touch /lab/job/finished
    sync &
    ended_within 20 $!
    echo o >/proc/sysrq-trigger
    sleep infinity
}
