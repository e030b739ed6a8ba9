"""`wikiholt report`: what was searched for in a wiki."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from html import escape

from wikiholt.asked import QueryReport
from wikiholt.errors import InvalidInput
from wikiholt.service import WikiService
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import print_result
from wikiholt.surfaces.cli.report_tables import ReportTable, format_summary, build_tables
from wikiholt.surfaces.cli.sheet import render_html_page, render_html_table, write_html_file
from wikiholt.surfaces.documents.queries import build_query_report_document

_MAX_COLUMN_CHARS = 60
"""Characters of a query on a line of the terminal."""


def run_report(service: WikiService, arguments: Namespace) -> int:
    """Say what was asked of a wiki, or forget it."""
    slug, queries = arguments.slug, service.get_handle(arguments.slug).query_log
    if arguments.clear:
        count = queries.clear()
        said = "There was nothing to forget." if not count else f"Forgot {count} searches of {slug}."
        return print_result(arguments, {"wiki": slug, "cleared": count}, [said])
    for name, most in (("days", 3660), ("limit", 1000)):
        given = getattr(arguments, name)
        if given is not None and not 1 <= given <= most:
            raise InvalidInput(f"--{name} is {given}", hint=f"use 1 to {most}")
    found = queries.build_report(arguments.days, arguments.limit)
    lines = list(_format_report(slug, found, output.TerminalStyle.from_stream(sys.stdout)))
    if arguments.html:
        write_html_file(arguments.html, render_report(slug, found))
        lines.append(f"Report: {output.to_safe_line(str(arguments.html))}")
    return print_result(arguments, build_query_report_document(slug, found), lines)


def render_report(slug: str, report: QueryReport) -> str:
    """The report as one HTML file; whatever somebody typed is shown as text."""
    said = [f"<p>{escape(each)}</p>" for each in format_summary(report)]
    shown = [_render_report_table(each) for each in build_tables(report)] if report.searches else []
    return render_html_page(f"What was searched for in {slug}", [*said, *shown])


def _render_report_table(table: ReportTable) -> str:
    if table.rows:
        return render_html_table(table.caption, table.headers, table.rows)
    return f"<p><b>{escape(table.caption)}</b><br>{escape(table.empty)}</p>"


def _format_report(slug: str, report: QueryReport, style: output.TerminalStyle) -> Iterator[str]:
    first, *others = format_summary(report)
    yield f"{style.format_bold(slug)}, {first}" if report.searches else f"{style.format_bold(slug)}: {first}"
    yield from others
    for each in build_tables(report) if report.searches else []:
        yield ""
        yield style.format_bold(each.caption)
        yield from _format_table(each, style) if each.rows else [f"  {each.empty}"]


def _format_table(table: ReportTable, style: output.TerminalStyle) -> Iterator[str]:
    rows = [tuple(_truncate(output.to_safe_line(text)) for text in row) for row in (table.headers, *table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        yield f"  {style.format_dim(text) if not number else text}"


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_COLUMN_CHARS else text[: _MAX_COLUMN_CHARS - 1] + "…"
