"""`wikiholt duplicates`: the pages and passages of a wiki that are nearly the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidInput
from wikiholt.interfaces.cli.command import NOTHING_FOUND_EXIT_CODE, CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.hit_output import FilePlaces
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, get_text_width, to_safe_line
from wikiholt.interfaces.cli.selection import add_wiki_option, resolve_wiki

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wikiholt.api.documents.search_documents import DuplicateGroupDocument, DuplicatesDocument

_MAX_LIMIT = 1000


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "duplicates", run_duplicates)
    add_wiki_option(parser)
    parser.add_argument("--path", default="", metavar="PREFIX", help="only pages at or below this path")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="groups per list (default: 20)")


def run_duplicates(context: CommandContext) -> int:
    arguments = context.arguments
    if not 1 <= arguments.limit <= _MAX_LIMIT:
        raise InvalidInput(f"--limit is {arguments.limit}", hint=f"use 1 to {_MAX_LIMIT}")
    wiki = resolve_wiki(context)
    duplicates = context.service.get_handle(wiki.slug).find_duplicates(PageFilter(path_prefix=arguments.path))
    from wikiholt.api.documents.search_documents import build_duplicates_document

    document = build_duplicates_document(wiki.slug, duplicates, arguments.limit)
    context.print_result(document, list(_format(document, FilePlaces.from_wiki(wiki), context.style)))
    return 0 if document["pages"] or document["passages"] else NOTHING_FOUND_EXIT_CODE


def _format(document: DuplicatesDocument, places: FilePlaces, style: TerminalStyle) -> Iterator[str]:
    if not document["pages"] and not document["passages"]:
        yield "No two pages or passages are nearly the same."
    yield from _format_groups(document["pages"], document["page_groups"], "page", places, style)
    yield from _format_groups(document["passages"], document["passage_groups"], "passage", places, style)


def _format_groups(
    groups: Sequence[DuplicateGroupDocument], count: int, kind: str, places: FilePlaces, style: TerminalStyle
) -> Iterator[str]:
    if groups:
        shown = f", the first {len(groups)}" if len(groups) < count else ""
        yield style.format_bold(f"{format_count(count, 'group')} of {kind}s that are nearly the same{shown}:")
    for group in groups:
        text = to_safe_line(group["text"])
        width = get_text_width()
        yield text if len(text) <= width else f"{text[: width - 1]}…"
        for place in group["places"]:
            line = place["lines"][0] if kind == "passage" else None
            yield f"  {places.format(place['file'], line, style)}"
