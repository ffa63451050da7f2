# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh in which something befalls a server at work.

# until_writes SECONDS: until verbenad on $server has written more than now, so that what comes next meets work.
until_writes() {
    local before
    until_true "$1" sampled || return
    until_true "$1" writes_more
}
sampled() { before=$(written) && [[ -n $before ]]; }
writes_more() { (($(written) > before)); }

# written: octets, since verbenad began.
written() { curl -sS --fail --max-time 20 "$server:9464/metrics" | sed -n 's/^verbena_nfs_written_bytes_total //p'; }

# steady_load: in ./mounted, until there is a file ./stop, without the pauses that load_until_stop has between its rounds; $! is its
# process. What was acknowledged goes to ./ledger.
steady_load() {
    mkdir mounted/acknowledged
    python3 "$LAB_ROOT/tests/lab/guest/acknowledged.py" mounted/acknowledged ledger stop &
}

# steady_load_is_whole FOLDER: all that it left is in FOLDER, which must be the server's own or a new mount, as a client has a cache; and
# no error came through the mount.
steady_load_is_whole() {
    timed 'compare' python3 "$LAB_ROOT/tests/lab/guest/acknowledged.py" --check ledger "$1"
    [[ -z $(sed -n 's/^error //p' ledger) ]] ||
        fail "errors came through a hard mount: $(sort -u ledger | sed -n 's/^error //p' | xargs)"
}
