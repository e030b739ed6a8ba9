"""Writes the manual page `wikiholt.1` from the argument parser."""

import re
from collections.abc import Iterator, Sequence

from wikiholt import __version__
from wikiholt.interfaces.cli.command_tree import Command, Parameter

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
    yield from (".SH NAME", r"wikiholt \- search for wikis that live in git", ".SH SYNOPSIS")
    yield r".B wikiholt\fR [\fIOPTION\fR]... \fICOMMAND\fR [\fIARGUMENT\fR]..."
    yield from (".SH DESCRIPTION", _escape(program.help), ".SH OPTIONS")
    yield from _iter_parameters(program.options)
    yield ".SH COMMANDS"
    for command in others:
        if not command.below:
            yield from (f".SS {_format_synopsis(command)}", _escape(command.help))
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


def _format_synopsis(command: Command) -> str:
    arguments = [f"[{argument.value}]" if argument.optional else argument.value for argument in command.arguments]
    text = " ".join(["wikiholt", command.name, *arguments])
    return f'"{_escape(text)}"'


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
