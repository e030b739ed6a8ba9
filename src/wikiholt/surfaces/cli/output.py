"""What a person reads on the terminal. Data goes to stdout, everything else to stderr."""

import codecs
import io
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TextIO

from wikiholt.handle import Status
from wikiholt.model import Answer, Forecast, Hit, Snippet, SyncReport
from wikiholt.sources.address import shown
from wikiholt.surfaces.documents.meant import showing

_BOLD, _DIM, _GREEN, _YELLOW, _RED, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"

_HARMLESS = frozenset("\n\t\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u2060")
"""Not printable by Unicode's book, yet part of honest text: joiners, break hints, marks of direction."""

# Stand-ins for colours while lines are wrapped; no text holds them once it is safe.
_ON_MARK, _OFF_MARK, _ON_DIM, _OFF_DIM = _SIGN = ("\x01", "\x02", "\x03", "\x04")
_SIGNS = re.compile("([\x01-\x04])")
_ESCAPES = "wikiholt.escapes"
_OBEYED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none where the output is no terminal or NO_COLOR is set."""

    coloured: bool

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        return cls(stream.isatty() and not os.environ.get("NO_COLOR"))

    def bold(self, text: str) -> str:
        return self._in(_BOLD, text)

    def dim(self, text: str) -> str:
        return self._in(_DIM, text)

    def good(self, text: str) -> str:
        return self._in(_GREEN, text)

    def warn(self, text: str) -> str:
        return self._in(_YELLOW, text)

    def bad(self, text: str) -> str:
        return self._in(_RED, text)

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_OFF}" if self.coloured else text


def safe(text: str) -> str:
    """Foreign text as a terminal may show it, character for character.

    Control characters could move the cursor or change the title, and overrides of direction make text look like other
    text; joiners, spaces of any width and direction marks are kept, for scripts and emoji need them.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or _harmless(char) else "\N{REPLACEMENT CHARACTER}" for char in text)


def _harmless(char: str) -> bool:
    return char in _HARMLESS or unicodedata.category(char) == "Zs"


def json_text(document: object) -> str:
    """A document as JSON for a terminal: what it could obey or be fooled by is escaped, and means the same."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def line(text: str) -> str:
    """Foreign text as it may stand in one line: safe, its line breaks and tabs as spaces."""
    return safe(" ".join(text.splitlines()).replace("\t", " "))


def bear_any_text(*streams: TextIO) -> None:
    """Let these streams write characters their encoding lacks, as escapes that JSON also understands."""
    codecs.register_error(_ESCAPES, _escaped)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


def answer_lines(answer: Answer, style: Style) -> list[str]:
    lines: list[str] = []
    if answer.did_you_mean:
        lines.append(style.warn(line(showing(answer))))
    if not answer.total:
        lines.append("Nothing found: no page passes the filters, phrases and exclusions.")
    elif not answer.hits:
        lines.append("Nothing found.")
    elif answer.nothing_relevant:
        lines.append(style.warn("Nothing here is clearly relevant; the nearest pages are:"))
    for number, hit in enumerate(answer.hits, 1):
        lines += _hit_lines(number, hit, style)
    lines.append(style.dim(_closing(answer)))
    lines += [style.warn(f"note: {line(note)}") for note in answer.notes]
    return lines


def _hit_lines(number: int, hit: Hit, style: Style) -> list[str]:
    headings = [heading for heading in hit.heading_path[-2:] if heading != hit.name]
    where = " › ".join((hit.path, *headings))
    evidence = style.dim(f"{hit.score:.2f} {hit.confidence} · {' + '.join(hit.channels)}")
    head = f"{number}. {style.bold(line(hit.name))}  {evidence}"
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 110)) - 3
    snippet = textwrap.wrap(_marked(hit.snippet, style), width) if hit.snippet.text else []
    place = f"{line(where)}  lines {hit.first_line}–{hit.last_line}"
    return [head, f"   {style.dim(place)}", *(f"   {row}" for row in _restored(snippet, style)), ""]


def _marked(snippet: Snippet, style: Style) -> str:
    """A snippet, safe to show, with marks around its matches and around what is not the closest sentence.

    The marks come last, so that no text can bring its own.
    """
    shown = safe(snippet.text)
    if not style.coloured:
        return shown
    signs = [(at, sign) for span in snippet.matches for at, sign in ((span.start, _ON_MARK), (span.end, _OFF_MARK))]
    if snippet.sentence is not None:
        around = ((0, _ON_DIM), (snippet.sentence.start, _OFF_DIM), (snippet.sentence.end, _ON_DIM))
        signs = sorted([*signs, *around], key=itemgetter(0))
    text, at = "", 0
    for place, sign in signs:
        text += shown[at:place] + sign
        at = place
    return text + shown[at:]


def _restored(rows: Iterable[str], style: Style) -> Iterator[str]:
    """Rows with colours for marks; what a row leaves dim, the next begins with."""
    dim = marked = False
    for row in rows:
        if not style.coloured:
            yield row
            continue
        worn = _DIM if dim else ""
        text = worn
        for part in _SIGNS.split(row):
            if part not in _SIGN:
                text += part
                continue
            dim = part == _ON_DIM if part in (_ON_DIM, _OFF_DIM) else dim
            marked = part == _ON_MARK if part in (_ON_MARK, _OFF_MARK) else marked
            wanted = _BOLD + _GREEN if marked else _DIM if dim else ""
            if wanted != worn:
                text += (_OFF if worn else "") + wanted
                worn = wanted
        yield text + _OFF


def _closing(answer: Answer) -> str:
    fresh = "not synced to the end yet" if answer.indexed_revision is None else f"at {answer.indexed_revision[:10]}"
    if answer.indexed_revision and answer.head_revision is None:
        fresh += ", HEAD unknown"
    elif answer.indexed_revision and answer.head_revision:
        fresh += f", HEAD is {answer.head_revision[:10]}" if answer.stale else " = HEAD"
    how = " · reranked" if answer.reranked else ""
    degraded = " · degraded" if answer.degraded else ""
    pages = f"{len(answer.hits)} of {counted(answer.total, 'page')}"
    return f"{pages} · {answer.mode}{how} · {answer.took_ms:.0f} ms · {fresh}{degraded}"


def sync_lines(slug: str, report: SyncReport, style: Style) -> list[str]:
    names = ("added", "changed", "moved", "deleted", "unchanged")
    pages = ", ".join(f"{getattr(report, name)} {name}" for name in names if getattr(report, name)) or "no pages"
    chunks = f"{counted(report.chunks_embedded, 'chunk')} embedded, {report.chunks_reused} reused"
    rebuilt = " (built anew)" if report.rebuilt else ""
    lines = [f"{style.good('✓')} {slug}: {pages}; {chunks}; {report.seconds:.1f} s, at {report.revision[:10]}{rebuilt}"]
    lines += [style.warn(f"  problem: {line(p.file)}: {p.reason}: {line(p.detail)}") for p in report.problems[:20]]
    if len(report.problems) > 20:
        lines.append(style.warn(f"  … and {len(report.problems) - 20} more; see `wikiholt status {slug} --json`"))
    return lines


def status_lines(status: Status, style: Style) -> list[str]:
    state = status.state
    lines = [style.bold(status.wiki.slug) + style.dim(f"  {line(shown(status.wiki.source))}")]
    if state is None:
        lines.append(f"  {style.warn('not indexed')}")
    else:
        standing = style.warn("behind HEAD") if status.stale else style.good("at HEAD")
        revision = state.revision[:10] if state.revision else "no revision yet"
        lines.append(
            f"  {counted(state.pages, 'page')}, {counted(state.chunks, 'chunk')}, "
            f"{counted(state.problems, 'problem')} · {revision}, {standing}"
        )
        when = f"{state.synced_at:%Y-%m-%d %H:%M} UTC" if state.synced_at else "never"
        lines.append(style.dim(f"  synced {when} · {state.recipe.fingerprint} · {size(status.disk_bytes)}"))
    lines += [style.warn(f"  problem: {line(p.file)}: {p.reason}: {line(p.detail)}") for p in status.problems[:20]]
    lines += _health_lines(status, style)
    if status.error:
        lines.append(style.bad(f"  {line(status.error.message)}"))
        lines.append(f"  hint: {line(status.error.hint)}")
    return lines


def _health_lines(status: Status, style: Style) -> list[str]:
    health, lines = status.health, []
    if not health.well:
        since = f" since {health.since:%Y-%m-%d %H:%M} UTC" if health.since else ""
        lines.append(style.bad(f"  {health.condition}{since}: {line(health.reason)}"))
        lines.append(f"  hint: the service mends it by itself; without one run `wikiholt sync {status.wiki.slug}`")
    elif health.checked_at:
        lines.append(style.dim(f"  whole when checked {health.checked_at:%Y-%m-%d %H:%M} UTC"))
    if status.aside:
        kept = (
            counted(len(status.aside), "broken index")
            if len(status.aside) == 1
            else f"{len(status.aside)} broken indexes"
        )
        lines.append(style.dim(f"  {kept} set aside: {', '.join(status.aside[-3:])}"))
    return lines


def forecast_lines(slug: str, found: Forecast, style: Style) -> list[str]:
    about = "" if found.exact else " (estimated from some of the pages)"
    room = "" if found.disk_free > 2 * found.disk_bytes else style.warn("  there is hardly room for it")
    return [
        f"{style.bold(slug)}: {counted(found.pages, 'page')}, {counted(found.chunks, 'chunk')}{about}",
        f"  reindex: {found.chunks_to_embed} to embed, about {duration(found.seconds)}",
        f"  sync after a change of settings: {found.reusable_vectors} vectors taken over,"
        f" {found.chunks_to_embed - found.reusable_vectors} to embed, about {duration(found.seconds_reusing)}",
        f"  disk: about {size(found.disk_bytes)} beside the present index, {size(found.disk_free)} free{room}",
        style.dim("  nothing was changed"),
    ]


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def say(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
