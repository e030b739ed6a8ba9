# Completion of wikiholt for fish, written by `wikiholt completion fish`.
function __wikiholt_state
    set -l command
    set -l position 0
    set -l skip
    for current in (commandline -opc)[2..]
        if test -n "$skip"
            set skip
            continue
        end
        switch "$command|$current"
            case @VALUE_OPTIONS@
                set skip 1
                continue
            case '*|-*'
                continue
            case @COMMANDS@
                set -a command $current
                set command "$command"
            case '*'
                set position (math $position + 1)
        end
    end
    echo "$command"
    echo $position
end
function __wikiholt_at
    set -l state (__wikiholt_state)
    test "$state[1]" = "$argv[1]"
end
function __wikiholt_argument
    set -l state (__wikiholt_state)
    test "$state[1]" = "$argv[1]"; and test $state[2] -ge $argv[2]; and test $state[2] -le $argv[3]
end
function __wikiholt_slugs
    set -l tokens (commandline -opc)
    set -l settings
    for i in (seq 2 (math (count $tokens) - 1))
        contains -- $tokens[$i] --data --config --set; and set -a settings $tokens[$i] $tokens[(math $i + 1)]
    end
    $tokens[1] $settings list --slugs 2>/dev/null
end
complete -c wikiholt -f
@LINES@
