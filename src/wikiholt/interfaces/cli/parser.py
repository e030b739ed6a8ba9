"""The argument parser of `wikiholt`. Only the module of the command that runs is imported."""

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from wikiholt import __version__

EXIT_CODES = """\
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
  10 check, doctor or verify-isolation found problems
  11 permission denied
  70 internal error
 130 interrupted, or not confirmed
"""
_DESCRIPTION = "Search for wikis and folders of Markdown: by meaning and by keyword, offline, one index per wiki."
_INVALID_USAGE_EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130
OPTIONS_WITH_VALUE = ("--data", "--config", "--set")
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


_FIRST = "search and read"
"""The group that the overview explains. It names only the commands of the others, whose names are topics of `help`."""
COMMANDS = {
    "search": Summary(_FIRST, "search_command", "search the wiki of this folder, or other wikis"),
    "ask": Summary(_FIRST, "ask_command", "answer a question with sentences of the wiki"),
    "read": Summary(_FIRST, "page_commands", "show a page, or the section below one of its headings"),
    "open": Summary(_FIRST, "page_commands", "open a page in your editor, or in the browser"),
    "similar": Summary(_FIRST, "page_commands", "find pages similar to a page"),
    "links": Summary(_FIRST, "page_commands", "show the links of a page, the links to it, and its broken links"),
    "recent": Summary(_FIRST, "page_commands", "list the pages that changed last, newest first"),
    "add": Summary(_FIRST, "wiki_commands", "register a git repository or a directory of pages as a wiki"),
    "list": Summary(_FIRST, "list_command", "list the wikis"),
    "status": Summary(_FIRST, "index_commands", "show the state of wikis: pages, problems, freshness"),
    "sync": Summary("wikis", "index_commands", "update indexes to the HEAD of their repositories"),
    "reindex": Summary(
        "wikis",
        "index_commands",
        "rebuild a wiki's index from scratch; the current index stays in use until the new one is complete",
    ),
    "past": Summary("wikis", "past_command", "list or delete the indexes of past commits, which `search --at` makes"),
    "index": Summary("wikis", "sharing_commands", "share the vectors of an index through the wiki's own repository"),
    "create": Summary("wikis", "wiki_commands", "create a wiki whose pages Wikiholt itself stores, in git"),
    "set": Summary("wikis", "wiki_commands", "show or change the settings of a wiki"),
    "rebind": Summary(
        "wikis", "wiki_commands", "accept the repository at a wiki's path as its own, such as a restored copy"
    ),
    "remove": Summary(
        "wikis",
        "wiki_commands",
        "delete a wiki's index, keys and registration; a repository that `create` did not make is not touched",
    ),
    "import-pages": Summary("wikis", "import_command", "import NDJSON, a MediaWiki dump or an archive of notes"),
    "import": Summary("wikis", "import_command", "build one index per wiki from an index that several wikis shared"),
    "demo": Summary("wikis", "demo_command", "create two example wikis, index them and search them"),
    "serve": Summary("service", "serve_command", "serve all wikis over HTTP and keep their indexes at HEAD"),
    "stop": Summary("service", "background", "stop the process that keeps the model in memory for searches"),
    "mcp": Summary("service", "mcp_command", "serve one wiki to an agent: MCP on standard input and output"),
    "key": Summary("service", "key_commands", "create, list and revoke keys"),
    "export": Summary("service", "export_command", "write the search of a wiki as static files, for any web host"),
    "check": Summary("quality", "check_command", "test a wiki in CI: questions, links, and sentences that contradict"),
    "eval": Summary("quality", "evaluation_command", "measure the search quality of a wiki"),
    "report": Summary("quality", "report_command", "show what was searched for in a wiki, if searches are logged"),
    "duplicates": Summary("quality", "duplicates_command", "list the pages and passages that are nearly the same"),
    "doctor": Summary("operation", "admin_commands", "check model, disk, git and all indexes, and suggest fixes"),
    "verify-isolation": Summary("operation", "admin_commands", "check that no wiki has data of another wiki"),
    "backup": Summary("operation", "backup_commands", "create a verified copy of a wiki's index, or of everything"),
    "restore": Summary("operation", "backup_commands", "restore a backup, or list the backups"),
    "model": Summary("operation", "admin_commands", "fetch, list and remove embedding models"),
    "settings": Summary("operation", "admin_commands", "show all settings and their values"),
    "help": Summary("operation", "shell_commands", "explain a command, or all commands of a group"),
    "completion": Summary("operation", "shell_commands", "print the completion script for a shell"),
    "man": Summary("operation", "shell_commands", "print the manual page, for man -l -"),
    "database": Summary("postgresql", "database_commands", "add, list and remove the databases of the wikis"),
    "move": Summary("postgresql", "database_commands", "move wikis to another database, or all wikis to another store"),
}
"""Every command in the order of the overview."""
_GROUPS = {
    group: [name for name, command in COMMANDS.items() if command.group == group]
    for group in dict.fromkeys(command.group for command in COMMANDS.values())
}
TOPICS = (*COMMANDS, *(group for group in _GROUPS if group != _FIRST), "options", "exit-codes", "all")
"""What `help` explains."""


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
        others = [(group, ", ".join(names)) for group, names in _GROUPS.items() if group != _FIRST]
        others += [
            ("options", "those of every command"),
            ("exit-codes", "what the exit codes mean"),
            ("all", "everything"),
        ]
        return (
            f"{self.format_usage()}\n{_DESCRIPTION}\n\n{_format_group(_FIRST)}\n"
            f"more, with `wikiholt help NAME`:\n{_format_rows(others)}\n"
            "`wikiholt COMMAND --help` shows the options of a command.\n"
        )


def _format_group(group: str) -> str:
    """The commands of a group with their summaries."""
    return f"{group}:\n{_format_rows([(name, COMMANDS[name].summary) for name in _GROUPS[group]])}"


def _format_rows(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"  {name:{width}}  {text}\n" for name, text in rows)


def explain(topic: str | None) -> str:
    """The help text of a command, a group or another topic; without one, the overview."""
    if topic is None:
        return build_parser(()).format_help()
    if topic in COMMANDS:
        subparsers = find_subparsers(build_parser((topic,)))
        return subparsers.choices[topic].format_help() if subparsers else ""
    formatter = argparse.HelpFormatter("wikiholt")
    formatter.start_section("options")
    formatter.add_arguments(action for action in build_parser(())._actions if action.option_strings)
    formatter.end_section()
    texts = {group: _format_group(group) for group in _GROUPS}
    texts |= {"options": formatter.format_help(), "exit-codes": f"exit codes:\n{EXIT_CODES}"}
    return "\n".join(texts.values()) if topic == "all" else texts[topic]


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
    name = find_command(given)
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
    if name == "help":  # before any settings are read, which may be invalid
        if parsed.topic not in (None, *TOPICS):
            hint = "`wikiholt --help` lists the commands and groups"
            parser.fail(f"there is no help for {parsed.topic!r}", hint, parsed.topic, TOPICS)
        sys.stdout.write(explain(parsed.topic))
        parser.exit()
    parsed.given = given
    return parsed


def find_command(arguments: Sequence[str]) -> str | None:
    """The first argument that is neither an option nor the value of one."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument in OPTIONS_WITH_VALUE:
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
    if option in ("-w", "--wiki") and any(action.metavar == "SLUG" for action in command._get_positional_actions()):
        hint = f"name the wiki without it: `{command.prog} SLUG`"
    known = options if kind == "option" else ()
    command.fail(f"`{command.prog}` has no {kind} {option!r}", hint, option, known)


def _get_chosen_parser(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Parser:
    """The parser of the command, or of its subcommand such as `key create`."""
    while subparsers := find_subparsers(parser):
        parser = subparsers.choices[getattr(parsed, subparsers.dest)]
    assert isinstance(parser, Parser)
    return parser


def find_subparsers(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    """The commands below this parser, if it has any."""
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
