"""What a reader of an export yields: pages, files and problems, with names that are valid in every wiki."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import relpath
from typing import Protocol

_INVALID = re.compile("[\x00-\x1f\x7f\\\\\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_PART_BYTES = 180
_PLAIN_KEY = re.compile(r"[^\W\d][\w -]*")
_QUOTED = re.compile(r"[\s%()<>?#\[\]*_\"'`\\]")


@dataclass(frozen=True, slots=True)
class ExportedPage:
    """A page as Markdown; `file` is its path in the wiki, with an extension."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that is not a page."""

    file: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ExportProblem:
    """A part of the export that is not imported, and why."""

    name: str
    reason: str


ExportItem = ExportedPage | ExportedFile | ExportProblem


class ExportReader(Protocol):
    """Reads one export."""

    format: str
    """The name of the format, for people."""
    settings: Mapping[str, str]
    """Settings that a wiki with these pages needs, if it has none of its own."""

    def iter_items(self) -> Iterator[ExportItem]:
        """Everything that can be imported, and a problem for everything else."""

    def get_notes(self) -> Sequence[str]:
        """After the last item: what was left out on purpose, in sentences."""


@dataclass
class FileNames:
    """Assigns file names that are valid and that every file system can tell apart."""

    _files: set[str] = field(default_factory=set)
    _folders: dict[str, str] = field(default_factory=dict)

    def assign(self, parts: Sequence[str], extension: str = ".md") -> str:
        """A new file in the folders of these names; a name that is in use gets a number."""
        folder = ""
        for part in parts[:-1]:
            path = f"{folder}{clean_name(part)}/"
            folder = self._folders.setdefault(_fold(path), path)
        name, number = clean_name(parts[-1]), 1
        file = f"{folder}{name}{extension}"
        while _fold(file) in self._files:
            number += 1
            file = f"{folder}{name} ({number}){extension}"
        self._files.add(_fold(file))
        return file


def clean_name(name: str) -> str:
    """A name that may be a part of a path in a wiki."""
    name = " ".join(_INVALID.sub("-", unicodedata.normalize("NFC", name)).replace("/", "-").split())
    name = name.encode()[:_MAX_PART_BYTES].decode("utf-8", "ignore").rstrip(" .")
    if name.startswith(".") or name.lower().startswith("git~1"):
        name = f"_{name}"
    return name or "untitled"


def _fold(path: str) -> str:
    visible = "".join(char for char in path if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def make_link_target(file: str, from_file: str, heading: str = "") -> str:
    """The target of a Markdown link from one file to another."""
    path = relpath(file, from_file.rpartition("/")[0] or ".") if file else ""
    return quote_path(path) + (f"#{make_anchor(heading)}" if heading else "")


def quote_path(path: str) -> str:
    """The path with the characters encoded that would end the target of a link or begin other markup."""
    return _QUOTED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path)


def make_anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def add_frontmatter(text: str, fields: Mapping[str, str | Sequence[str]]) -> str:
    """The text after frontmatter with the fields that have a value."""
    lines = [f"{_quote_key(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value]
    return "\n".join(["---", *lines, "---", "", text.strip("\n"), ""]) if lines else text


def _quote_key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def protect_parts(text: str, pattern: re.Pattern[str], change: Callable[[str], str]) -> str:
    """The text with everything changed except what the pattern matches, such as code."""
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        parts += (change(text[end : match.start()]), match[0])
        end = match.end()
    return "".join((*parts, change(text[end:])))


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with these cells, which are Markdown; the first row is the header."""
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    width = max(map(len, rows), default=0)
    lines = [
        "| "
        + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in [*row, *[""] * (width - len(row))])
        + " |"
        for row in rows
    ]
    return [lines[0], "|" + " --- |" * width, *lines[1:]] if lines else []
