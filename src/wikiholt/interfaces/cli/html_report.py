"""Self-contained HTML reports: no external resources and no scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from wikiholt.errors import StorageError

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
