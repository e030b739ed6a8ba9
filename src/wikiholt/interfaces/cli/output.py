"""Terminal output: text that is safe to print, colors, the state of wikis, progress bars on stderr."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:  # every command imports this module, also those that need nothing of the core
    from tqdm import tqdm

    from wikiholt.domain.index import ReindexEstimate, SyncReport
    from wikiholt.index.reconciler import ProgressCallback, SyncProgress
    from wikiholt.wikis.status import WikiStatus

_STRUCK = "\x1b[9m"
_BOLD, _DIM, _GREEN, _YELLOW, _RED, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"

_ALLOWED_CHARACTERS = frozenset("\n\t\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u2060")
"""Not printable by the Unicode category, but needed in text: joiners, break hints, direction marks."""

_MAX_PROBLEMS = 20
_UNSAFE_JSON_PATTERN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class TerminalStyle:
    """Colors and links, unless the output is not a terminal, NO_COLOR is set, or the terminal has no colors."""

    use_color: bool

    @classmethod
    def from_stream(cls, stream: TextIO) -> TerminalStyle:
        return cls(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def format_link(self, text: str, address: str) -> str:
        """The text as a link that terminals open (OSC 8). The address must be percent-encoded."""
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\" if self.use_color and address else text

    def format_in(self, color: str, text: str) -> str:
        return f"{color}{text}{_OFF}" if self.use_color and color and text else text

    format_bold = partialmethod(format_in, _BOLD)
    format_match = partialmethod(format_in, _BOLD + _GREEN)
    format_dim = partialmethod(format_in, _DIM)
    format_struck = partialmethod(format_in, _STRUCK)
    format_success = partialmethod(format_in, _GREEN)
    format_warning = partialmethod(format_in, _YELLOW)
    format_error = partialmethod(format_in, _RED)


def to_safe_text(text: str) -> str:
    """Replace characters that a terminal must not receive, one for one.

    Control characters can move the cursor or change the title, and direction overrides can make text look like other
    text. Joiners, spaces of any width and direction marks are kept, because scripts and emoji need them.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in _ALLOWED_CHARACTERS or unicodedata.category(char) == "Zs"
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def format_json(document: object, indent: int | None = 2) -> str:
    """Format a document as JSON for standard output, safe on a terminal: control and direction characters are escaped,
    and all that its encoding may lack."""
    text = json.dumps(document, ensure_ascii=sys.stdout.encoding.lower() != "utf-8", indent=indent)
    return _UNSAFE_JSON_PATTERN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def to_safe_line(text: str) -> str:
    """Safe text in one line, with line breaks and tabs as spaces."""
    return to_safe_text(" ".join(text.splitlines()).replace("\t", " "))


def configure_streams(*streams: TextIO) -> None:
    """Write characters that the encoding of a stream lacks as escapes."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def get_text_width() -> int:
    """The width of running text: that of the terminal, within limits for easy reading."""
    import shutil

    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 110))


def format_sync(slug: str, report: SyncReport, skipped: Mapping[str, int], style: TerminalStyle) -> list[str]:
    names = ("added", "changed", "moved", "deleted", "unchanged")
    pages = ", ".join(f"{getattr(report, name)} {name}" for name in names if getattr(report, name)) or "no pages"
    chunks = f"{format_count(report.chunks_embedded, 'chunk')} embedded, {report.chunks_reused} reused"
    rebuilt = " (rebuilt)" if report.rebuilt else ""
    mark, at = style.format_success("✓"), report.revision[:10]
    return [
        f"{mark} {slug}: {pages}; {chunks}; {report.seconds:.1f} s, at {at}{rebuilt}",
        *_format_problems(slug, report, style),
        *_format_skipped(skipped, style),
    ]


def _format_skipped(skipped: Mapping[str, int], style: TerminalStyle) -> list[str]:
    from wikiholt.text.page_names import describe_skipped_files

    text = describe_skipped_files(skipped)
    return [style.format_dim(f"  {to_safe_line(text)}")] if text else []


def _format_problems(slug: str, result: SyncReport | WikiStatus, style: TerminalStyle) -> list[str]:
    """The first problems, the first pages with warnings, and what is wrong with the history."""
    problems, warned = result.problems[:_MAX_PROBLEMS], result.warnings[:_MAX_PROBLEMS]
    lines = [f"  problem: {p.file}: {p.reason}: {p.detail}" for p in problems]
    if more := len(result.problems) - len(problems):
        lines.append(f"  … and {more} more; see `wikiholt status {slug} --json`")
    lines += [f"  warning: {page.file}: {'; '.join(page.warnings)}" for page in warned]
    if more := result.pages_with_warnings - len(warned):
        more_pages = format_count(more, "more page")
        lines.append(f"  … and {more_pages} with warnings; see `wikiholt status {slug} --json`")
    if result.history_warning:
        lines.append(f"  warning: dates and former names of pages are incomplete: {result.history_warning}")
    return [style.format_warning(to_safe_line(line)) for line in lines]


def format_status(status: WikiStatus, style: TerminalStyle) -> list[str]:
    from wikiholt.errors import NoPagesYet
    from wikiholt.git.remote_url import redact_url

    state = status.state
    lines = [
        style.format_bold(status.wiki.slug) + style.format_dim(f"  {to_safe_line(redact_url(status.wiki.source))}")
    ]
    if isinstance(status.error, NoPagesYet):
        return [*lines, "  no pages yet", f"  hint: {to_safe_line(status.error.hint)}"]
    if state is None:
        lines.append(f"  {style.format_warning('not indexed')}")
    else:
        behind, at = ("out of date", "up to date") if status.wiki.is_directory else ("behind HEAD", "at HEAD")
        if status.head is None and status.error is not None:
            behind = "its source cannot be read"
        freshness = style.format_warning(behind) if status.stale else style.format_success(at)
        revision = state.revision[:10] if state.revision else "no revision yet"
        lines.append(
            f"  {format_count(state.pages, 'page')}, {format_count(state.chunks, 'chunk')}, "
            f"{format_count(state.problems, 'problem')} · {revision}, {freshness}"
        )
        if state.pending_chunks:
            lines.append(style.format_warning(f"  search by meaning: {int(100 * state.embedded_share)} % ready"))
        when = f"{state.synced_at:%Y-%m-%d %H:%M} UTC" if state.synced_at else "never"
        dialect = f" · {status.dialect}" if status.dialect else ""
        size = format_size(status.disk_bytes)
        lines.append(style.format_dim(f"  synced {when} · {state.recipe.fingerprint}{dialect} · {size}"))
    if status.documents:
        counts = ", ".join(f"{count} {extension}" for extension, count in status.documents.items())
        text = f"{format_count(sum(status.documents.values()), 'document')}: {counts}"
        lines.append(style.format_dim(f"  {to_safe_line(text)}"))
    lines += [*_format_problems(status.wiki.slug, status, style), *_format_skipped(status.skipped, style)]
    if status.ignored:
        counts = ", ".join(f"{count} {pattern}" for pattern, count in status.ignored.items())
        text = f"{format_count(sum(status.ignored.values()), 'page')} ignored: {counts}"
        lines.append(style.format_dim(f"  {to_safe_line(text)}"))
    lines += [*_format_language(status, style), *_format_health(status, style)]
    if status.error:
        lines.append(style.format_error(f"  {to_safe_line(status.error.message)}"))
        lines.append(f"  hint: {to_safe_line(status.error.hint)}")
    return lines


def _format_language(status: WikiStatus, style: TerminalStyle) -> list[str]:
    """The languages of the pages, and what helps if most are in one that the words or the model do not know."""
    from wikiholt.models.model_files import ENGLISH_MODELS, MULTILINGUAL_MODEL
    from wikiholt.text.language_names import DEFAULT_LANGUAGE, LANGUAGES

    language, state = status.main_language, status.state
    counts = ", ".join(f"{count:,} {name.capitalize()}" for name, count in status.languages.items())
    lines = [style.format_dim(f"  languages: {counts}")] if len(status.languages) > 1 else []
    if language in ("", DEFAULT_LANGUAGE) or state is None or not status.query_languages:
        return lines
    faults, hints = [], []
    if language in LANGUAGES and language not in status.query_languages:
        faults.append(f"words are stemmed as in {status.query_languages[0].capitalize()}")
        hints.append(f"`wikiholt set {status.wiki.slug} language={language}`")
    if state.recipe.model in ENGLISH_MODELS:
        faults.append(f"the model {state.recipe.model} finds by meaning in English only")
        hints.append(f'`model = "{MULTILINGUAL_MODEL}"` in wikiholt.toml (docs/models.md, Other languages)')
    if faults:
        lines.append(f"  most pages are in {language.capitalize()}; {', and '.join(faults)}")
        lines.append(f"  hint: {', and '.join(hints)}")
    return lines


def _format_health(status: WikiStatus, style: TerminalStyle) -> list[str]:
    health, lines = status.health, []
    if not health.is_ok:
        since = f" since {health.since:%Y-%m-%d %H:%M} UTC" if health.since else ""
        lines.append(style.format_error(f"  {health.condition}{since}: {to_safe_line(health.reason)}"))
        lines.append(f"  hint: a running service repairs it; otherwise run `wikiholt sync {status.wiki.slug}`")
    elif health.checked_at:
        lines.append(style.format_dim(f"  intact when checked {health.checked_at:%Y-%m-%d %H:%M} UTC"))
    if status.quarantined:
        names = ", ".join(status.quarantined[-3:])
        lines.append(style.format_dim(f"  damaged indexes in quarantine: {len(status.quarantined)} ({names})"))
    return lines


def format_estimate(slug: str, estimate: ReindexEstimate, style: TerminalStyle) -> list[str]:
    note = "" if estimate.exact else " (estimated from a sample of the pages)"
    warning = "" if estimate.disk_free > 2 * estimate.disk_bytes else style.format_warning("  little space is left")
    size = f"{format_count(estimate.pages, 'page')}, {format_count(estimate.chunks, 'chunk')}"
    new_chunks = estimate.chunks_to_embed - estimate.reusable_vectors
    disk, free = format_size(estimate.disk_bytes), format_size(estimate.disk_free)
    return [
        f"{style.format_bold(slug)}: {size}{note}",
        f"  reindex: {estimate.chunks_to_embed} to embed, about {format_duration(estimate.seconds)}",
        f"  sync after a change of settings: {estimate.reusable_vectors} vectors reused, {new_chunks} to embed, "
        f"about {format_duration(estimate.seconds_reusing)}",
        f"  disk: about {disk} in addition to the current index, {free} free{warning}",
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


def format_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as safe lines, with aligned columns."""
    safe_rows = [list(map(to_safe_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe_rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in safe_rows]


def print_lines(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


# Progress bars.


@contextmanager
def show_sync_progress(name: str, *, visible: bool, keep: bool = True) -> Iterator[ProgressCallback]:
    """A callback for the progress of a sync. It draws a bar if `visible` and there is work; with `keep` it stays."""
    bar: tqdm[NoReturn] | None = None

    def update(progress: SyncProgress) -> None:
        nonlocal bar
        if not visible or not progress.pages_total:
            return
        if bar is None:
            import shutil

            from tqdm import tqdm

            # Some terminals have no size. tqdm would then draw nothing.
            columns, rows = shutil.get_terminal_size()
            bar = tqdm(desc=name, unit=" chunks", ascii=" ▏▎▍▌▋▊▉█", leave=keep, ncols=columns, nrows=rows)
        pages = f"{progress.pages_done} of {progress.pages_total} pages"
        is_reading = not progress.chunks_expected and bool(progress.pages_done)
        done, total = (
            (progress.pages_done, progress.pages_total)
            if is_reading
            else (progress.chunks_done, max(progress.chunks_expected, progress.chunks_done))
        )
        bar.unit, bar.total = " pages" if is_reading else " chunks", total
        bar.set_postfix_str("" if is_reading else pages, refresh=False)
        bar.update(done - bar.n)

    try:
        yield update
    finally:
        if bar is not None:
            bar.close()
