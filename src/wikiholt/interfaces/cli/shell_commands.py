"""`wikiholt completion` and `wikiholt man`: what a shell offers, and the manual page, from the argument parser."""

import argparse
import itertools
import re
import sys
from collections.abc import Iterator, Sequence

from wikiholt import __version__
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, load_settings
from wikiholt.interfaces.cli.parser import (
    COMMANDS,
    EXIT_CODES,
    OPTIONS_WITH_VALUE,
    TOPICS,
    build_parser,
    find_command,
    find_subparsers,
)


def add_arguments(commands: Subparsers) -> None:
    topics = "a command, a group of commands, options, exit-codes or all"
    help_command = add_command(commands, "help", run_man, json=False)  # the parser itself answers it
    help_command.add_argument("topic", nargs="?", metavar="TOPIC", help=topics)
    completion = add_command(commands, "completion", run_completion, json=False, logs=False)
    completion.add_argument("shell", choices=_SCRIPTS, metavar="SHELL", help="bash, zsh or fish")
    completion.add_argument("words", nargs="*", metavar="WORD", help=argparse.SUPPRESS)
    add_command(commands, "man", run_man, json=False)


# Completion. The script of each shell passes the words of the line up to the cursor to this command, which prints one
# offer per line, with its description after a tab. Without an offer the shell completes names of files.

_SCRIPTS = {
    "bash": r"""# Completion of wikiholt for bash, written by `wikiholt completion bash`.
_wikiholt() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _wikiholt wikiholt
""",
    "zsh": r"""#compdef wikiholt
# Completion of wikiholt for zsh, written by `wikiholt completion zsh`.
_wikiholt() {
    local -a offers=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n $offers ]] || { _files; return }
    offers=("${(@)offers//:/\\:}")
    offers=("${(@)offers/$'\t'/:}")
    _describe offer offers
}
if [[ $funcstack[1] == _wikiholt ]]; then _wikiholt "$@"; else compdef _wikiholt wikiholt; fi
""",
    "fish": r"""# Completion of wikiholt for fish, written by `wikiholt completion fish`.
complete -c wikiholt -a '(wikiholt completion fish -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def run_completion(context: CommandContext) -> int:
    arguments = context.arguments
    if not arguments.words:
        sys.stdout.write(_SCRIPTS[arguments.shell])
        return 0
    # bash splits `--mode=keyword` into three words.
    *before, current = ["" if word == "=" else word for word in arguments.words]
    for offer, text in find_offers([word for word in before if word], current):
        if offer.startswith(current):
            sys.stdout.write(f"{offer}\t{text}\n" if text else f"{offer}\n")
    return 0


def find_offers(before: Sequence[str], current: str) -> Iterator[tuple[str, str]]:
    """What may follow these words, and the description of each offer. `current` is the word at the cursor."""
    name = find_command(before)
    parser: argparse.ArgumentParser = build_parser((name,) if name in COMMANDS else ())
    option, position = None, 0
    for word in before:
        below = find_subparsers(parser)
        if option is not None:
            option = None  # this word is its value
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)
            option = None if option is None or option.nargs == 0 else option
        elif below is not None and word in below.choices:
            parser, position = below.choices[word], 0
        else:
            position += 1
    below = find_subparsers(parser)
    start, equals, _ = current.partition("=")
    if option is None and equals and (option := parser._option_string_actions.get(start)):
        yield from ((f"{start}={value}", "") for value in _list_values(option, before))
    elif option is not None:
        yield from ((value, "") for value in _list_values(option, before))
    elif current.startswith("-"):
        yield from ((text, _get_help(action)) for action in parser._actions for text in action.option_strings)
    elif name is None:
        yield from ((name, command.summary) for name, command in COMMANDS.items())
    elif below is not None:
        yield from ((choice.dest, choice.help or "") for choice in below._choices_actions)
    else:
        arguments = parser._get_positional_actions()
        if arguments and (position < len(arguments) or arguments[-1].nargs in ("*", "+")):
            argument = arguments[min(position, len(arguments) - 1)]
            yield from ((value, "") for value in _list_values(argument, before))


def _list_values(action: argparse.Action, words: Sequence[str]) -> Sequence[str]:
    """The known values of an option or argument: its choices, or the names of the wikis."""
    if action.dest == "topic":
        return TOPICS
    if action.metavar != "SLUG":
        return [] if action.choices is None else list(map(str, action.choices))
    pairs = itertools.pairwise(words)
    location = [part for option, value in pairs if option in OPTIONS_WITH_VALUE for part in (option, value)]
    parsed = build_parser(("list",)).parse_args([*location, "list"])
    return [wiki.slug for wiki in CommandContext(parsed, load_settings(parsed, {})).list_wikis()]


# The manual page.


_ENVIRONMENT = (
    ("WIKIHOLT_DATA", "the data directory"),
    ("WIKIHOLT_CONFIG", "the settings file"),
    ("WIKIHOLT_NAME", "the setting NAME, in capitals and with dots as underscores"),
    ("VISUAL, EDITOR", "the editor of wikiholt open"),
    ("BROWSER", "the browser of wikiholt open"),
    ("NO_COLOR", "if set, no colors and no links"),
)
_EXAMPLES = (
    (
        "Index a wiki and search it",
        ("wikiholt add notes ~/notes", "wikiholt sync", "wikiholt search -w notes black tea"),
    ),
    ("Read a page that was found, and open it in the editor", ("wikiholt read Tea", "wikiholt open notes/Tea.md:12")),
    ("Complete commands in bash", ("source <(wikiholt completion bash)",)),
)


def run_man(_: CommandContext) -> int:
    sys.stdout.write("\n".join(_write_manual(build_parser())) + "\n")
    return 0


def _write_manual(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The manual page in roff."""
    yield f'.TH WIKIHOLT 1 "" "wikiholt {__version__}" "User Commands"'
    yield from (
        ".SH NAME",
        r"wikiholt \- search wikis and folders of Markdown by meaning and by keyword",
        ".SH SYNOPSIS",
    )
    yield r".B wikiholt\fR [\fIOPTION\fR]... \fICOMMAND\fR [\fIARGUMENT\fR]..."
    yield from (".SH DESCRIPTION", _escape(parser.description or ""), ".SH OPTIONS")
    yield from _write_parameters(parser)
    yield ".SH COMMANDS"
    yield from _write_commands(parser)
    yield ".SH EXIT STATUS"
    for code, meaning in re.findall(r"^ *(\d+) (.+)$", EXIT_CODES, re.MULTILINE):
        yield from (".TP", rf"\fB{code}\fR", _escape(meaning))
    yield ".SH ENVIRONMENT"
    for name, meaning in _ENVIRONMENT:
        yield from (".TP", rf"\fB{_escape(name)}\fR", _escape(meaning))
    yield ".SH EXAMPLES"
    for title, lines in _EXAMPLES:
        yield from (".PP", f"{_escape(title)}:", ".PP", ".nf", ".RS")
        yield from map(_escape, lines)
        yield from (".RE", ".fi")
    yield from (".SH SEE ALSO", r"\fBgit\fR(1)")


def _write_commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The commands below a parser, and those below them."""
    subparsers = find_subparsers(parser)
    for command in subparsers.choices.values() if subparsers else ():
        if find_subparsers(command):
            yield from _write_commands(command)
            continue
        arguments = [action for action in command._get_positional_actions() if action.help != argparse.SUPPRESS]
        names = [f"[{action.metavar}]" if action.nargs in ("?", "*") else str(action.metavar) for action in arguments]
        yield from (f'.SS "{_escape(" ".join([command.prog, *names]))}"', _escape(command.description or ""))
        yield from _write_parameters(command, has_help=False)


def _write_parameters(parser: argparse.ArgumentParser, *, has_help: bool = True) -> Iterator[str]:
    actions = [*parser._get_positional_actions(), *parser._get_optional_actions()]
    for action in actions:
        is_left_out = "--help" in action.option_strings and not has_help
        if is_left_out or action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        names = ", ".join(rf"\fB{_escape(name)}\fR" for name in action.option_strings)
        value = rf"\fI{_escape(str(action.metavar or action.dest.upper()))}\fR" if action.nargs != 0 else ""
        choices = f"; one of {', '.join(map(str, action.choices))}" if action.choices else ""
        yield from (".TP", f"{names} {value}".strip(), _escape(_get_help(action) + choices))


def _get_help(action: argparse.Action) -> str:
    text = action.help or ""
    return text % vars(action) if "%(" in text else text


def _escape(text: str) -> str:
    """Text that roff shows as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("`", r"\(ga")
    ascii_text = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return re.sub(r"(?m)^([.'])", r"\\&\1", ascii_text)
