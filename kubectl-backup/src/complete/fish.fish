# fish: kubectl-backup completion fish | source
function __kubectl_backup
    set -l word (commandline -ct)
    set -l out (kubectl-backup __complete (commandline -opc)[2..-1] "$word" 2>/dev/null)
    or return
    string match -v -r '^:\d+$' -- $out
    # The last line says, by the bit of 4, whether files make no sense here.
    if test (math "bitand($(string sub -s 2 -- $out[-1]), 4)") -eq 0
        set -l flag (string match -r '^--[^=]*=' -- $word)
        set -l files (__fish_complete_path (string replace -r '^--[^=]*=' '' -- $word))
        set -q files[1]; and printf "$flag%s\n" $files
    end
end
complete -c kubectl-backup -f -a '(__kubectl_backup)'
