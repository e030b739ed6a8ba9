"""Assembles the argument parser of `wikiholt` from the command modules."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from wikiholt import __version__
from wikiholt.interfaces.cli import (
    admin_commands,
    backup_commands,
    database_commands,
    demo_command,
    evaluation_command,
    import_command,
    index_commands,
    key_commands,
    mcp_command,
    open_command,
    page_commands,
    report_command,
    search_command,
    serve_command,
    shell_commands,
    wiki_commands,
)

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
  10 doctor found problems
  11 permission denied
  70 internal error
"""
_COMMAND_MODULES = (
    demo_command,
    serve_command,
    wiki_commands,
    key_commands,
    index_commands,
    search_command,
    page_commands,
    open_command,
    backup_commands,
    import_command,
    database_commands,
    evaluation_command,
    report_command,
    mcp_command,
    admin_commands,
    shell_commands,
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of `wikiholt`. A parsed command has `run`, a function of its CommandContext."""
    parser = argparse.ArgumentParser(
        prog="wikiholt",
        description="Search for wikis that live in git: by meaning and by keyword, offline, one index per wiki.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wikiholt {__version__}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data directory (default: ./wikiholt-data)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: wikiholt.toml in DIR)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for this command; repeatable"
    )
    parser.add_argument("--no-color", action="store_true", help="print no colors and no links")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in _COMMAND_MODULES:
        module.add_arguments(commands)
    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    return build_parser().parse_args(arguments)
