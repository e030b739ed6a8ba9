"""The command line's grammar."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from wikiholt import __version__
from wikiholt.model import Mode

EXIT_CODES = """\
exit codes:
  0 done                    5 the model cannot be trusted
  1 nothing was found       6 the git repository cannot be read
  2 bad input               7 the index cannot serve
  3 no such wiki or page    8 the sync failed
  4 busy, or exists already 9 an extra is not installed
  10 doctor found something to mend
  11 who asks may not
  70 Wikiholt itself has a fault
"""


def build() -> argparse.ArgumentParser:
    """The parser of `wikiholt`."""
    parser = argparse.ArgumentParser(
        prog="wikiholt",
        description="Search for wikis that live in git: by meaning and by word, offline, one index per wiki.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wikiholt {__version__}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where indexes live (default: ./wikiholt-data)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: wikiholt.toml in DIR)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for this command; repeatable"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _demo(commands)
    _add(commands)
    _sync(commands)
    _search(commands)
    _slug(_command(commands, "status", "say how wikis stand: pages, problems, freshness"), optional=True)
    _command(commands, "list", "list the wikis")
    _slug(_command(commands, "remove", "remove a wiki's index, every byte of it; the repository is left alone"))
    _command(commands, "doctor", "check model, disk, git and every index, and say what to do")
    _command(commands, "settings", "show every setting and the value it has here")
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    return build().parse_args(arguments)


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(commands: _Commands, name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def _slug(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: every wiki)")
    else:
        parser.add_argument("slug", metavar="SLUG", help="the wiki")


def _demo(commands: _Commands) -> None:
    parser = _command(commands, "demo", "make two example wikis, index them and search them")
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where (default: ./demo-data)")


def _add(commands: _Commands) -> None:
    parser = _command(commands, "add", "register a git repository as a wiki")
    _slug(parser)
    parser.add_argument("path", type=Path, metavar="PATH", help="the repository, bare or with a work tree")
    parser.add_argument("--subdirectory", metavar="DIR", help="only the pages below this directory")
    parser.add_argument("--ignore", action="append", default=[], metavar="GLOB", help="files to leave out; repeatable")
    parser.add_argument("--language", metavar="NAME", help="language of its words, for stemming")
    parser.add_argument("--anchors", metavar="STYLE", help="how headings are named in links: github or otterwiki")
    parser.add_argument("--url", metavar="TEMPLATE", help="link of a hit, {path} standing for the page's path")


def _sync(commands: _Commands) -> None:
    parser = _command(commands, "sync", "make indexes equal to the wikis' HEAD")
    _slug(parser, optional=True)
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def _search(commands: _Commands) -> None:
    parser = _command(commands, "search", "search a wiki")
    _slug(parser)
    parser.add_argument("query", metavar="QUERY", help='words or a question; "a phrase", -word')
    parser.add_argument("-n", type=int, default=5, metavar="N", help="how many pages, 1 to 100 (default: 5)")
    modes = [str(mode) for mode in Mode]
    parser.add_argument("--mode", choices=modes, default=str(Mode.HYBRID), help="how to search (default: hybrid)")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeatable")
    parser.add_argument("--category", action="append", default=[], metavar="NAME", help="only of this one; repeatable")
    parser.add_argument("--path", default="", metavar="PREFIX", help="only pages at or below this path")
    parser.add_argument("--since", metavar="WHEN", help="only updated since a date (2024-05-31) or for 7d, 12h, 3w")
