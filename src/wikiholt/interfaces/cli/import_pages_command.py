"""`wikiholt import-pages`: writes pages from NDJSON."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from wikiholt.domain.git import Author
from wikiholt.errors import InvalidImport, InvalidPage
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_slug
from wikiholt.interfaces.cli.output import format_count, to_safe_line
from wikiholt.interfaces.schemas.bulk_schemas import BulkResultDocument, write_lines
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult, BulkOutcome

_AUTHOR = Author("Wikiholt", "import@wikiholt.invalid")


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "import-pages", run_import_pages)
    add_slug(parser)
    parser.add_argument("file", metavar="FILE", help='lines of {"path": …, "content": …}; - reads standard input')
    parser.add_argument("--message", default="", metavar="TEXT", help="message of the commits")


def run_import_pages(context: CommandContext) -> int:
    """Write the pages, report each line that fails, and exit with 2 if any did. With --json, one result per line."""
    arguments = context.arguments
    pages = context.service.get_handle(arguments.slug).pages

    def write(batch: Sequence[BulkLine]) -> Sequence[BulkLineResult]:
        return pages.write_many(batch, _AUTHOR, arguments.message)

    counts: Counter[str] = Counter()
    try:
        with nullcontext(sys.stdin.buffer) if arguments.file == "-" else Path(arguments.file).open("rb") as stream:
            for document in write_lines(stream, write):
                counts[document["result"]] += 1
                _print_line(document, as_json=arguments.json)
    except OSError as error:
        raise InvalidImport(
            f"{arguments.file} cannot be read ({error.strerror})", hint="check its path; lines before it are written"
        ) from error
    if not arguments.json:
        sys.stdout.write(_format_summary(arguments.slug, counts))
    return InvalidPage.exit_code if counts[BulkOutcome.FAILED] else 0


def _print_line(document: BulkResultDocument, *, as_json: bool) -> None:
    error = document["error"]
    if as_json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    elif error is not None:
        path = f" ({to_safe_line(document['path'])})" if document["path"] else ""
        sys.stderr.write(f"line {document['line']}{path}: {error['code']}: {to_safe_line(error['message'])}\n")


def _format_summary(slug: str, counts: Counter[str]) -> str:
    results = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in BulkOutcome if counts[outcome])
    return (
        f"{slug}: {format_count(counts.total(), 'line')}: {results or 'nothing to do'}.\nNext: wikiholt sync {slug}\n"
    )
