# bash: source <(kubectl-backup completion bash)
_kubectl_backup() {
    local out directive word last
    local -a words
    # bash takes words apart at =; here they are whole again.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if (( ${#words[@]} )) && [[ $word == = || $last == = ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        last=$word
    done
    out=$(kubectl-backup __complete "${words[@]}" 2>/dev/null) || return
    directive=${out##*:}
    out=${out%:*}
    local IFS=$'\n'
    COMPREPLY=($(printf '%s' "$out" | cut -f1))
    # Only what comes after = is put in the place of the word.
    if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
        COMPREPLY=("${COMPREPLY[@]#*=}")
    fi
    if (( directive & 2 )); then compopt -o nospace; fi
    if (( ! (directive & 4) )); then compopt -o default; fi
}
complete -F _kubectl_backup kubectl-backup
