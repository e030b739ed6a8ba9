"""Prints hits in the format that the user chose, with places as `path/to/file.md:12`, which editors open."""

import argparse
import csv
import io
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wikiholt.domain.search import Hit, SearchResult
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidQuery, InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import NOTHING_FOUND_EXIT_CODE, CommandContext
from wikiholt.interfaces.cli.output import TerminalStyle, find_best_line, to_safe_line
from wikiholt.interfaces.cli.selection import get_current_directory, get_root

_FORMATS = ("text", "json", "jsonl", "csv", "paths")
_CSV_COLUMNS = ("score", "confidence", "file", "line", "title", "heading", "snippet")
_FORMULA_CHARACTERS = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """The places of one wiki's files. `root` is None if the files are not on this disk."""

    root: Path | None
    current_directory: Path | None

    @classmethod
    def from_wiki(cls, wiki: Wiki) -> "FilePlaces":
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
    context: CommandContext,
    wikis: Sequence[Wiki],
    result: SearchResult,
    hints: Sequence[str] = (),
    document: Mapping[str, Any] | None = None,
) -> int:
    """Print the result; `document` is its JSON if known. Returns the exit code: 0, or that for nothing found."""
    arguments = context.arguments
    if not 0 <= arguments.min_score <= 1:
        raise InvalidQuery(f"--min-score {arguments.min_score:g} is not a score.", hint="Use a number from 0 to 1.")
    if arguments.min_score:
        result = replace(result, hits=tuple(hit for hit in result.hits if hit.score >= arguments.min_score))
        document = None
    by_slug, chosen = {wiki.slug: FilePlaces.from_wiki(wiki) for wiki in wikis}, choose_format(arguments)

    def get_places(hit: Hit) -> FilePlaces:
        return by_slug[hit.wiki or wikis[0].slug]

    def format_place(hit: Hit, style: TerminalStyle) -> str:
        """The place as safe text. A hit of a merged result names its wiki."""
        label = f"{hit.wiki}: " if hit.wiki else ""
        return label + get_places(hit).format(hit.file, find_best_line(hit), style)

    if document is None and chosen in ("json", "jsonl"):
        from wikiholt.api.documents.search_documents import build_result_document

        document = build_result_document(result)
    match chosen:
        case "text":
            lines = output.format_result(result, context.style, format_place, full=arguments.full)
            output.print_lines([*lines, *hints])
        case "json":
            sys.stdout.write(output.format_json(document) + "\n")
        case "jsonl":
            _write_lines(output.format_json(hit, indent=None) for hit in (document["results"] if document else ()))
        case "csv":
            sys.stdout.write(_format_csv(result, get_places, full=arguments.full))
        case "paths":
            _write_lines(dict.fromkeys(to_safe_line(_to_unique_path(hit, get_places(hit))) for hit in result.hits))
    if chosen not in ("text", "json"):
        _print_notes(result)
    return 0 if result.hits else NOTHING_FOUND_EXIT_CODE


def choose_format(arguments: argparse.Namespace) -> str:
    """The format that the arguments name. Raises InvalidSetting if they name two."""
    chosen = {arguments.format, "json" if arguments.json else None, "paths" if arguments.files else None} - {None}
    if len(chosen) > 1:
        raise InvalidSetting(
            f"Two formats are specified: {' and '.join(sorted(chosen))}.", hint="Use one of --format, --json, --files."
        )
    return str(chosen.pop()) if chosen else "text"


def _to_unique_path(hit: Hit, places: FilePlaces) -> str:
    """The path; in a merged result `SLUG:path` if the file is not on this disk, as several wikis may have it."""
    is_ambiguous = hit.wiki and places.find_path(hit.file) is None
    return f"{hit.wiki}:{hit.file}" if is_ambiguous else places.to_shown_path(hit.file)


def _format_csv(result: SearchResult, get_places: Callable[[Hit], FilePlaces], *, full: bool) -> str:
    """The hits as rows. Only a merged result has the column `wiki`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["wiki", *_CSV_COLUMNS] if result.wikis else _CSV_COLUMNS)
    for hit in result.hits:
        texts = [hit.name, " > ".join(hit.heading_path), hit.text if full else hit.snippet.text]
        file, *cells = (_to_cell(text) for text in (get_places(hit).to_shown_path(hit.file), *texts))
        wiki = [hit.wiki] if result.wikis else []
        writer.writerow([*wiki, f"{hit.score:.4f}", hit.confidence, file, find_best_line(hit), *cells])
    return table.getvalue()


def _to_cell(text: str) -> str:
    """Safe text. An apostrophe keeps spreadsheets from running page text as a formula."""
    safe = to_safe_line(text)
    return f"'{safe}" if safe.lstrip().startswith(_FORMULA_CHARACTERS) else safe


def _write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _print_notes(result: SearchResult) -> None:
    """What the format has no place for, on stderr."""
    notes: list[str] = []
    if result.did_you_mean:
        from wikiholt.api.documents.search_documents import format_did_you_mean

        notes.append(format_did_you_mean(result))
    notes += ["Nothing clearly relevant was found."] if result.hits and result.nothing_relevant else []
    for note in (*notes, *result.notes):
        sys.stderr.write(f"note: {to_safe_line(note)}\n")
