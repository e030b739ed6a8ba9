"""The argument parser of `wikiholt`. Only the module of the command that runs is imported."""

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from wikiholt import __version__

EXIT_CODES = """\
exit codes:
   0 success
   1 nothing found
   2 invalid input
   3 wiki or page not found
   4 busy, or already exists
   5 model error
   6 git repository cannot be read
   7 index unavailable
   8 sync failed
   9 optional dependency not installed
  10 doctor or verify-isolation found problems
  11 permission denied
  70 internal error
 130 interrupted, or not confirmed
"""
_DESCRIPTION = "Search for wikis and folders of Markdown: by meaning and by keyword, offline, one index per wiki."
_INVALID_USAGE_EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130
_OPTIONS_WITH_VALUE = ("--data", "--config", "--set")
COMMON_OPTIONS = {
    "--json": "print one JSON document and nothing else",
    "--no-color": "print no colors and no links",
}
"""Options that may stand before or after the command."""


class Summary(NamedTuple):
    """A command in the overview: its group, its module in this package, and its summary."""

    group: str
    module: str
    summary: str


_FIRST = "Start here"
_PAGES = "Pages"
_INDEXES = "Wikis and indexes"
_SERVICE = "Service and keys"
_QUALITY = "Quality"
_OPERATION = "Operation"
_DATABASES = "PostgreSQL"
COMMANDS = {
    "search": Summary(_FIRST, "search_command", "search the wiki of this folder, or other wikis"),
    "add": Summary(_FIRST, "wiki_commands", "register a git repository or a directory of pages as a wiki"),
    "list": Summary(_FIRST, "list_command", "list the wikis"),
    "status": Summary(_FIRST, "index_commands", "show the state of wikis: pages, problems, freshness"),
    "serve": Summary(_FIRST, "serve_command", "serve all wikis over HTTP and keep their indexes at HEAD"),
    "read": Summary(_PAGES, "page_commands", "show a page, or the section below one of its headings"),
    "open": Summary(_PAGES, "page_commands", "open a page in your editor, or in the browser"),
    "similar": Summary(_PAGES, "page_commands", "find pages similar to a page"),
    "links": Summary(_PAGES, "page_commands", "show the links of a page, the links to it, and its broken links"),
    "recent": Summary(_PAGES, "page_commands", "list the pages that changed last, newest first"),
    "sync": Summary(_INDEXES, "index_commands", "update indexes to the HEAD of their repositories"),
    "reindex": Summary(
        _INDEXES,
        "index_commands",
        "rebuild a wiki's index from scratch; the current index stays in use until the new one is complete",
    ),
    "create": Summary(_INDEXES, "wiki_commands", "create a wiki whose pages Wikiholt itself stores, in git"),
    "set": Summary(_INDEXES, "wiki_commands", "show or change the settings of a wiki"),
    "rebind": Summary(
        _INDEXES, "wiki_commands", "accept the repository at a wiki's path as its own, such as a restored copy"
    ),
    "remove": Summary(
        _INDEXES,
        "wiki_commands",
        "delete a wiki's index, keys and registration; a repository that `create` did not make is not touched",
    ),
    "import-pages": Summary(_INDEXES, "import_command", "write pages from NDJSON, in commits of many pages"),
    "import": Summary(_INDEXES, "import_command", "build one index per wiki from an index that several wikis shared"),
    "demo": Summary(_INDEXES, "demo_command", "create two example wikis, index them and search them"),
    "mcp": Summary(_SERVICE, "mcp_command", "serve one wiki to an agent: MCP on standard input and output"),
    "key": Summary(_SERVICE, "key_commands", "create, list and revoke keys"),
    "eval": Summary(_QUALITY, "evaluation_command", "measure the search quality of a wiki"),
    "report": Summary(_QUALITY, "report_command", "show what was searched for in a wiki, if searches are logged"),
    "doctor": Summary(_OPERATION, "admin_commands", "check model, disk, git and all indexes, and suggest fixes"),
    "verify-isolation": Summary(_OPERATION, "admin_commands", "check that no wiki has data of another wiki"),
    "model": Summary(_OPERATION, "admin_commands", "fetch, list and remove embedding models"),
    "settings": Summary(_OPERATION, "admin_commands", "show all settings and their values"),
    "completion": Summary(_OPERATION, "shell_commands", "print the completion script for a shell"),
    "man": Summary(_OPERATION, "shell_commands", "print the manual page, for man -l -"),
    "backup": Summary(_OPERATION, "backup_commands", "create a verified copy of a wiki's index, or of everything"),
    "restore": Summary(_OPERATION, "backup_commands", "restore a backup, or list the backups"),
    "database": Summary(_DATABASES, "database_commands", "add, list and remove the databases of the wikis"),
    "move": Summary(_DATABASES, "database_commands", "move wikis to another database, or all wikis to another store"),
}
"""Every command in the order of the overview."""


class Parser(argparse.ArgumentParser):
    """Reports errors as `error:` and `hint:`, like every other error of the command line."""

    def error(self, message: str) -> NoReturn:
        self.fail(message, f"`{self.prog} --help` shows how to use it")

    def fail(self, message: str, hint: str, name: str = "", known: Iterable[str] = ()) -> NoReturn:
        """Print the error, with the closest of the known names, and exit."""
        import difflib

        close = difflib.get_close_matches(name, list(known), n=1)
        suggestion = f"Did you mean {close[0]}? " if close else ""
        self.exit(_INVALID_USAGE_EXIT_CODE, f"error: {message}\nhint: {suggestion}{hint}\n")


class _TopParser(Parser):
    """The parser of `wikiholt` itself, whose help is an overview of all commands."""

    def format_help(self) -> str:
        return f"{self.format_usage()}\n{_DESCRIPTION}\n\n{_format_overview()}\n{_format_options(self)}\n{EXIT_CODES}"


def _format_overview() -> str:
    """All commands by group."""
    width = max(map(len, COMMANDS))
    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines.append(f"{group}:")
        lines += [
            f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items() if command.group == group
        ]
        lines.append("")
    lines.append("`wikiholt COMMAND --help` shows the options of a command.")
    return "\n".join(lines) + "\n"


def _format_options(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog)
    formatter.start_section("options")
    formatter.add_arguments(action for action in parser._actions if action.option_strings)
    formatter.end_section()
    return formatter.format_help()


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> Parser:
    """The parser with these commands. A parsed command has `run`, a function of its CommandContext."""
    parser = _TopParser(prog="wikiholt", usage="wikiholt [OPTIONS] COMMAND …", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"wikiholt {__version__}", help="print the version")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data directory (`wikiholt settings` shows it)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: wikiholt.toml in DIR)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for this command; repeatable"
    )
    for option, effect in COMMON_OPTIONS.items():
        parser.add_argument(option, action="store_true", help=effect)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser, prog="wikiholt"
    )
    for module in dict.fromkeys(COMMANDS[name].module for name in names):
        importlib.import_module(f"wikiholt.interfaces.cli.{module}").add_arguments(commands)
    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments, or those of the process. Prints help or the error and exits if there is no command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = _find_command(given)
    if name is None:
        top = build_parser(())
        if not given:
            # A script without a command is an error, and its output may be parsed.
            top.print_help(sys.stdout if sys.stdout.isatty() else sys.stderr)
            top.exit(0 if sys.stdout.isatty() else _INVALID_USAGE_EXIT_CODE)
        parsed, _ = top.parse_known_args(given)  # handles --help and --version, and reports the missing command
        return parsed
    parser = build_parser((name,) if name in COMMANDS else ())
    if name not in COMMANDS:
        parser.fail(f"there is no command {name!r}", "`wikiholt --help` lists all commands", name, COMMANDS)
    parsed, unknown = _parse_known(parser, given)
    if parsed.json and "--json" not in _get_chosen_parser(parser, parsed)._option_string_actions:
        unknown.append("--json")
    if unknown:
        _fail_unknown(parser, name, parsed, unknown)
    parsed.given = given
    return parsed


def _find_command(arguments: Sequence[str]) -> str | None:
    """The first argument that is neither an option nor the value of one."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument in _OPTIONS_WITH_VALUE:
            position += 1
        elif not argument.startswith("-"):
            return argument
        position += 1
    return None


def _parse_known(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse, and return the arguments that nothing declares. Words of a query may stand between options."""
    parsed, rest = parser.parse_known_args(arguments)
    words = getattr(parsed, "words", None)
    if words is None:
        return parsed, rest
    # argparse takes the first run of words. Those after an option, and excluded words such as -draft, are left over.
    parsed.words = [*words, *(argument for argument in rest if _is_query_word(argument))]
    return parsed, [argument for argument in rest if not _is_query_word(argument)]


def _is_query_word(argument: str) -> bool:
    return not argument.startswith("-") or (len(argument) > 2 and argument[1] != "-")


def _fail_unknown(
    parser: argparse.ArgumentParser, name: str, parsed: argparse.Namespace, unknown: list[str]
) -> NoReturn:
    option = unknown[0].partition("=")[0]
    command = _get_chosen_parser(parser, parsed)
    general = [text for action in parser._actions for text in action.option_strings]
    if option in general and option not in COMMON_OPTIONS:
        command.fail(f"{option} must stand before the command", f"write `wikiholt {option} … {name}`")
    kind = "option" if option.startswith("-") else "argument"
    options = [text for action in command._actions for text in action.option_strings]
    hint = f"`{command.prog} --help` lists its options"
    known = options if kind == "option" else ()
    command.fail(f"`{command.prog}` has no {kind} {option!r}", hint, option, known)


def _get_chosen_parser(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Parser:
    """The parser of the command, or of its subcommand such as `key create`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return _get_chosen_parser(action.choices[getattr(parsed, action.dest)], parsed)
    assert isinstance(parser, Parser)
    return parser
