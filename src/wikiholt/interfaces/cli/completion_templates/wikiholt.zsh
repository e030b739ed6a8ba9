#compdef wikiholt
# Completion of wikiholt for zsh, written by `wikiholt completion zsh`.
_wikiholt() {
    local current command="" position=0 skip="" previous="${words[CURRENT-1]}" i
    local -a settings choices
    for ((i = 2; i < CURRENT; i++)); do
        current="${words[i]}"
@READ_WORD@
    if [[ $PREFIX == --*=* ]]; then
        previous="${PREFIX%%=*}"
        compset -P '*='
    fi
    _wikiholt_slugs() { choices=(${(f)"$("${words[1]}" "${settings[@]}" list --slugs 2>/dev/null)"}); }
    case "$command|$previous" in
@VALUES@
    esac
    if [[ $PREFIX == -* ]]; then
        case "$command" in
@OPTIONS@
        esac
        _describe -o option choices
        return
    fi
    case "$command|$position" in
@ARGUMENTS@
        *) _files ;;
    esac
}
if [[ $funcstack[1] == _wikiholt ]]; then
    _wikiholt "$@"
else
    compdef _wikiholt wikiholt
fi
