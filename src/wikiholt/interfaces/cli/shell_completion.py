"""Writes completion scripts for bash, zsh and fish: commands, options, their values, and the names of wikis.

Each script finds the command on the line and the number of its arguments so far, then offers what fits. Only names of
wikis run the program.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence

from wikiholt.interfaces.cli.shell_commands import Command, Parameter

_READ_WORD = """\
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
    done"""
"""The body of the loop over the words before the cursor, the same in bash and zsh."""

_BASH = """\
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
"""

_ZSH = """\
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
"""

_FISH = """\
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
"""
_MANY = 99


def write_completion(shell: str, commands: Sequence[Command]) -> str:
    """The completion script for `bash`, `zsh` or `fish`."""
    if shell == "fish":
        fish_lines = "\n".join(_iter_fish_lines(commands))
        return _fill(_FISH, commands, " ").replace("@LINES@", fish_lines)
    template = (_BASH if shell == "bash" else _ZSH).replace("@READ_WORD@", _READ_WORD)
    script = _fill(template, commands, " | ")
    write = _BashWriter() if shell == "bash" else _ZshWriter()
    return (
        script.replace("@VALUES@", "\n".join(_iter_value_cases(commands, write.write_values)))
        .replace("@OPTIONS@", "\n".join(write.write_options(command) for command in commands))
        .replace("@ARGUMENTS@", "\n".join(_iter_argument_cases(commands, write.write_values, write.write_words)))
    )


def _fill(template: str, commands: Sequence[Command], separator: str) -> str:
    """Fill in the patterns by which a script finds the command: options with a value, and names of commands."""
    options = [
        f"'{command.name}|{name}'"
        for command in commands
        for option in command.options
        if option.value
        for name in option.names
    ]
    names = [f"'{command.name}|{name}'" for command in commands for name, _ in command.below]
    return template.replace("@VALUE_OPTIONS@", separator.join(options)).replace("@COMMANDS@", separator.join(names))


def _iter_value_cases(commands: Sequence[Command], write: Callable[[Parameter], str]) -> Iterator[str]:
    for command in commands:
        for option in command.options:
            if option.value:
                pattern = " | ".join(f"'{command.name}|{name}'" for name in option.names)
                yield f"        {pattern}) {write(option)} ;;"


def _iter_argument_cases(
    commands: Sequence[Command],
    write: Callable[[Parameter], str],
    write_words: Callable[[Sequence[tuple[str, str]]], str],
) -> Iterator[str]:
    for command in commands:
        if command.below:
            yield f"        '{command.name}|0') {write_words(command.below)} ;;"
        for position, argument in enumerate(command.arguments):
            if argument.kind:
                number = f"'{command.name}|'*" if argument.repeatable else f"'{command.name}|{position}'"
                yield f"        {number}) {write(argument)} ;;"


class _BashWriter:
    def write_values(self, parameter: Parameter) -> str:
        if parameter.kind == "slugs":
            return 'choices="$(_wikiholt_slugs)"'
        return f"choices={shlex.quote(' '.join(parameter.choices))}" if parameter.choices else "choices="

    def write_words(self, words: Sequence[tuple[str, str]]) -> str:
        return f"choices={shlex.quote(' '.join(name for name, _ in words))}"

    def write_options(self, command: Command) -> str:
        names = " ".join(name for option in command.options for name in option.names)
        return f"        '{command.name}') choices={shlex.quote(names)} ;;"


class _ZshWriter:
    def write_values(self, parameter: Parameter) -> str:
        if parameter.kind == "slugs":
            return "_wikiholt_slugs; compadd -a choices; return"
        if parameter.choices:
            return f"compadd -- {' '.join(map(shlex.quote, parameter.choices))}; return"
        return "_files; return"

    def write_words(self, words: Sequence[tuple[str, str]]) -> str:
        return f"choices=({self._describe(words)}); _describe command choices; return"

    def write_options(self, command: Command) -> str:
        described = [(name, option.help) for option in command.options for name in option.names]
        return f"        '{command.name}') choices=({self._describe(described)}) ;;"

    @staticmethod
    def _describe(words: Sequence[tuple[str, str]]) -> str:
        return " ".join(shlex.quote(f"{name}:{text.replace(':', chr(92) + ':')}") for name, text in words)


def _iter_fish_lines(commands: Sequence[Command]) -> Iterator[str]:
    for command in commands:
        at = f"complete -c wikiholt -n '__wikiholt_at \"{command.name}\"'"
        for name, text in command.below:
            yield f"{at} -a {name} -d {_quote_fish(text)}"
        for option in command.options:
            for name in option.names:
                flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                yield f"{at} {flag}{_write_fish_values(option, needs_value=True)} -d {_quote_fish(option.help)}"
        for position, argument in enumerate(command.arguments):
            if argument.kind:
                last = _MANY if argument.repeatable else position
                condition = f"'__wikiholt_argument \"{command.name}\" {position} {last}'"
                yield f"complete -c wikiholt -n {condition}{_write_fish_values(argument, needs_value=False)}"


def _write_fish_values(parameter: Parameter, *, needs_value: bool) -> str:
    if not parameter.value:
        return ""
    required = " -r" if needs_value else ""
    if parameter.kind == "slugs":
        return f"{required} -f -a '(__wikiholt_slugs)'"
    if parameter.choices:
        return f"{required} -f -a {_quote_fish(' '.join(parameter.choices))}"
    return f"{required} -F"


def _quote_fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
