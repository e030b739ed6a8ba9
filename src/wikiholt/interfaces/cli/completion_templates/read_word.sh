        if [[ -n $skip ]]; then
            [[ -z $command ]] && settings+=("$current")
            skip=""
            continue
        fi
        case "$command|$current" in
            @VALUE_OPTIONS@)
                skip=1
                [[ -z $command ]] && settings+=("$current")
                continue ;;
        esac
        [[ $current == -* ]] && continue
        case "$command|$current" in
            @COMMANDS@) command="${command:+$command }$current" ;;
            *) ((position++)) ;;
        esac
    done
