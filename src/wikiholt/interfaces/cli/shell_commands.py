"""`wikiholt completion` and `wikiholt man`: files for the shell and for man, written from the argument parser."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from wikiholt import __version__
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.parser import EXIT_CODES, build_parser

SHELLS = ("bash", "zsh", "fish")


def add_arguments(commands: Subparsers) -> None:
    completion = add_command(commands, "completion", run_completion, json=False)
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    add_command(commands, "man", run_man, json=False)


def run_completion(context: CommandContext) -> int:
    sys.stdout.write(write_completion(context.arguments.shell, list(read_commands(build_parser()))))
    return 0


def run_man(_: CommandContext) -> int:
    sys.stdout.write(write_man_page(list(read_commands(build_parser())), EXIT_CODES))
    return 0


# The commands and options of the argument parser as values.


_VALUE_KINDS = {"SLUG": "slugs", "DIR": "files", "FILE": "files", "PAGE": "files", "PATH_OR_URL": "files"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option, or an argument if it has no names. `value` is the name of its value; empty for a flag."""

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    repeatable: bool = False

    @property
    def kind(self) -> str:
        """What completes the value: `choices`, `slugs`, `files`, or nothing."""
        return "choices" if self.choices else _VALUE_KINDS.get(self.value, "")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words (none for the program itself), its help text, options, arguments and commands below it."""

    words: tuple[str, ...]
    help: str
    options: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    below: tuple[tuple[str, str], ...] = ()
    """Name and help text of each command below this one."""

    @property
    def name(self) -> str:
        return " ".join(self.words)


def read_commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """The program itself, then every command and group of commands, in the order of the help text."""
    options: list[Parameter] = []
    arguments: list[Parameter] = []
    groups: list[argparse._SubParsersAction[argparse.ArgumentParser]] = []
    for action in parser._actions:  # argparse has no public list
        if isinstance(action, argparse._SubParsersAction):
            groups.append(action)
        elif action.help != argparse.SUPPRESS:
            (options if action.option_strings else arguments).append(_read_parameter(action))
    below = [(choice.dest, choice.help or "") for group in groups for choice in group._choices_actions]
    yield Command(words, parser.description or "", tuple(options), tuple(arguments), tuple(below))
    for group in groups:
        for name, inner in group.choices.items():
            yield from read_commands(inner, (*words, name))


def _read_parameter(action: argparse.Action) -> Parameter:
    takes_value = action.nargs != 0
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return Parameter(
        tuple(action.option_strings),
        value if takes_value else "",
        (action.help or "") % vars(action) if "%(" in (action.help or "") else action.help or "",
        tuple(map(str, action.choices)) if action.choices and takes_value else (),
        optional=action.nargs in ("?", "*"),
        repeatable=action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction),
    )


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


def write_man_page(commands: Sequence[Command], exit_codes: str) -> str:
    """The manual page in roff. `exit_codes` has a title and one line per code."""
    return "\n".join(_iter_lines(commands, exit_codes)) + "\n"


def _iter_lines(commands: Sequence[Command], exit_codes: str) -> Iterator[str]:
    program, *others = commands
    yield f'.TH WIKIHOLT 1 "" "wikiholt {__version__}" "User Commands"'
    yield from (
        ".SH NAME",
        r"wikiholt \- search wikis and folders of Markdown by meaning and by keyword",
        ".SH SYNOPSIS",
    )
    yield r".B wikiholt\fR [\fIOPTION\fR]... \fICOMMAND\fR [\fIARGUMENT\fR]..."
    yield from (".SH DESCRIPTION", _escape(program.help), ".SH OPTIONS")
    yield from _iter_parameters(program.options)
    yield ".SH COMMANDS"
    for command in others:
        if not command.below:
            arguments = [f"[{one.value}]" if one.optional else one.value for one in command.arguments]
            synopsis = _escape(" ".join(["wikiholt", command.name, *arguments]))
            yield from (f'.SS "{synopsis}"', _escape(command.help))
            options = [option for option in command.options if "--help" not in option.names]
            yield from _iter_parameters((*command.arguments, *options))
    yield ".SH EXIT STATUS"
    for code, meaning in re.findall(r"^ *(\d+) (.+)$", exit_codes, re.MULTILINE):
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


def _iter_parameters(parameters: Sequence[Parameter]) -> Iterator[str]:
    for parameter in parameters:
        value = rf"\fI{_escape(parameter.value)}\fR" if parameter.value else ""
        names = ", ".join(rf"\fB{_escape(name)}\fR" for name in parameter.names)
        help_text = parameter.help
        if parameter.choices:
            help_text += f"; one of {', '.join(parameter.choices)}"
        yield from (".TP", f"{names} {value}".strip(), _escape(help_text))


def _escape(text: str) -> str:
    """Text that roff shows as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("`", r"\(ga")
    ascii_text = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return re.sub(r"(?m)^([.'])", r"\\&\1", ascii_text)


# Completion of commands, options, their values, and the names of wikis. Each script finds the command on the line and
# the number of its arguments so far, then offers what fits. Only names of wikis run the program.


_MANY = 99


def write_completion(shell: str, commands: Sequence[Command]) -> str:
    """The completion script for `bash`, `zsh` or `fish`."""
    template = _read_template(f"wikiholt.{shell}")
    if shell == "fish":
        fish_lines = "\n".join(_iter_fish_lines(commands))
        return _fill(template, commands, " ").replace("@LINES@", fish_lines)
    # The body of the loop over the words before the cursor is the same in bash and zsh.
    script = _fill(template.replace("@READ_WORD@\n", _read_template("read_word.sh")), commands, " | ")
    write = _BashWriter() if shell == "bash" else _ZshWriter()
    return (
        script.replace("@VALUES@", "\n".join(_iter_value_cases(commands, write.write_values)))
        .replace("@OPTIONS@", "\n".join(write.write_options(command) for command in commands))
        .replace("@ARGUMENTS@", "\n".join(_iter_argument_cases(commands, write.write_values, write.write_words)))
    )


def _read_template(name: str) -> str:
    return files(__package__).joinpath("completion_templates", name).read_text("utf-8")


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
