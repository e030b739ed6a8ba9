"""Prints hits in the format that the user chose, with places as `path/to/file.md:12`, which editors open."""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidQuery, InvalidSetting
from wikiholt.interfaces.cli.command import NOTHING_FOUND_EXIT_CODE, CommandContext
from wikiholt.interfaces.cli.output import (
    TerminalStyle,
    format_count,
    format_json,
    get_text_width,
    print_lines,
    to_safe_line,
    to_safe_text,
)
from wikiholt.interfaces.cli.selection import get_current_directory, get_root

if TYPE_CHECKING:
    from wikiholt.api.documents.past_documents import PageNowDocument, PastCommitDocument
    from wikiholt.api.documents.search_documents import HitDocument, SearchResultDocument

_FORMATS = ("text", "json", "jsonl", "csv", "paths")
_CSV_COLUMNS = ("score", "confidence", "file", "line", "title", "heading", "snippet")
_FORMULA_CHARACTERS = ("=", "+", "-", "@")
_MAX_SHOWN_FACETS = 20
_MAX_SHOWN_PLACES = 4
_TURN, _OMITTED = " › ", " › …"
_MIN_HEADING_CHARS = 20
"""A long heading is cut if at least this many characters fit; else it is left out."""
_WHITESPACE = re.compile(r"[\t\n\v\f\r ]")


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """The places of one wiki's files. `root` is None if the files are not on this disk."""

    root: Path | None
    current_directory: Path | None

    @classmethod
    def from_wiki(cls, wiki: Wiki) -> FilePlaces:
        return cls(get_root(wiki), get_current_directory())

    def find_path(self, file: str) -> Path | None:
        """The absolute path of a file, or None if it is not on this disk or a link leads out of the wiki."""
        if self.root is None:
            return None
        path = self.root / file
        try:
            return path if path.is_file() and path.resolve().is_relative_to(self.root) else None
        except (OSError, ValueError):
            return None

    def to_shown_path(self, file: str) -> str:
        """The path from the current directory, or the absolute one if shorter; else from the wiki's directory."""
        path = self.find_path(file)
        if path is None:
            return file
        if self.current_directory is None:
            return str(path)
        return min(os.path.relpath(path, self.current_directory), str(path), key=len)

    def format(self, file: str, line: int | None, style: TerminalStyle) -> str:
        """The place as safe text: a link on a terminal."""
        text = to_safe_line(self.to_shown_path(file)) + (f":{line}" if line else "")
        path = self.find_path(file) if style.use_color else None
        address = f"file://{quote(socket.gethostname())}{quote(os.fsencode(path))}" if path else ""
        return style.format_link(text, address)


def add_hit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=_FORMATS, help="format of the output (default: text)")
    parser.add_argument("--files", action="store_true", help="print only the files: --format paths")
    parser.add_argument("--full", action="store_true", help="show the entire passage instead of a snippet")
    parser.add_argument("--min-score", type=float, default=0.0, metavar="S", help="only hits with at least this score")


def print_hits(
    context: CommandContext, wikis: Sequence[Wiki], document: SearchResultDocument, hints: Sequence[str] = ()
) -> int:
    """Print the result of a search in these wikis. Returns the exit code: 0, or that for nothing found."""
    arguments = context.arguments
    if not 0 <= arguments.min_score <= 1:
        raise InvalidQuery(f"--min-score {arguments.min_score:g} is not a score.", hint="Use a number from 0 to 1.")
    hits = [hit for hit in document["results"] if hit["score"] >= arguments.min_score]
    document = {**document, "results": hits, "total": len(hits)}
    by_slug, chosen = {wiki.slug: FilePlaces.from_wiki(wiki) for wiki in wikis}, choose_format(arguments)

    at = cast("PastCommitDocument | None", document.get("at"))

    def get_places(hit: HitDocument) -> FilePlaces:
        if at is not None:
            return FilePlaces(None, None)
        return by_slug[hit["wiki"] or wikis[0].slug]

    def format_place(hit: HitDocument, style: TerminalStyle) -> str:
        """The place as safe text. A hit of a merged result names its wiki."""
        label = f"{hit['wiki']}: " if hit["wiki"] else ""
        if at is not None:  # as git names a file of a commit
            return to_safe_line(f"{at['revision'][:10]}:{hit['file']}:{_find_best_line(hit)}")
        return label + get_places(hit).format(hit["file"], _find_best_line(hit), style)

    match chosen:
        case "text":
            print_lines([*format_result(document, context.style, format_place, full=arguments.full), *hints])
        case "json":
            sys.stdout.write(format_json(document) + "\n")
        case "jsonl":
            _write_lines(format_json(hit, indent=None) for hit in hits)
        case "csv":
            sys.stdout.write(_format_csv(document, get_places, full=arguments.full))
        case "paths":
            _write_lines(dict.fromkeys(to_safe_line(_to_unique_path(hit, get_places(hit))) for hit in hits))
    if chosen not in ("text", "json"):
        _print_notes(document)
    return 0 if hits else NOTHING_FOUND_EXIT_CODE


def choose_format(arguments: argparse.Namespace) -> str:
    """The format that the arguments name. Raises InvalidSetting if they name two."""
    chosen = {arguments.format, "json" if arguments.json else None, "paths" if arguments.files else None} - {None}
    if len(chosen) > 1:
        raise InvalidSetting(
            f"Two formats are specified: {' and '.join(sorted(chosen))}.", hint="Use one of --format, --json, --files."
        )
    return str(chosen.pop()) if chosen else "text"


def _to_unique_path(hit: HitDocument, places: FilePlaces) -> str:
    """The path; in a merged result `SLUG:path` if the file is not on this disk, as several wikis may have it."""
    is_ambiguous = hit["wiki"] and places.find_path(hit["file"]) is None
    return f"{hit['wiki']}:{hit['file']}" if is_ambiguous else places.to_shown_path(hit["file"])


def _format_csv(document: SearchResultDocument, get_places: Callable[[HitDocument], FilePlaces], *, full: bool) -> str:
    """The hits as rows. Only a merged result has the column `wiki`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["wiki", *_CSV_COLUMNS] if document["wikis"] else _CSV_COLUMNS)
    for hit in document["results"]:
        texts = [hit["name"], hit["section_path"] or "", hit["text" if full else "snippet"]]
        file, *cells = (_to_cell(text) for text in (get_places(hit).to_shown_path(hit["file"]), *texts))
        wiki = [hit["wiki"]] if document["wikis"] else []
        writer.writerow([*wiki, f"{hit['score']:.4f}", hit["confidence"], file, _find_best_line(hit), *cells])
    return table.getvalue()


def _to_cell(text: str) -> str:
    """Safe text. An apostrophe keeps spreadsheets from running page text as a formula."""
    safe = to_safe_line(text)
    return f"'{safe}" if safe.lstrip().startswith(_FORMULA_CHARACTERS) else safe


def _write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _print_notes(document: SearchResultDocument) -> None:
    """What the format has no place for, on stderr."""
    notes = _explain_correction(document)
    notes += ["Nothing clearly relevant was found."] if document["results"] and document["nothing_relevant"] else []
    for note in (*notes, *document["notes"]):
        sys.stderr.write(f"note: {to_safe_line(note)}\n")


def _explain_correction(document: SearchResultDocument) -> list[str]:
    if not document["did_you_mean"]:
        return []
    from wikiholt.api.documents.search_documents import format_did_you_mean

    return [format_did_you_mean(document["query"], document["did_you_mean"])]


# The hits as text.


def format_stored_place(hit: HitDocument, _: TerminalStyle) -> str:
    """The file of the hit, from the wiki's directory, and its line."""
    return f"{to_safe_line(hit['file'] or hit['path'])}:{_find_best_line(hit)}"


def format_result(
    document: SearchResultDocument,
    style: TerminalStyle,
    place: Callable[[HitDocument, TerminalStyle], str] = format_stored_place,
    *,
    full: bool = False,
) -> list[str]:
    """The result as text. `place` formats where a hit is; with `full`, each hit shows its entire passage."""
    hits = document["results"]
    lines = [style.format_warning(to_safe_line(text)) for text in _explain_correction(document)]
    if not document["considered"]:
        lines.append("Nothing found: no page matches the filters, phrases and exclusions.")
    elif not hits:
        lines.append("Nothing found.")
    elif document["nothing_relevant"]:
        lines.append(style.format_warning("Nothing clearly relevant was found; the closest pages are:"))
    if at := cast("PastCommitDocument | None", document.get("at")):
        name, revision = to_safe_line(at["name"]), at["revision"][:10]
        lines.insert(0, style.format_dim(f"The wiki at {name} (commit {revision} of {at['date'][:10]}):"))
    for number, hit in enumerate(hits, document["offset"] + 1):
        lines += _format_hit(number, hit, style, place, full=full)
    lines.append(style.format_dim(_format_footer(document)))
    lines += [style.format_warning(f"note: {to_safe_line(note)}") for note in document["notes"]]
    for name, facets in document["facets"].items():
        values = ", ".join(f"{facet['value']} ({facet['count']})" for facet in facets[:_MAX_SHOWN_FACETS])
        lines.append(to_safe_line(f"{name}: {values or 'no page has it'}"))
    return lines


def _format_hit(
    number: int,
    hit: HitDocument,
    style: TerminalStyle,
    place: Callable[[HitDocument, TerminalStyle], str],
    *,
    full: bool,
) -> list[str]:
    rated = "" if hit["confidence"] == "unknown" else f"{hit['score']:.2f} {hit['confidence']} · "
    evidence = style.format_dim(rated + " + ".join(hit["channels"]))
    head = f"{number}. {_format_matches(hit['name'], hit['name_matches'], style, style.format_bold)}  {evidence}"
    room = get_text_width() - 3 - len(place(hit, TerminalStyle(use_color=False)))
    where = place(hit, style) + _format_headings(hit, style, room)
    rows = [*(_format_passage(hit, style) if full else _format_snippet(hit, style)), *_format_also_on(hit, style)]
    rows += _format_now(cast("PageNowDocument | None", hit.get("now")), hit, style)
    why = [f"   {style.format_dim(to_safe_line(hit['explanation']))}"] if hit["explanation"] else []
    return [head, f"   {where}", *why, *(f"   {row}".rstrip() for row in rows), ""]


def _format_also_on(hit: HitDocument, style: TerminalStyle) -> Iterator[str]:
    """The other pages with nearly the same passage, in one line if they are many."""
    if others := hit["also_on"]:
        names = [place["file"] for place in others[:_MAX_SHOWN_PLACES]]
        more = [f"{len(others) - len(names)} more"] if len(others) > len(names) else []
        pages = format_count(len(others), "page")
        yield style.format_dim(to_safe_line(f"also on {pages}: {', '.join([*names, *more])}"))


def _format_now(now: PageNowDocument | None, hit: HitDocument, style: TerminalStyle) -> list[str]:
    """What became of a page of the past."""
    if now is None:
        return []
    if now["path"] is not None:
        moved = f"now {to_safe_line(now['path'])}, and " if now["path"] != hit["path"] else ""
        return [style.format_dim(f"{moved}changed since" if moved else "changed since")]
    removed = now["removed"]
    if removed is None:
        return [style.format_warning("the latest commit does not have this page")]
    subject = removed["message"].partition("\n")[0]
    text = f"removed {removed['date'][:10]} by {removed['author']} in {removed['revision'][:10]}: {subject}"
    return [style.format_warning(to_safe_line(text))]


def _format_headings(hit: HitDocument, style: TerminalStyle, room: int) -> str:
    """The headings above the passage in at most `room` characters. The innermost heading is the last to be left out."""
    matches = hit["heading_matches"] or [[]] * len(hit["heading_path"])
    rows = [row for row in zip(hit["heading_path"], matches, strict=True) if row[0] != hit["name"]]
    shown = rows
    while shown and sum(len(_TURN + heading) for heading, _ in shown) > room - (len(shown) < len(rows)) * len(_OMITTED):
        shown = shown[1:]
    end = room - len(_TURN) - 1
    if rows and not shown and end >= _MIN_HEADING_CHARS:
        heading, spans = rows[-1]
        shown = rows = [(f"{heading[:end].rstrip()}…", [span for span in spans if span[1] <= end])]
    parts = [style.format_dim(_OMITTED)] if len(shown) < len(rows) else []
    parts += [style.format_dim(_TURN) + _format_matches(*row, style, style.format_dim) for row in shown]
    return "".join(parts)


def _format_matches(text: str, spans: Sequence[Sequence[int]], style: TerminalStyle, base: Callable[[str], str]) -> str:
    """One line of safe text with its matches in color; `base` formats the rest."""
    safe_text = to_safe_line(text)
    formatted, end = "", 0
    for start, stop in spans if style.use_color and len(safe_text) == len(text) else ():
        formatted += base(safe_text[end:start]) + style.format_match(safe_text[start:stop])
        end = stop
    return formatted + base(safe_text[end:])


def _format_snippet(hit: HitDocument, style: TerminalStyle) -> Iterator[str]:
    """The rows of a snippet, with its matches in color and all but the closest sentence dim."""
    sentence, format_match, format_dim = hit["sentence"], style.format_match, style.format_dim

    def choose_format(at: int) -> Callable[[str], str]:
        if any(start <= at < end for start, end in hit["matches"]):
            return format_match
        return str if sentence is None or sentence[0] <= at < sentence[1] else format_dim

    text = _WHITESPACE.sub(" ", to_safe_text(hit["snippet"]))
    end = 0
    for row in textwrap.wrap(text, get_text_width() - 3):
        start = text.index(row, end)
        end = start + len(row)
        parts = ((form, list(places)) for form, places in groupby(range(start, end), choose_format))
        yield "".join(form(text[places[0] : places[-1] + 1]) for form, places in parts)


def _find_best_line(hit: HitDocument) -> int:
    """The line of the file, within the passage, that has the most matching words; else the first line."""
    counts = [sum(word in line for word in _get_matched_words(hit)) for line in hit["text"].split("\n")]
    return hit["lines"][0] + counts.index(max(counts))


def _get_matched_words(hit: HitDocument) -> set[str]:
    return {hit["snippet"][start:end] for start, end in hit["matches"]}


def _format_passage(hit: HitDocument, style: TerminalStyle) -> list[str]:
    """The lines of the passage as written, with the words in color that match in the snippet."""
    lines = to_safe_text(hit["text"]).strip("\n").split("\n")
    words = _get_matched_words(hit)
    if not words:
        return lines
    pattern = re.compile("|".join(re.escape(to_safe_text(word)) for word in sorted(words, key=len, reverse=True)))
    return [pattern.sub(lambda match: style.format_match(match[0]), line) for line in lines]


def _format_footer(document: SearchResultDocument) -> str:
    indexed, head, stale = document["indexed_revision"], document["head_revision"], document["stale"]
    if document["wikis"]:
        freshness = format_count(len(document["wikis"]), "wiki") + (", not all up to date" if stale else "")
    else:
        freshness = "first sync incomplete" if indexed is None else f"at {indexed[:10]}"
    if indexed and head is None:
        freshness += ", its source cannot be read" if stale else ", latest state not checked"
    elif indexed and head and "at" not in document:
        freshness += f", the latest is {head[:10]}" if stale else ", up to date"
    reranked = " · reranked" if document["reranked"] else ""
    degraded = " · degraded" if document["degraded"] else ""
    pages = f"{len(document['results'])} of {format_count(document['considered'], 'page')}"
    return f"{pages} · {document['mode']}{reranked} · {document['took_ms']:.0f} ms · {freshness}{degraded}"
