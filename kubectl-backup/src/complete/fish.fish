# fish: kubectl-backup completion fish | source
function __kubectl_backup
    set -l words (commandline -opc)[2..-1]
    kubectl-backup __complete $words (commandline -ct) 2>/dev/null | string match -v -r '^:\d+$'
end
complete -c kubectl-backup -f -a '(__kubectl_backup)'
