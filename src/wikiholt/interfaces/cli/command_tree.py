"""The commands and options of the argument parser as values, for shell completion and the manual page."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

_VALUE_KINDS = {
    "SLUG": "slugs",
    "DIR": "files",
    "FILE": "files",
    "PAGE": "files",
    "PATH_OR_URL": "files",
}


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
