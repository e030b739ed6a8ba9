"""What all commands share: the context they run in, how they declare arguments, and how they print."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wikiholt.errors import DatabaseUnavailable, InvalidSetting, WikiholtError, WikiNotFound
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.output import TerminalStyle, to_safe_line
from wikiholt.interfaces.cli.parser import COMMANDS, COMMON_OPTIONS

if TYPE_CHECKING:  # the service takes half a second to import, and some commands do without it
    from wikiholt.api.settings.definitions import Settings
    from wikiholt.domain.wiki import Wiki
    from wikiholt.wikis.service import WikiService

NOTHING_FOUND_EXIT_CODE = 1
PROBLEMS_FOUND_EXIT_CODE = 10
CANCELLED_EXIT_CODE = 130
"""The user did not confirm; the same as for an interrupt."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_MAX_CAUSE_CHARS = 500
_SUGGESTED_COMMAND_PATTERN = re.compile(rf"\bwikiholt (?=(?:{'|'.join(COMMANDS)})\b)")
_LOCATION_SETTINGS = ("data", "store", "repositories.directory", "backup.directory")


def complete_commands(text: str, arguments: Namespace) -> str:
    """The text, with the options that select this installation in every command that it suggests."""
    return _SUGGESTED_COMMAND_PATTERN.sub(lambda found: found[0] + _format_location(arguments), text)


def _format_location(arguments: Namespace) -> str:
    """The options before the command that select the installation, each with a space after it."""
    paths = {"--data": arguments.data, "--config": arguments.config}
    words = [word for option, path in paths.items() if path is not None for word in (option, str(path))]
    for name, _, value in (pair.partition("=") for pair in arguments.set):
        if name.strip() in _LOCATION_SETTINGS:
            # The address of a database may contain a password.
            words += ["--set", f"{name.strip()}={'…' if name.strip() == 'store' else value.strip()}"]
    return "".join(f"{shlex.quote(to_safe_line(word))} " for word in words)


def load_settings(arguments: Namespace, overrides: Mapping[str, str]) -> Settings:
    """Load the settings of a command, with further ones. Another data directory has its own settings file."""
    from wikiholt.api.settings import settings_loader

    values: dict[str, object] = {}
    for pair in arguments.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {pair!r} has no value", hint="write --set NAME=VALUE")
        values[name.strip()] = value.strip()
    if arguments.command == "serve":
        options = {"serve.host": arguments.host, "serve.port": arguments.port, "serve.workers": arguments.workers}
        values |= {name: value for name, value in options.items() if value is not None}
    values |= overrides
    data = Path(str(values.pop("data"))) if "data" in overrides else arguments.data
    return settings_loader.load_settings(data, arguments.config, os.environ, values)


def open_service(settings: Settings) -> WikiService:
    from wikiholt.api.bootstrap import build_service

    return build_service(settings)


@dataclass(slots=True)
class CommandContext:
    """The arguments and settings of a command, and its service, which is opened on first use."""

    arguments: Namespace
    settings: Settings
    _service: WikiService | None = field(default=None, init=False)

    @property
    def service(self) -> WikiService:
        if self._service is None:
            self._service = open_service(self.settings)
        return self._service

    def list_wikis(self) -> Sequence[Wiki]:
        """All wikis, by slug. Opens the service only if the registry is empty, to check why."""
        if self._service is None and not self.settings.store:
            from wikiholt.wikis.registry import REGISTRY_FILE, Registry

            registry = Registry(self.settings.data / REGISTRY_FILE)
            try:
                wikis = registry.list_wikis()
            finally:
                registry.close()
            if wikis or not self.settings.data.exists():
                return wikis
        return self.service.list_wikis()

    @property
    def style(self) -> TerminalStyle:
        style = TerminalStyle.from_stream(sys.stdout)
        return TerminalStyle(style.use_color and not getattr(self.arguments, "no_color", False))

    @property
    def show_progress(self) -> bool:
        """Whether to draw a progress bar."""
        return sys.stderr.isatty() and not self.arguments.json and not getattr(self.arguments, "quiet", False)

    def get_slugs(self) -> list[str]:
        """The wiki that the arguments name, or all wikis. Raises WikiNotFound if there are none."""
        if self.arguments.slug:
            return [self.arguments.slug]
        slugs = [wiki.slug for wiki in self.list_wikis()]
        if not slugs:
            raise self.make_no_wikis_error()
        return slugs

    def run_for_each(
        self, slugs: Iterable[str], run: Callable[[str], Mapping[str, Any]]
    ) -> tuple[list[Mapping[str, Any]], int]:
        """The documents of these wikis, and the exit code. If the arguments name none, an error of one is printed, and
        the others follow."""
        documents: list[Mapping[str, Any]] = []
        exit_code = 0
        for slug in slugs:
            try:
                documents.append(run(slug))
            except WikiholtError as error:
                if self.arguments.slug:
                    raise
                print_error(error, self.arguments, slug)
                shown = {"code": error.code, "message": error.message, "hint": error.hint}
                documents.append({"wiki": slug, "error": shown})
                exit_code = exit_code or error.exit_code
        return documents, exit_code

    def make_no_wikis_error(self) -> WikiNotFound:
        """The error for a command that needs a wiki when there is none."""
        return WikiNotFound(f"There are no wikis yet in {self.describe_place()}.", hint="Add one: wikiholt add PATH")

    def describe_place(self) -> str:
        """Where the wikis are registered, for messages."""
        return "the database of the setting store" if self.settings.store else str(self.settings.data)

    def explain_missing_wiki(self, error: WikiNotFound) -> WikiNotFound:
        """The same error, with the place where the wiki was looked for, and similar slugs."""
        if not error.slug:
            return error
        similar = self.service.registry.suggest_slugs(error.slug)
        suggestion = f"Did you mean {' or '.join(similar)}? " if similar else ""
        return WikiNotFound(
            f"There is no wiki {error.slug!r} in {self.describe_place()}.",
            hint=suggestion + "`wikiholt list` shows all wikis.",
        )

    def print_result(self, document: Mapping[str, Any], lines: Sequence[str]) -> int:
        """Print the result as text, or as JSON with --json. Returns exit code 0."""
        if self.arguments.json:
            sys.stdout.write(output.format_json(document) + "\n")
        elif lines:
            output.print_lines(lines)
        return 0

    def complete(self, text: str) -> str:
        """The text, with the options that select this installation in every command that it suggests."""
        return complete_commands(text, self.arguments)

    def complete_quoted(self, lines: Sequence[str]) -> list[str]:
        """The lines, completed only where a command is in backquotes: they also contain names of files."""
        return [self.complete(line) if "`wikiholt " in line else line for line in lines]

    def close(self) -> None:
        if self._service is not None:
            self._service.close()


CommandFunction = Callable[[CommandContext], int]


def add_command(
    commands: Subparsers,
    name: str,
    run: CommandFunction,
    *,
    text: str = "",
    json: bool = True,
    changes_registry: bool = False,
    logs: bool = True,
) -> argparse.ArgumentParser:
    """Add a command. `text` is the help text of a command in a group; that of the others is their summary.

    `changes_registry` has the registry backed up afterwards. Without `logs` the command sets up logging itself.
    """
    parser = _add_parser(commands, name, text or COMMANDS[name].summary)
    if json:
        # No defaults here, so that the options also work before the command.
        for option, effect in COMMON_OPTIONS.items():
            parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=effect)
    parser.set_defaults(run=run, changes_registry=changes_registry, logs=logs)
    return parser


def add_group(commands: Subparsers, name: str, dest: str) -> Subparsers:
    """Add a command that has commands of its own."""
    parser = _add_parser(commands, name, COMMANDS[name].summary)
    return parser.add_subparsers(dest=dest, metavar=dest.upper(), required=True)


def _add_parser(commands: Subparsers, name: str, text: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def add_slug(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: all wikis)")
    else:
        parser.add_argument("slug", metavar="SLUG", help="the wiki")


def add_repeatable(parser: argparse.ArgumentParser, *names: str, text: str, **options: Any) -> None:
    """Add an option whose values are collected in a list."""
    parser.add_argument(*names, action="append", default=[], help=text, **options)


def can_ask() -> bool:
    """Whether there is a terminal on which the user can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask on the terminal; only yes is a confirmation."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def print_error(error: WikiholtError, arguments: Namespace, slug: str = "") -> None:
    """Print the message and the hint on stderr. The commands that the hint suggests are completed."""
    error.hint = complete_commands(error.hint, arguments)
    prefix = f"{slug}: " if slug else ""
    sys.stderr.write(f"error: {prefix}{to_safe_line(error.message)}\n")
    if isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        # The server's own message names hosts and roles. Only the operator's terminal shows it.
        sys.stderr.write(f"  {to_safe_line(str(error.__cause__))[:_MAX_CAUSE_CHARS]}\n")
    if error.hint:
        sys.stderr.write(f"hint: {to_safe_line(error.hint)}\n")
