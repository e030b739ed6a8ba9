"""A report of queries as sentences and tables, for terminal and HTML alike."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape

from wikiholt.errors import InvalidInput
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.html_report import render_html_page, render_html_table, write_html_file
from wikiholt.interfaces.cli.output import format_count
from wikiholt.interfaces.cli.wiki_commands import print_result
from wikiholt.interfaces.schemas.search_schemas import build_query_report_document
from wikiholt.wikis.query_report import PageReach, QueryReport, QueryStats, SlowQuery
from wikiholt.wikis.service import WikiService


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of texts; `empty` is said where there is none."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


def format_summary(report: QueryReport) -> list[str]:
    """What there is to say beside tables."""
    period = f"{_format_day(report.since)} to {_format_day(report.until)}"
    if not report.searches:
        return [f"No searches were written down from {period}.", *_format_notes(report)]
    typed = f" (and {format_count(report.beginnings, 'beginning')} while they were typed)" if report.beginnings else ""
    ways = ", ".join(f"{count} by {surface}" for surface, count in report.surfaces.items())
    searches = "1 search" if report.searches == 1 else f"{report.searches} searches"
    queries = "1 query" if report.queries == 1 else f"{report.queries} queries"
    return [
        f"{period}: {searches}{typed} for {queries}; {ways}.",
        f"Without a result: {report.without_result}. Answered while something was missing (degraded): "
        f"{report.degraded}. Milliseconds: {report.p50_ms:.1f} at the median, {report.p95_ms:.1f} at p95.",
        *_format_notes(report),
    ]


def _format_notes(report: QueryReport) -> Iterator[str]:
    if not report.logging:
        yield "Searches are not written down any more: what is here is from before."
    if report.lost:
        yield f"{report.lost} more could not be written down: they came faster than the log could be written."
    if report.damaged_at:
        yield f"The log was found damaged on {_format_day(report.damaged_at)} and begun anew; what it held before is lost."
    if report.pages is None:
        yield "There is no index that could be asked for its pages."


def build_tables(report: QueryReport) -> list[ReportTable]:
    """The tables of a report with searches."""
    found = [
        ReportTable(
            "Asked most often",
            ("query", "times", "hits", "best score"),
            tuple(
                (each.query, str(each.count), f"{each.mean_hits:.1f}", _format_score(each)) for each in report.frequent
            ),
            "None.",
        ),
        ReportTable(
            "Asked without a result",
            ("query", "times", "best score", "with a filter", "did you mean"),
            tuple(_format_unanswered(each) for each in report.unanswered),
            "None: every query had a relevant hit.",
        ),
        ReportTable(
            "Slowest", ("query", "ms", "when", "mode"), tuple(_format_slow(each) for each in report.slow), "None."
        ),
    ]
    return found + (_build_page_tables(report.pages) if report.pages else [])


def _build_page_tables(pages: PageReach) -> list[ReportTable]:
    shown = f", the first {len(pages.never)} by path" if pages.never_found > len(pages.never) else ""
    caption = f"Pages never found: {pages.never_found} of {pages.indexed}{shown}"
    often = tuple((path, str(count)) for path, count in pages.often)
    return [
        ReportTable(
            caption, ("page",), tuple((path,) for path in pages.never), "None: every page was found by some search."
        ),
        ReportTable("Pages found most often", ("page", "times"), often, "None."),
    ]


def _format_unanswered(stats: QueryStats) -> tuple[str, ...]:
    times = str(stats.without_result) + (f" of {stats.count}" if stats.count > stats.without_result else "")
    return stats.query, times, _format_score(stats), str(stats.filtered or "–"), stats.did_you_mean or "–"


def _format_slow(slow: SlowQuery) -> tuple[str, ...]:
    when = datetime.fromtimestamp(slow.at).astimezone()
    return slow.query, f"{slow.ms:.1f}", f"{when:%Y-%m-%d %H:%M}", slow.mode + (", degraded" if slow.degraded else "")


def _format_score(stats: QueryStats) -> str:
    return f"{stats.best_score:.2f}"


def _format_day(date: datetime) -> str:
    return f"{date.astimezone():%Y-%m-%d %H:%M}"


# `wikiholt report`: what was searched for in a wiki.


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
