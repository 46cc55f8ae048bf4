# fish completion of aiosctl(1); made by 'aiosctl completion fish'
function __fish_aiosctl
    set -l words (commandline -opc) (commandline -ct)
    for line in (aiosctl __complete $words[2..-1] 2>/dev/null)
        set -l fields (string split -m 2 \t -- $line)
        switch $fields[1]
            case plain
                printf '%s\t%s\n' $fields[2] $fields[3]
            case dir
                __fish_complete_directories $fields[2]
            case file
                __fish_complete_path $fields[2]
        end
    end
end
complete -c aiosctl -f -k -a '(__fish_aiosctl)'
