"""The command line's grammar."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from wikiholt import __version__
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import Scope
from wikiholt.wikis.evaluation.questions import MINED_KINDS

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


def build_parser() -> argparse.ArgumentParser:
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
    _add_demo(commands)
    _add_serve(commands)
    _add_add(commands)
    _add_set(commands)
    _add_key(commands)
    _add_sync(commands)
    _add_reindex(commands)
    _add_backup(commands)
    _add_restore(commands)
    _add_import(commands)
    _add_database(commands)
    _add_move(commands)
    _add_command(commands, "upgrade", "bring every wiki in PostgreSQL to the layout of this version")
    _add_search(commands)
    _add_eval(commands)
    _add_report(commands)
    _add_mcp(commands)
    _add_slug(_add_command(commands, "status", "say how wikis stand: pages, problems, freshness"), optional=True)
    _add_command(commands, "list", "list the wikis")
    _add_slug(
        _add_command(commands, "rebind", "take the repository at a wiki's path for its own: a copy that was restored")
    )
    _add_slug(_add_command(commands, "remove", "remove a wiki's index, every byte of it; the repository is left alone"))
    _add_command(commands, "doctor", "check model, disk, git and every index, and say what to do")
    _add_command(commands, "settings", "show every setting and the value it has here")
    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    return build_parser().parse_args(arguments)


_Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_command(commands: _Subparsers, name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def _add_slug(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: every wiki)")
    else:
        parser.add_argument("slug", metavar="SLUG", help="the wiki")


def _add_demo(commands: _Subparsers) -> None:
    parser = _add_command(commands, "demo", "make two example wikis, index them and search them")
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where (default: ./demo-data)")


def _add_serve(commands: _Subparsers) -> None:
    parser = _add_command(commands, "serve", "serve all wikis by HTTP and keep their indexes at HEAD")
    parser.add_argument(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="take up the repositories in this directory; repeatable",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="where to listen (default: serve.host, 127.0.0.1)")
    parser.add_argument("--port", metavar="PORT", help="on which port (default: serve.port, 8765); 0 takes a free one")


def _add_add(commands: _Subparsers) -> None:
    parser = _add_command(commands, "add", "register a git repository as a wiki")
    _add_slug(parser)
    parser.add_argument(
        "source", metavar="PATH_OR_URL", help="the repository: a directory, or the URL of one elsewhere"
    )
    parser.add_argument("--subdirectory", metavar="DIR", help="only the pages below this directory")
    parser.add_argument("--ignore", action="append", default=[], metavar="GLOB", help="files to leave out; repeatable")
    parser.add_argument("--hide", action="append", default=[], metavar="GLOB", help="pages no search finds; repeatable")
    parser.add_argument("--language", metavar="NAME", help="language of its words, for stemming")
    parser.add_argument("--languages", metavar="NAMES", help="further languages it has pages in, separated by commas")
    parser.add_argument("--anchors", metavar="STYLE", help="how headings are named in links: github or otterwiki")
    parser.add_argument("--url", metavar="TEMPLATE", help="link of a hit, {path} standing for the page's path")
    parser.add_argument("--public", action="store_true", help="may be read without a key")
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="a host name of it; repeatable")
    parser.add_argument("--interval", metavar="SECONDS", help="how often the service looks at its repository")


def _add_set(commands: _Subparsers) -> None:
    parser = _add_command(commands, "set", "show or change the settings of a wiki")
    _add_slug(parser)
    parser.add_argument(
        "pairs",
        nargs="*",
        metavar="NAME=VALUE",
        help="a setting and its value; an empty value unsets it, - takes it from standard input",
    )


def _add_key(commands: _Subparsers) -> None:
    text = "make, list and revoke keys"
    parser = commands.add_parser("key", help=text, description=text[0].upper() + text[1:] + ".")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _add_command(actions, "create", "make a key of one wiki, or of the operator, and show it once")
    create.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki it opens")
    create.add_argument("--operator", action="store_true", help="a key that opens every wiki, for everything")
    scopes = [str(scope) for scope in Scope]
    create.add_argument("--scope", choices=scopes, help="what it allows (default: read; an operator's: admin)")
    create.add_argument("--label", default="", metavar="TEXT", help="who or what it is for")
    create.add_argument("--expires", metavar="WHEN", help="a date (2027-01-31), or in so long: 12h, 30d, 8w")
    _add_slug(_add_command(actions, "list", "list keys, without their secrets"), optional=True)
    revoke = _add_command(actions, "revoke", "make a key worthless, at once and for ever")
    revoke.add_argument(
        "id", metavar="ID", help="the key's id, as `key list` shows it; the whole key is understood too"
    )


def _add_sync(commands: _Subparsers) -> None:
    parser = _add_command(commands, "sync", "make indexes equal to the wikis' HEAD")
    _add_slug(parser, optional=True)
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def _add_reindex(commands: _Subparsers) -> None:
    parser = _add_command(commands, "reindex", "build a wiki's index anew; the old one answers until that is done")
    _add_slug(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what that would take: chunks, time, disk")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def _add_backup(commands: _Subparsers) -> None:
    parser = _add_command(commands, "backup", "keep a verified copy of a wiki's index, or of everything")
    parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki (default: every wiki, and the registry)")
    parser.add_argument("--registry", action="store_true", help="the registry alone: wikis, their settings, keys")


def _add_restore(commands: _Subparsers) -> None:
    parser = _add_command(commands, "restore", "have a backup answer again, or list the backups there are")
    parser.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki")
    parser.add_argument("--registry", action="store_true", help="the registry: wikis, their settings, keys")
    parser.add_argument("--list", action="store_true", help="show the backups there are, newest first")
    parser.add_argument(
        "--empty",
        action="store_true",
        help="with --registry: without a good backup, start a registry without wikis and keys, closed to all",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the newest not taken after: 2026-11-15 (its end), 2026-11-15T12:30, or 12h, 7d ago",
    )


def _add_import(commands: _Subparsers) -> None:
    text = "make one index a wiki of an index that wikis shared"
    parser = commands.add_parser("import", help=text, description=text[0].upper() + text[1:] + ".")
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    chroma = _add_command(kinds, "chroma", "import a collection of Chroma")
    chroma.add_argument("location", metavar="DIR_OR_URL", help="its directory, or the URL of the server that has it")
    chroma.add_argument("--collection", default="otterwiki_pages", metavar="NAME", help="default: otterwiki_pages")
    chroma.add_argument("--chroma-tenant", default="default_tenant", metavar="NAME", help="default: default_tenant")
    chroma.add_argument(
        "--chroma-database", default="default_database", metavar="NAME", help="default: default_database"
    )
    faiss = _add_command(kinds, "faiss", "import a FAISS directory of otterwiki-semantic-search")
    faiss.add_argument("location", metavar="DIR", help="one index, or a directory of them that are named by wikis")
    postgres = _add_command(kinds, "postgres", "import a table of PostgreSQL")
    postgres.add_argument("location", metavar="ADDRESS", help="a connection string: postgresql://…")
    postgres.add_argument("--table", default="chunks", metavar="NAME", help="default: chunks")
    postgres.add_argument(
        "--column", action="append", default=[], metavar="NAME=COLUMN", help="what a column is called; repeatable"
    )
    for each in (chroma, faiss, postgres):
        each.add_argument("--dry-run", action="store_true", help="only say what would be done, and how long it takes")
        each.add_argument("--wiki", action="append", default=[], metavar="SLUG", help="only this wiki; repeatable")
        each.add_argument(
            "--owner", action="append", default=[], metavar="PATTERN=SLUG", help="whose these pages are; repeatable"
        )
        each.add_argument(
            "--tenant", action="append", default=[], metavar="NAME=SLUG", help="which wiki a tenant is; repeatable"
        )
        each.add_argument("--sample", type=int, default=64, metavar="N", help="vectors to check (default: 64)")
        each.add_argument(
            "--timeout", type=float, default=120, metavar="SECONDS", help="longest silence (default: 120)"
        )
        each.add_argument("--quiet", action="store_true", help="show no progress bar")


def _add_database(commands: _Subparsers) -> None:
    text = "add, list and remove the databases that hold wikis"
    parser = commands.add_parser("database", help=text, description=text[0].upper() + text[1:] + ".")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = _add_command(actions, "add", "make a database ready for wikis, and have new ones go there")
    name = "what it is called: lower-case letters and digits"
    add.add_argument("name", metavar="NAME", help=name)
    add.add_argument("address", metavar="ADDRESS", help="postgresql://…; - takes it from standard input")
    add.add_argument("--weight", type=float, default=1.0, metavar="N", help="its share of new wikis (default: 1)")
    _add_command(actions, "list", "list the databases and how they stand")
    for action, about in (
        ("open", "let new wikis go to a database"),
        ("close", "let no new wikis go to a database"),
        ("remove", "know a database no more; refused while it holds wikis"),
    ):
        _add_command(actions, action, about).add_argument("name", metavar="NAME", help="as `database list` shows it")
    _add_command(actions, "sweep", "remove indexes that belong to no wiki, such as those of a move that was given up")


def _add_move(commands: _Subparsers) -> None:
    parser = _add_command(commands, "move", "move wikis to another database, or all of them to another store")
    parser.add_argument("slugs", nargs="*", metavar="SLUG", help="the wikis to move to another database")
    parser.add_argument("--all", action="store_true", help="every wiki")
    parser.add_argument("--from", dest="origin", metavar="DATABASE", help="with --all: only those of this database")
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="a database; with --all also a directory, or postgresql://…, which - takes from standard input",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _add_mcp(commands: _Subparsers) -> None:
    text = "serve one wiki to an agent: MCP on standard input and output"
    parser = commands.add_parser("mcp", help=text, description=text[0].upper() + text[1:] + ".")
    _add_slug(parser)
    parser.add_argument("--write", action="store_true", help="let the agent write, rename and delete pages")
    parser.add_argument("--author", default="", metavar="AUTHOR", help="who its commits are by: Name <address>")


def _add_search(commands: _Subparsers) -> None:
    parser = _add_command(commands, "search", "search a wiki")
    _add_slug(parser)
    parser.add_argument("query", metavar="QUERY", help='words or a question; "a phrase", -word')
    parser.add_argument("-n", type=int, default=5, metavar="N", help="how many pages, 1 to 100 (default: 5)")
    modes = [str(mode) for mode in SearchMode]
    parser.add_argument("--mode", choices=modes, default=str(SearchMode.HYBRID), help="how to search (default: hybrid)")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeatable")
    parser.add_argument("--category", action="append", default=[], metavar="NAME", help="only of this one; repeatable")
    parser.add_argument("--path", default="", metavar="PREFIX", help="only pages at or below this path")
    parser.add_argument("--since", metavar="WHEN", help="only updated since a date (2024-05-31) or for 7d, 12h, 3w")
    parser.add_argument(
        "--rerank",
        action=argparse.BooleanOptionalAction,
        help="whether the reranker reads the best pages again (default: if rerank.model is set)",
    )


def _add_report(commands: _Subparsers) -> None:
    parser = _add_command(commands, "report", "say what was searched for in a wiki, where searches are written down")
    _add_slug(parser)
    parser.add_argument("--days", type=int, metavar="N", help="the last N days (default: all that is kept)")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="rows of each list (default: 10)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report to look at")
    parser.add_argument("--clear", action="store_true", help="forget everything that was searched for")


def _add_eval(commands: _Subparsers) -> None:
    parser = _add_command(commands, "eval", "measure how well a wiki's search finds what it should")
    _add_slug(parser)
    modes = [str(mode) for mode in SearchMode]
    parser.add_argument(
        "--mode", action="append", default=[], choices=modes, help="only search so; repeatable (default: all three)"
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="MODE_OR_NAME=VALUE",
        help="compare the first mode with another, or with itself under another setting; repeatable",
    )
    kinds = [str(kind) for kind in MINED_KINDS]
    parser.add_argument(
        "--kind", action="append", default=[], choices=kinds, help="only such questions; repeatable (default: all)"
    )
    parser.add_argument("--queries", type=Path, metavar="FILE", help="questions of your own: JSON lines of id and text")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="what they should find: query, page, grade, by tabs")
    parser.add_argument("--limit", type=int, default=200, metavar="N", help="questions of a kind (default: 200)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses among more questions (default: 0)")
    parser.add_argument("--worst", type=int, default=5, metavar="N", help="worst answers to show (default: 5)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report to look at")
