"""`wikiholt report`: what was searched for in a wiki."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from html import escape

from wikiholt.asked import QueryReport
from wikiholt.errors import BadInput
from wikiholt.service import Service
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import show
from wikiholt.surfaces.cli.report_tables import Table, summary, tables
from wikiholt.surfaces.cli.sheet import sheet, table, write_sheet
from wikiholt.surfaces.documents.queries import query_report_document

_WIDEST = 60
"""Characters of a query on a line of the terminal."""


def report(service: Service, arguments: Namespace) -> int:
    """Say what was asked of a wiki, or forget it."""
    slug, queries = arguments.slug, service.wiki(arguments.slug).queries
    if arguments.clear:
        count = queries.clear()
        said = "There was nothing to forget." if not count else f"Forgot {count} searches of {slug}."
        return show(arguments, {"wiki": slug, "cleared": count}, [said])
    for name, most in (("days", 3660), ("limit", 1000)):
        given = getattr(arguments, name)
        if given is not None and not 1 <= given <= most:
            raise BadInput(f"--{name} is {given}", hint=f"use 1 to {most}")
    found = queries.report(arguments.days, arguments.limit)
    lines = list(_lines(slug, found, output.Style.of(sys.stdout)))
    if arguments.html:
        write_sheet(arguments.html, report_page(slug, found))
        lines.append(f"Report: {output.line(str(arguments.html))}")
    return show(arguments, query_report_document(slug, found), lines)


def report_page(slug: str, found: QueryReport) -> str:
    """The report as one HTML file; whatever somebody typed is shown as text."""
    said = [f"<p>{escape(each)}</p>" for each in summary(found)]
    shown = [_drawn(each) for each in tables(found)] if found.searches else []
    return sheet(f"What was searched for in {slug}", [*said, *shown])


def _drawn(each: Table) -> str:
    if each.rows:
        return table(each.caption, each.heads, each.rows)
    return f"<p><b>{escape(each.caption)}</b><br>{escape(each.empty)}</p>"


def _lines(slug: str, found: QueryReport, style: output.Style) -> Iterator[str]:
    first, *others = summary(found)
    yield f"{style.bold(slug)}, {first}" if found.searches else f"{style.bold(slug)}: {first}"
    yield from others
    for each in tables(found) if found.searches else []:
        yield ""
        yield style.bold(each.caption)
        yield from _aligned(each, style) if each.rows else [f"  {each.empty}"]


def _aligned(each: Table, style: output.Style) -> Iterator[str]:
    rows = [tuple(_cut(output.line(text)) for text in row) for row in (each.heads, *each.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(each.heads))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        yield f"  {style.dim(text) if not number else text}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
