"""`wikiholt report`: what was searched for in a wiki, as text or HTML.

HTML reports are self-contained: no external resources and no scripts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from wikiholt.api.documents.search_documents import build_query_report_document
from wikiholt.errors import InvalidInput, QueryLogNotFound, StorageError
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_slug
from wikiholt.interfaces.cli.output import TerminalStyle, format_count, to_safe_line
from wikiholt.wikis.query_report import PageReach, QueryReport, QueryStats, SlowQuery

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem } caption { text-align: left; font-weight: 600 }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde3ea; vertical-align: top }
td.figure { font-variant-numeric: tabular-nums; white-space: nowrap } small, .quiet { color: #5b6b7c }
svg { display: block } .bar { fill: #9db8d6 } .bounds { stroke: #1d2733; stroke-width: 1.5 }
.good { color: #17663a } .bad { color: #a11d2b } li { margin: .3rem 0 } .text, code { overflow-wrap: anywhere }
.wide { overflow-x: auto } mark { background: #fff1b8; color: inherit }
@media (prefers-color-scheme: dark) {
  mark { background: #57470f }
  body { background: #12181f; color: #dfe6ee } th, td { border-color: #2b3642 } small, .quiet { color: #93a3b5 }
  .bar { fill: #3d5f86 } .bounds { stroke: #dfe6ee } .good { color: #6fd09a } .bad { color: #ff8b96 }
}
"""
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_html_page(title: str, body: Iterable[str]) -> str:
    """A complete HTML page. `title` is plain text; `body` is HTML that the caller has escaped."""
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">'
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_CSS}</style>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</html>\n"
    )


def render_html_table(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text, which is escaped here. The first column is text, the others are figures."""
    head = "".join(f"<th scope='col'>{escape(header)}</th>" for header in headers)
    table_rows = (
        f"<tr><td class=text>{escape(first)}</td>"
        + "".join(f"<td class=figure>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    content = f"<caption>{escape(caption)}</caption><tr>{head}</tr>{''.join(table_rows)}"
    return f"<div class='wide'><table>{content}</table></div>"


def write_html_file(file: Path, html: str) -> None:
    """Write the file. Raises StorageError."""
    try:
        file.write_text(html, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"the report cannot be written ({error.strerror})", hint="name a file in an existing directory"
        ) from None


# The report of a wiki's query log


_MAX_COLUMN_CHARS = 60
"""Width of a column on the terminal."""


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "report", run_report)
    add_slug(parser)
    parser.add_argument("--days", type=int, metavar="N", help="the last N days (default: all logged searches)")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="rows of each table (default: 10)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as HTML")
    parser.add_argument("--clear", action="store_true", help="delete all logged searches")


def run_report(context: CommandContext) -> int:
    """Show the report of a wiki's query log, or clear the log."""
    try:
        return _show_or_clear(context)
    except QueryLogNotFound as error:
        command = f"wikiholt set {context.arguments.slug} log_queries=true"
        hint = f"Enable it: `{command}`, or queries.log = true in the settings for all."
        raise QueryLogNotFound(error.message, hint=hint) from error


def _show_or_clear(context: CommandContext) -> int:
    arguments, slug = context.arguments, context.arguments.slug
    query_log = context.service.get_handle(slug).query_log
    if arguments.clear:
        count = query_log.clear()
        text = f"Deleted {count} logged searches of {slug}." if count else "There was nothing to delete."
        return context.print_result({"wiki": slug, "cleared": count}, [text])
    for name, maximum in (("days", 3660), ("limit", 1000)):
        value = getattr(arguments, name)
        if value is not None and not 1 <= value <= maximum:
            raise InvalidInput(f"--{name} is {value}", hint=f"use 1 to {maximum}")
    report = query_log.build_report(arguments.days, arguments.limit)
    lines = list(_format_report(slug, report, context.style))
    if arguments.html:
        write_html_file(arguments.html, render_report(slug, report))
        lines.append(f"Report: {to_safe_line(str(arguments.html))}")
    return context.print_result(build_query_report_document(slug, report), lines)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of text. `empty` is shown instead if there are no rows."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


def format_summary(report: QueryReport) -> list[str]:
    """The sentences before the tables."""
    period = f"{_format_day(report.since)} to {_format_day(report.until)}"
    if not report.searches:
        return [f"No searches were logged from {period}.", *_format_notes(report)]
    typed = f" (and {format_count(report.unfinished, 'unfinished one')} while typing)" if report.unfinished else ""
    interfaces = ", ".join(f"{count} by {interface}" for interface, count in report.interfaces.items())
    searches = "1 search" if report.searches == 1 else f"{report.searches} searches"
    queries = "1 query" if report.queries == 1 else f"{report.queries} queries"
    return [
        f"{period}: {searches}{typed} for {queries}; {interfaces}.",
        f"Without a result: {report.without_result}. Degraded: "
        f"{report.degraded}. Latency: {report.p50_ms:.1f} ms median, {report.p95_ms:.1f} ms p95.",
        *_format_notes(report),
    ]


def _format_notes(report: QueryReport) -> Iterator[str]:
    if not report.logging:
        yield "Logging is off now; these searches were logged before."
    if report.lost:
        yield f"{report.lost} more were not logged, because the log could not keep up."
    if report.damaged_at:
        yield f"The log was damaged and restarted on {_format_day(report.damaged_at)}; earlier entries are lost."
    if report.pages is None:
        yield "There is no index to list the pages of."


def build_tables(report: QueryReport) -> list[ReportTable]:
    """The tables of a report that has searches."""
    tables = [
        ReportTable(
            "Most frequent",
            ("query", "times", "hits", "best score"),
            tuple(
                (stats.query, str(stats.count), f"{stats.mean_hits:.1f}", f"{stats.best_score:.2f}")
                for stats in report.frequent
            ),
            "None.",
        ),
        ReportTable(
            "Without a result",
            ("query", "times", "best score", "with a filter", "did you mean"),
            tuple(map(_format_unanswered, report.unanswered)),
            "None: every query had a relevant hit.",
        ),
        ReportTable("Slowest", ("query", "ms", "when", "mode"), tuple(map(_format_slow, report.slow)), "None."),
    ]
    return tables + (_build_page_tables(report.pages) if report.pages else [])


def _build_page_tables(pages: PageReach) -> list[ReportTable]:
    shown = f", the first {len(pages.never)} by path" if pages.never_found > len(pages.never) else ""
    caption = f"Pages never found: {pages.never_found} of {pages.indexed}{shown}"
    often = tuple((path, str(count)) for path, count in pages.often)
    return [
        ReportTable(
            caption, ("page",), tuple((path,) for path in pages.never), "None: every page was found by a search."
        ),
        ReportTable("Pages found most often", ("page", "times"), often, "None."),
    ]


def _format_unanswered(stats: QueryStats) -> tuple[str, ...]:
    times = str(stats.without_result) + (f" of {stats.count}" if stats.count > stats.without_result else "")
    return stats.query, times, f"{stats.best_score:.2f}", str(stats.filtered or "–"), stats.did_you_mean or "–"


def _format_slow(slow: SlowQuery) -> tuple[str, ...]:
    return slow.query, f"{slow.ms:.1f}", _format_day(slow.at), slow.mode + (", degraded" if slow.degraded else "")


def _format_day(date: datetime) -> str:
    return f"{date.astimezone():%Y-%m-%d %H:%M}"


def render_report(slug: str, report: QueryReport) -> str:
    """The report as a self-contained HTML page. All queries are escaped."""
    summary = [f"<p>{escape(sentence)}</p>" for sentence in format_summary(report)]
    tables = [
        render_html_table(table.caption, table.headers, table.rows)
        if table.rows
        else f"<p><b>{escape(table.caption)}</b><br>{escape(table.empty)}</p>"
        for table in (build_tables(report) if report.searches else [])
    ]
    return render_html_page(f"Searches in {slug}", [*summary, *tables])


def _format_report(slug: str, report: QueryReport, style: TerminalStyle) -> Iterator[str]:
    first, *others = format_summary(report)
    yield f"{style.format_bold(slug)}, {first}" if report.searches else f"{style.format_bold(slug)}: {first}"
    yield from others
    for table in build_tables(report) if report.searches else []:
        yield ""
        yield style.format_bold(table.caption)
        yield from _format_table(table, style) if table.rows else [f"  {table.empty}"]


def _format_table(table: ReportTable, style: TerminalStyle) -> Iterator[str]:
    rows = [tuple(_truncate(to_safe_line(text)) for text in row) for row in (table.headers, *table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        yield f"  {style.format_dim(text) if not number else text}"


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_COLUMN_CHARS else text[: _MAX_COLUMN_CHARS - 1] + "…"
