"""Reports of paragraphs and tables, as text or as one HTML page without external resources and scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from wikiholt.errors import StorageError
from wikiholt.interfaces.cli.output import TerminalStyle, format_columns, to_safe_line

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem } caption { text-align: left; font-weight: 600 }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8888; vertical-align: top }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere } .wide { overflow-x: auto }
"""
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MAX_COLUMN_CHARS = 60
"""Width of a column on the terminal."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of text. `empty` is shown instead if there are no rows."""

    caption: str
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    empty: str = "None."


@dataclass(frozen=True, slots=True)
class Report:
    """A report on one wiki. All text is plain."""

    title: str
    wiki: str
    paragraphs: Sequence[str]
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()


def write_report(report: Report, file: Path | None, style: TerminalStyle) -> list[str]:
    """The lines of the report. If a file is named, it gets the report as HTML. Raises StorageError."""
    lines = list(_format_report(report, style))
    if file is not None:
        try:
            file.write_text(render_report(report), encoding="utf-8")
        except OSError as error:
            hint = "name a file in an existing directory"
            raise StorageError(f"the report cannot be written ({error.strerror})", hint=hint) from None
        lines.append(f"Report: {to_safe_line(str(file))}")
    return lines


def _format_report(report: Report, style: TerminalStyle) -> Iterator[str]:
    first, *others = report.paragraphs
    yield f"{style.format_bold(report.wiki)}: {first}"
    yield from others
    for table in report.tables:
        yield from ("", style.format_bold(to_safe_line(table.caption)))
        yield from _format_table(table, style) if table.rows else [f"  {table.empty}"]
    yield from (style.format_warning(f"note: {to_safe_line(note)}") for note in report.notes)


def _format_table(table: ReportTable, style: TerminalStyle) -> Iterator[str]:
    head, *rows = format_columns([list(map(_truncate, row)) for row in (table.headers, *table.rows)])
    yield f"  {style.format_dim(head)}"
    yield from (f"  {row}" for row in rows)


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_COLUMN_CHARS else text[: _MAX_COLUMN_CHARS - 1] + "…"


def render_report(report: Report) -> str:
    """The report as a complete HTML page."""
    title = escape(f"{report.title} {report.wiki}")
    body = [f"<p>{escape(text)}</p>" for text in (*report.paragraphs, *report.notes)]
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">'
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_CSS}</style>\n<h1>{title}</h1>\n"
        + "\n".join([*body, *map(_render_table, report.tables)])
        + "\n</html>\n"
    )


def _render_table(table: ReportTable) -> str:
    if not table.rows:
        return f"<p><b>{escape(table.caption)}</b><br>{escape(table.empty)}</p>"
    head = "".join(f"<th scope='col'>{escape(header)}</th>" for header in table.headers)
    rows = "".join("".join(["<tr>", *(f"<td>{escape(cell)}</td>" for cell in row), "</tr>"]) for row in table.rows)
    return f"<div class='wide'><table><caption>{escape(table.caption)}</caption><tr>{head}</tr>{rows}</table></div>"
