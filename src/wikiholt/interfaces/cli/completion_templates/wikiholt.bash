# Completion of wikiholt for bash, written by `wikiholt completion bash`.
_wikiholt() {
    local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local current command="" position=0 skip="" choices="" i
    local -a settings=()
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $previous == "=" ]]; then
        previous="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        current="${COMP_WORDS[i]}"
        if [[ $current == "=" ]]; then
            skip=1
            continue
        fi
@READ_WORD@
    _wikiholt_slugs() { "${COMP_WORDS[0]}" "${settings[@]}" list --slugs 2>/dev/null; }
    case "$command|$previous" in
@VALUES@
        *)
            if [[ $word == -* ]]; then
                case "$command" in
@OPTIONS@
                esac
            else
                case "$command|$position" in
@ARGUMENTS@
                esac
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}
complete -o default -F _wikiholt wikiholt
