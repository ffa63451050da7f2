# SPDX-License-Identifier: Apache-2.0
# Real work of verbena's client, program and library, on a stock kernel's server, or on verbenad's.
#   client-work TRANSPORT LINK [SERVER [VERSION]]   iwarp siw, tcp siw, rdma siw or rdma rxe: our transport, the server's device;
#                                           SERVER as `serve` takes it, knfsd if it is not given; VERSION of NFS, of the program alone: 3 if it is not given
# lab: limit=1200
. "$LAB_LIB"
. "$LAB_ROOT/tests/lab/guest/disk.sh"
verbena=$LAB_BUILD/services/verbena ledger=$LAB_BUILD/tests/lab/ledger/ledger
needs "$verbena" "$ledger"
if [[ ${3:-knfsd} == knfsd ]]; then
    export_disk 1024 # from a tmpfs it reads wrong data behind a hole (docs/internals/lab.md)
    # It would choose less on a machine of little memory.
    modprobe nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    echo 1048576 >/proc/fs/nfsd/max_block_size
fi
serve "${3:-knfsd}" "$2"
port=20049
[[ $1 != tcp ]] || port=2049
library=nfs+$1://$server:$port$exported version=${4:-3}
[[ $version == 3 ]] || version_4 "$version"
url=nfs+$1://$server:$port${exported%/} query=?vers=$version

same_tree() { diff -r --no-dereference "$1" "$2" >differences || fail "$3: $(head -n 3 differences | xargs -d '\n')"; }
timed 'doctor' "$verbena" doctor "$url/$query" || [[ $? == 1 ]] # 1: it has something to say about the guest
timed 'copy a tree in' "$verbena" cp -r -p "$LAB_DATA/tree" "$url/tree$query"
same_data 'the tree on the server' "$LAB_DATA/tree" exported/tree
timed 'copy it out' "$verbena" cp -r -p "$url/tree$query" back
same_tree "$LAB_DATA/tree" back 'what was copied out'
timed 'copy it on the server' "$verbena" cp -r -p -j 2 -d 1 "$url/tree$query" "$url/again$query"
same_tree exported/tree exported/again 'what was copied on the server'
timed "$LAB_MIB MiB in, read back" "$verbena" cp --checksum "$LAB_DATA/large" "$url/large$query" >sums
grep -qF "$(<"$LAB_DATA.sha256")" sums || fail "the checksum is another: $(<sums)"
timed "$LAB_MIB MiB out" "$verbena" cp -d 32 "$url/large$query" large
cmp "$LAB_DATA/large" large
timed "$LAB_MIB MiB to a pipe" "$verbena" cat "$url/large$query" | cmp "$LAB_DATA/large" -

python3 "$LAB_ROOT/tests/lab/guest/files.py" names "$PWD/exported/names" "$LAB_NAMES"
timed "list $LAB_NAMES names" "$verbena" ls -a "$url/names$query" >listed
ls -A exported/names | diff - listed >differences || fail "listed: $(head -n 3 differences | xargs -d '\n')"
[[ $(timed 'list with attributes' "$verbena" ls -l "$url/names$query" | wc -l) -ge $LAB_NAMES ]] || fail 'ls -l lists fewer names'
"$verbena" mv "$url/names$query" "$url/moved$query"
[[ -d exported/moved && ! -e exported/names ]] || fail 'mv did not move'
"$verbena" mkdir -p "$url/a/b/c$query"
[[ -d exported/a/b/c ]] || fail 'mkdir -p made no folders'
"$verbena" stat "$url/large$query" >/dev/null
"$verbena" df "$url/$query" >/dev/null

copies() {
    local number running=()
    for number in 1 2 3 4 5 6 7 8; do
        "$verbena" -q cp -r "$LAB_DATA/tree/folder 0" "$url/copy $number$query" &
        running+=("$!")
    done
    for number in "${running[@]}"; do wait "$number" || return; done
}
timed '8 copies at once' copies
for number in 1 2 3 4 5 6 7 8; do same_tree "$LAB_DATA/tree/folder 0" "exported/copy $number" "copy $number"; done
timed 'remove all' "$verbena" rm -r "$url"/{tree,again,large,moved,a}"$query" "$url/copy "{1,2,3,4,5,6,7,8}"$query"
[[ -z $(ls -A exported) ]] || fail "files are left after a removal: $(ls -A exported | head -n 3 | xargs -d '\n')"

# The library's part is version 3's.
if [[ $version == 3 ]]; then
    # The library: every procedure in any order with up to 1 MiB at any offset, and what the server acknowledged compared with
    # what it has, amid the work and afterwards.
    coproc "$ledger" --folders 4 --large
    ask() {
        local answer
        echo "$1" >&"${COPROC[1]}"
        while read -r -t 200 answer <&"${COPROC[0]}"; do
            if [[ $answer == ' '* ]]; then echo "$answer"; else break; fi
        done
        [[ $answer == $2 ]] || fail "the ledger answers $1 by \"$answer\""
        last_answer=$answer
    }
    # However slow the machine is, so many are compared.
    compared=0
    for round in {1..10}; do
        ask "load $library" loading
        sleep $((LAB_STORM / 10))
        ask dead 'acknowledged *'
        ((compared += ${last_answer#acknowledged })) || true
        ask "check $library" good
        ((compared < LAB_STORM)) || break
    done
    ((compared >= LAB_STORM)) || fail "only $compared operations in $round times $((LAB_STORM / 10)) s"
    ask counts 'counts *'
    echo "$last_answer"
fi
