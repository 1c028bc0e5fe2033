# bash: source <(kubectl-backup completion bash)
_kubectl_backup() {
    local out directive
    out=$(kubectl-backup __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    directive=${out##*:}
    out=${out%:*}
    local IFS=$'\n'
    COMPREPLY=($(printf '%s' "$out" | cut -f1))
    # What stands before = is a word of its own to bash.
    if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
        COMPREPLY=("${COMPREPLY[@]#*=}")
    fi
    if (( directive & 2 )); then compopt -o nospace; fi
    if (( ! (directive & 4) )); then compopt -o default; fi
}
complete -F _kubectl_backup kubectl-backup
