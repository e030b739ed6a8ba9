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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import NoReturn, TextIO

from tqdm import tqdm

from wikiholt.domain.index import ReindexEstimate, SyncReport
from wikiholt.domain.search import Hit, SearchResult, Snippet
from wikiholt.git.remote_url import redact_url
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.interfaces.schemas.search_schemas import format_did_you_mean
from wikiholt.wikis.status import WikiStatus

_BOLD, _DIM, _GREEN, _YELLOW, _RED, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"

_ALLOWED_CHARACTERS = frozenset("\n\t\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u2060")
"""Not printable by Unicode's book, yet part of honest text: joiners, break hints, marks of direction."""

# Stand-ins for colours while lines are wrapped; no text holds them once it is safe.
_ON_MARK, _OFF_MARK, _ON_DIM, _OFF_DIM = _PLACEHOLDERS = ("\x01", "\x02", "\x03", "\x04")
_PLACEHOLDER_PATTERN = re.compile("([\x01-\x04])")
_ESCAPE_ERROR_HANDLER = "wikiholt.escapes"
_UNSAFE_JSON_PATTERN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class TerminalStyle:
    """Colours, or none where the output is no terminal or NO_COLOR is set."""

    use_color: bool

    @classmethod
    def from_stream(cls, stream: TextIO) -> "TerminalStyle":
        return cls(stream.isatty() and not os.environ.get("NO_COLOR"))

    def format_bold(self, text: str) -> str:
        return self._format_in(_BOLD, text)

    def format_dim(self, text: str) -> str:
        return self._format_in(_DIM, text)

    def format_success(self, text: str) -> str:
        return self._format_in(_GREEN, text)

    def format_warning(self, text: str) -> str:
        return self._format_in(_YELLOW, text)

    def format_error(self, text: str) -> str:
        return self._format_in(_RED, text)

    def _format_in(self, color: str, text: str) -> str:
        return f"{color}{text}{_OFF}" if self.use_color else text


def to_safe_text(text: str) -> str:
    """Foreign text as a terminal may show it, character for character.

    Control characters could move the cursor or change the title, and overrides of direction make text look like other
    text; joiners, spaces of any width and direction marks are kept, for scripts and emoji need them.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or _is_allowed(char) else "\N{REPLACEMENT CHARACTER}" for char in text)


def _is_allowed(char: str) -> bool:
    return char in _ALLOWED_CHARACTERS or unicodedata.category(char) == "Zs"


def format_json(document: object) -> str:
    """A document as JSON for a terminal: what it could obey or be fooled by is escaped, and means the same."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return _UNSAFE_JSON_PATTERN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def to_safe_line(text: str) -> str:
    """Foreign text as it may stand in one line: safe, its line breaks and tabs as spaces."""
    return to_safe_text(" ".join(text.splitlines()).replace("\t", " "))


def configure_streams(*streams: TextIO) -> None:
    """Let these streams write characters their encoding lacks, as escapes that JSON also understands."""
    codecs.register_error(_ESCAPE_ERROR_HANDLER, _escape_unencodable)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE_ERROR_HANDLER)


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


def format_result(result: SearchResult, style: TerminalStyle) -> list[str]:
    lines: list[str] = []
    if result.did_you_mean:
        lines.append(style.format_warning(to_safe_line(format_did_you_mean(result))))
    if not result.total:
        lines.append("Nothing found: no page passes the filters, phrases and exclusions.")
    elif not result.hits:
        lines.append("Nothing found.")
    elif result.nothing_relevant:
        lines.append(style.format_warning("Nothing here is clearly relevant; the nearest pages are:"))
    for number, hit in enumerate(result.hits, 1):
        lines += _format_hit(number, hit, style)
    lines.append(style.format_dim(_format_footer(result)))
    lines += [style.format_warning(f"note: {to_safe_line(note)}") for note in result.notes]
    return lines


def _format_hit(number: int, hit: Hit, style: TerminalStyle) -> list[str]:
    headings = [heading for heading in hit.heading_path[-2:] if heading != hit.name]
    where = " › ".join((hit.path, *headings))
    evidence = style.format_dim(f"{hit.score:.2f} {hit.confidence} · {' + '.join(hit.channels)}")
    head = f"{number}. {style.format_bold(to_safe_line(hit.name))}  {evidence}"
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 110)) - 3
    snippet = textwrap.wrap(_mark_snippet(hit.snippet, style), width) if hit.snippet.text else []
    place = f"{to_safe_line(where)}  lines {hit.first_line}–{hit.last_line}"
    return [head, f"   {style.format_dim(place)}", *(f"   {row}" for row in _apply_colors(snippet, style)), ""]


def _mark_snippet(snippet: Snippet, style: TerminalStyle) -> str:
    """A snippet, safe to show, with marks around its matches and around what is not the closest sentence.

    The marks come last, so that no text can bring its own.
    """
    shown = to_safe_text(snippet.text)
    if not style.use_color:
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


def _apply_colors(rows: Iterable[str], style: TerminalStyle) -> Iterator[str]:
    """Rows with colours for marks; what a row leaves dim, the next begins with."""
    dim = marked = False
    for row in rows:
        if not style.use_color:
            yield row
            continue
        worn = _DIM if dim else ""
        text = worn
        for part in _PLACEHOLDER_PATTERN.split(row):
            if part not in _PLACEHOLDERS:
                text += part
                continue
            dim = part == _ON_DIM if part in (_ON_DIM, _OFF_DIM) else dim
            marked = part == _ON_MARK if part in (_ON_MARK, _OFF_MARK) else marked
            wanted = _BOLD + _GREEN if marked else _DIM if dim else ""
            if wanted != worn:
                text += (_OFF if worn else "") + wanted
                worn = wanted
        yield text + _OFF


def _format_footer(result: SearchResult) -> str:
    fresh = "not synced to the end yet" if result.indexed_revision is None else f"at {result.indexed_revision[:10]}"
    if result.indexed_revision and result.head_revision is None:
        fresh += ", HEAD unknown"
    elif result.indexed_revision and result.head_revision:
        fresh += f", HEAD is {result.head_revision[:10]}" if result.stale else " = HEAD"
    how = " · reranked" if result.reranked else ""
    degraded = " · degraded" if result.degraded else ""
    pages = f"{len(result.hits)} of {format_count(result.total, 'page')}"
    return f"{pages} · {result.mode}{how} · {result.took_ms:.0f} ms · {fresh}{degraded}"


def format_sync(slug: str, report: SyncReport, style: TerminalStyle) -> list[str]:
    names = ("added", "changed", "moved", "deleted", "unchanged")
    pages = ", ".join(f"{getattr(report, name)} {name}" for name in names if getattr(report, name)) or "no pages"
    chunks = f"{format_count(report.chunks_embedded, 'chunk')} embedded, {report.chunks_reused} reused"
    rebuilt = " (built anew)" if report.rebuilt else ""
    lines = [
        f"{style.format_success('✓')} {slug}: {pages}; {chunks}; {report.seconds:.1f} s, at {report.revision[:10]}{rebuilt}"
    ]
    lines += [
        style.format_warning(f"  problem: {to_safe_line(p.file)}: {p.reason}: {to_safe_line(p.detail)}")
        for p in report.problems[:20]
    ]
    if len(report.problems) > 20:
        lines.append(
            style.format_warning(f"  … and {len(report.problems) - 20} more; see `wikiholt status {slug} --json`")
        )
    return lines


def format_status(status: WikiStatus, style: TerminalStyle) -> list[str]:
    state = status.state
    lines = [
        style.format_bold(status.wiki.slug) + style.format_dim(f"  {to_safe_line(redact_url(status.wiki.source))}")
    ]
    if state is None:
        lines.append(f"  {style.format_warning('not indexed')}")
    else:
        standing = style.format_warning("behind HEAD") if status.stale else style.format_success("at HEAD")
        revision = state.revision[:10] if state.revision else "no revision yet"
        lines.append(
            f"  {format_count(state.pages, 'page')}, {format_count(state.chunks, 'chunk')}, "
            f"{format_count(state.problems, 'problem')} · {revision}, {standing}"
        )
        when = f"{state.synced_at:%Y-%m-%d %H:%M} UTC" if state.synced_at else "never"
        lines.append(
            style.format_dim(f"  synced {when} · {state.recipe.fingerprint} · {format_size(status.disk_bytes)}")
        )
    lines += [
        style.format_warning(f"  problem: {to_safe_line(p.file)}: {p.reason}: {to_safe_line(p.detail)}")
        for p in status.problems[:20]
    ]
    lines += _format_health(status, style)
    if status.error:
        lines.append(style.format_error(f"  {to_safe_line(status.error.message)}"))
        lines.append(f"  hint: {to_safe_line(status.error.hint)}")
    return lines


def _format_health(status: WikiStatus, style: TerminalStyle) -> list[str]:
    health, lines = status.health, []
    if not health.is_ok:
        since = f" since {health.since:%Y-%m-%d %H:%M} UTC" if health.since else ""
        lines.append(style.format_error(f"  {health.condition}{since}: {to_safe_line(health.reason)}"))
        lines.append(f"  hint: the service mends it by itself; without one run `wikiholt sync {status.wiki.slug}`")
    elif health.checked_at:
        lines.append(style.format_dim(f"  whole when checked {health.checked_at:%Y-%m-%d %H:%M} UTC"))
    if status.quarantined:
        kept = (
            format_count(len(status.quarantined), "broken index")
            if len(status.quarantined) == 1
            else f"{len(status.quarantined)} broken indexes"
        )
        lines.append(style.format_dim(f"  {kept} set aside: {', '.join(status.quarantined[-3:])}"))
    return lines


def format_estimate(slug: str, estimate: ReindexEstimate, style: TerminalStyle) -> list[str]:
    about = "" if estimate.exact else " (estimated from some of the pages)"
    room = "" if estimate.disk_free > 2 * estimate.disk_bytes else style.format_warning("  there is hardly room for it")
    return [
        f"{style.format_bold(slug)}: {format_count(estimate.pages, 'page')}, {format_count(estimate.chunks, 'chunk')}{about}",
        f"  reindex: {estimate.chunks_to_embed} to embed, about {format_duration(estimate.seconds)}",
        f"  sync after a change of settings: {estimate.reusable_vectors} vectors taken over,"
        f" {estimate.chunks_to_embed - estimate.reusable_vectors} to embed, about {format_duration(estimate.seconds_reusing)}",
        f"  disk: about {format_size(estimate.disk_bytes)} beside the present index, {format_size(estimate.disk_free)} free{room}",
        style.format_dim("  nothing was changed"),
    ]


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def print_lines(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


# A progress bar on stderr.


@contextmanager
def show_sync_progress(name: str, *, visible: bool) -> Iterator[Callable[[SyncProgress], None]]:
    """A function that a sync tells how far it is; it draws a bar where one is shown and there is work to do."""
    bar: tqdm[NoReturn] | None = None

    def update_bar(progress: SyncProgress) -> None:
        nonlocal bar
        if not visible or not progress.pages_total:
            return
        if bar is None:
            bar = tqdm(total=progress.pages_total, desc=name, unit="page", ascii=" ▏▎▍▌▋▊▉█", leave=True)
        bar.set_postfix_str(f"{progress.chunks_embedded} chunks", refresh=False)
        bar.update(progress.pages_done - bar.n)

    try:
        yield update_bar
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def show_count_progress(name: str, unit: str, *, visible: bool) -> Iterator[Callable[[int, int], None]]:
    """A function that is told how many of how many are done; it draws a bar where one is shown."""
    bar: tqdm[NoReturn] | None = None

    def update_bar(done: int, total: int) -> None:
        nonlocal bar
        if not visible or not total:
            return
        if bar is None:
            bar = tqdm(total=total, desc=name, unit=unit, ascii=" ▏▎▍▌▋▊▉█", leave=True)
        bar.update(done - bar.n)

    try:
        yield update_bar
    finally:
        if bar is not None:
            bar.close()
