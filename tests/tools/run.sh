# SPDX-License-Identifier: Apache-2.0
# Steps with a time limit and visible progress, and the table of results. Sourced by `check`.

logs=build/logs
running=
declare -A beside=() # name -> PID and seconds, or "ended" and status
queued=              # PID of what was queued last
slow=${VERBENA_SLOW:-2}; export VERBENA_SLOW=$slow # all limits times this: they are for what hangs, and no machine is too slow
after= low=          # of a step that begins: the PID of the one before it, and whether it gives way to all others

# step SECONDS NAME COMMAND...: runs COMMAND with its output in $logs/NAME.log, and shows the last
# line of it now and then: each second on a terminal, else every half minute. Returns its status;
# 124 means that the time was over.
step() {
    local status=0
    begin "$@"
    running=$!
    follow "$running" "$1" "$2" || status=$?
    running=
    return "$status"
}

# pause SECONDS: sleep is a program, and started ten times a second it took a minute of the hour.
exec {never}<> <(:)
pause() { read -rt "$1" -u "$never"; }

# begin_beside SECONDS NAME COMMAND...: begins a step that goes on beside the following ones until `end_beside NAME`, which
# returns its status.
begin_beside() {
    begin "$@"
    beside[$2]="$! $1"
}
# begin_queued SECONDS NAME COMMAND...: the same, but it begins when the one queued before it has ended, and takes what the other
# steps leave of the processors, as many of them wait. Its SECONDS count from its own beginning.
begin_queued() {
    local after=$queued low=yes
    begin "$@"
    queued=$!
    beside[$2]="$! $1"
}
end_beside() {
    local status=0 pid limit
    read -r pid limit <<<"${beside[$1]}"
    if [[ $pid == ended ]]; then
        status=$limit
        ((status != 124)) || printf '  %s: stopped, its time was over\n' "$1"
    else
        follow "$pid" "$limit" "$1" || status=$?
    fi
    unset "beside[$1]"
    return "$status"
}
# Keeps the status of those that have ended: in an hour their PIDs are given to others.
collect() {
    local name pid rest status
    for name in "${!beside[@]}"; do
        read -r pid rest <<<"${beside[$name]}"
        [[ $pid != ended ]] && ! kill -0 "$pid" 2>/dev/null || continue
        status=0
        wait "$pid" || status=$?
        beside[$name]="ended $status"
    done
}

begin() {
    local limit=$1 log=$logs/$2.log first=()
    shift 2
    mkdir -p "$logs"
    [[ -z $low ]] || first=(nice -n 19)
    (
        exec {never}>&-
        [[ -z $after ]] || tail --pid="$after" -f /dev/null
        exec "${first[@]}" timeout -k 20 $((limit * slow)) "$@"
    ) </dev/null >"$log" 2>&1 &
}

# follow PID SECONDS NAME: waits for what has begun.
follow() {
    local pid=$1 limit=$2 name=$3 log=$logs/$3.log begun=$SECONDS shown=$SECONDS status=0
    while kill -0 "$pid" 2>/dev/null; do
        if [[ -t 1 ]] && ((SECONDS > shown)); then
            shown=$SECONDS
            printf '\r\e[K  %s, %d s: %.90s' "$name" $((SECONDS - begun)) "$(last_line "$log")"
        elif ((SECONDS >= shown + 30)); then
            shown=$SECONDS
            printf '  %s, %d s: %.90s\n' "$name" $((SECONDS - begun)) "$(last_line "$log")"
        fi
        ((${#beside[@]} == 0)) || collect
        pause 0.1
    done
    if [[ ${beside[$name]-} == ended\ * ]]; then status=${beside[$name]#* }; else wait "$pid" || status=$?; fi
    [[ -t 1 ]] && printf '\r\e[K'
    ((status != 124)) || printf '  %s: stopped, its %d s are over\n' "$name" $((limit * slow))
    return "$status"
}

last_line() { tail -n 1 "$1" | tr '\r' '\n' | tail -n 1 | tr -cd '[:print:]'; }

# Ends the steps that run, if any; timeout passes the signal on to all that a step started.
stop_step() {
    local each
    for each in $running "${beside[@]%% *}"; do kill "$each" 2>/dev/null; done
}

# The end of a step's output, for a step that failed.
show_log() { tail -n "${2:-60}" "$logs/$1.log" | sed 's/^/    /'; }

rows=()
grown=() # what took longer than its share
total_passed=0
total_failed=0

# row NAME SECONDS SHARE RESULT: a line of the summary. SHARE is of the budget, "-" for none.
row() {
    rows+=("$(printf '%-14s %6d s %6s %17s' "$1" "$2" "$3" "$4")")
    [[ $3 == - ]] || (($2 <= $3)) || grown+=("$1 ($2 s of $3)")
}

# record SUITE SECONDS SHARE PASSED FAILED
record() {
    total_passed=$((total_passed + $4))
    total_failed=$((total_failed + $5))
    row "$1" "$2" "$3" "$(printf '%8d %8d' "$4" "$5")"
    printf '%s: %d passed, %d failed (%d s)\n' "$1" "$4" "$5" "$2"
}

summary() {
    local row
    printf '\n%-14s %8s %6s %8s %8s\n' suite time share passed failed
    for row in "${rows[@]}"; do printf '%s\n' "$row"; done
    printf '%-14s %6d s %6s\n\n' total "$SECONDS" "$((budget)) "
    if ((budget > 0 && SECONDS > budget)); then
        # No failure: it says nothing about the code. The next change takes a minute away.
        printf 'took more than %d minutes; over their share on two quiet processors: %s (CONTRIBUTING.md, Tiers)\n\n' \
            $((budget / 60)) "${grown[*]:-none}"
    fi
    printf '%d passed, %d failed\n' "$total_passed" "$total_failed"
}
