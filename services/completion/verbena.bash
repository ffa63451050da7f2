# SPDX-License-Identifier: Apache-2.0
# Completion of verbena and verbenad for bash. What there is, the programs say themselves.

# The names below "Subcommands:" of a help text.
_verbena_commands() { awk 'found && NF == 0 {exit} found && $1 ~ /^[a-z]/ {print $1} /^Subcommands:/ {found = 1}'; }

_verbena() {
    local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} word words=() known
    # The commands so far, each of which the one before has.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        known=" $("$program" "${words[@]}" --help 2>/dev/null | _verbena_commands | xargs) "
        [[ $word != -* && $known == *" $word "* ]] && words+=("$word")
    done
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" "${words[@]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*')" -- "$current")
        return
    fi
    known=$("$program" "${words[@]}" --help 2>/dev/null | _verbena_commands)
    # Those of a daemon that runs here and may be asked.
    if [[ ${words[*]} == admin && ${COMP_WORDS[COMP_CWORD - 1]} == admin ]]; then
        known=$("$program" --timeout 1 --json admin help 2>/dev/null | grep -oE '"command":"[a-z0-9-]+( |")' | sed -E 's/.*:"//; s/[ "]$//')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$known" -- "$current")
    ((${#COMPREPLY[@]})) || compopt -o default
}
complete -F _verbena verbena verbenad
