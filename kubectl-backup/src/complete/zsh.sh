#compdef kubectl-backup
# zsh: source <(kubectl-backup completion zsh), or as _kubectl-backup in a folder of $fpath
_kubectl_backup() {
    local out directive line word
    local -a candidates
    out=$(kubectl-backup __complete "${(@)words[2,CURRENT]}" 2>/dev/null) || return
    directive=${out##*:}
    for line in "${(@f)${out%:*}}"; do
        # A colon ends the word for _describe; most names have no description.
        word=${${line%%$'\t'*}//:/\\:}
        [[ $line == *$'\t'* ]] && word+=:${line#*$'\t'}
        [[ -n $word ]] && candidates+=("$word")
    done
    if (( directive & 2 )); then
        _describe 'kubectl backup' candidates -S ''
    else
        _describe 'kubectl backup' candidates
    fi
    if (( ! (directive & 4) )); then compset -P '--*='; _files; fi
}
if [ "$funcstack[1]" = "_kubectl-backup" ]; then _kubectl_backup; else compdef _kubectl_backup kubectl-backup; fi
