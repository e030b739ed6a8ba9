"""Reads a MediaWiki dump (XML) in two passes: the titles, which links need, then one page after the other."""

import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.parsers import expat

from wikiholt.documents.exports.items import (
    ExportedPage,
    ExportItem,
    ExportProblem,
    FileNames,
    add_frontmatter,
    clean_name,
    make_link_target,
)
from wikiholt.documents.exports.wikitext import WikitextLinks, convert_wikitext
from wikiholt.errors import InvalidImport

_BLOCK_BYTES = 1 << 16
_MAX_TEXT_CHARS = 8_000_000
_MAX_PAGES = 2_000_000
_MAX_REDIRECTS = 5
_DEFAULT_NAMESPACES = (0, 12, 14)
_FILE_NAMESPACES, _CATEGORY_NAMESPACE = (-2, 6), 14
_STANDARD_NAMESPACES = {
    -2: "Media", -1: "Special", 0: "", 1: "Talk", 2: "User", 3: "User talk", 4: "Project", 5: "Project talk",
    6: "File", 7: "File talk", 8: "MediaWiki", 9: "MediaWiki talk", 10: "Template", 11: "Template talk",
    12: "Help", 13: "Help talk", 14: "Category", 15: "Category talk",
}  # fmt: skip
_REDIRECT = re.compile(r"\s{0,20}#([^\W\d_]{3,30})\s{0,5}:?\s{0,5}\[\[([^\]|\n]{1,300})")
_MAX_REDIRECT_CHARS = 1_000


@dataclass(slots=True)
class _Revision:
    timestamp: str = ""
    author: str = ""
    model: str = ""
    text: list[str] = field(default_factory=list)
    chars: int = 0


@dataclass(slots=True)
class _DumpPage:
    title: str = ""
    namespace: int = 0
    redirect: str = ""
    newest: _Revision | None = None

    def find_redirect(self) -> str:
        """The title that the page leads to; empty if it is not a redirect."""
        if self.redirect or self.newest is None or self.newest.chars > _MAX_REDIRECT_CHARS:
            return self.redirect
        match = _REDIRECT.match("".join(self.newest.text))
        return match[2] if match and (match[1].isupper() or match[1].lower() == "redirect") else ""


class _DumpParser:
    """Collects pages from XML, without a document type, which could define entities that expand without end."""

    def __init__(self, names: dict[int, str], cases: dict[int, str]) -> None:
        self.pages: list[_DumpPage] = []
        self._names, self._cases = names, cases
        self._path: list[str] = []
        self._page: _DumpPage | None = None
        self._revision: _Revision | None = None
        self._text: list[str] = []
        self._namespace = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = _refuse_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._add_text

    def feed(self, data: bytes, *, is_last: bool) -> None:
        self._parser.Parse(data, is_last)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        self._text = []
        if name == "page":
            self._page = _DumpPage()
        elif name == "revision":
            self._revision = _Revision()
        elif name == "redirect" and self._page is not None:
            self._page.redirect = attributes.get("title", "")
        elif name == "namespace":
            key = attributes.get("key", "")
            self._namespace = int(key) if re.fullmatch(r"-?\d{1,6}", key) else 0
            self._cases[self._namespace] = attributes.get("case", "first-letter")

    def _add_text(self, text: str) -> None:
        if self._revision is not None and self._path[-1] == "text":
            self._revision.chars += len(text)
            if self._revision.chars <= _MAX_TEXT_CHARS:
                self._revision.text.append(text)
        elif len(self._text) < 100:
            self._text.append(text[:1000])

    def _end(self, name: str) -> None:
        self._path.pop()
        text = "".join(self._text).strip()
        page, revision = self._page, self._revision
        if name == "namespace":
            self._names[self._namespace] = text
        elif page is None:
            return
        elif name == "page":
            self.pages.append(page)
            self._page = None
        elif name == "revision" and revision is not None:
            if page.newest is None or revision.timestamp >= page.newest.timestamp:
                page.newest = revision
            self._revision = None
        elif revision is not None:
            if name in ("username", "ip"):
                revision.author = text
            elif name == "timestamp" and self._path[-1] == "revision":
                revision.timestamp = text
            elif name == "model" and self._path[-1] == "revision":
                revision.model = text
        elif name == "title":
            page.title = text
        elif name == "ns" and re.fullmatch(r"-?\d{1,6}", text):
            page.namespace = int(text)


def _refuse_doctype(*_: object) -> None:
    raise InvalidImport("the XML has a document type definition, which is not allowed", hint="export the dump again")


class MediaWikiDump:
    """The newest revision of each page, from the namespaces that readers use."""

    format = "MediaWiki dump"

    def __init__(self, path: Path, open_stream: Callable[[Path], IO[bytes]], namespaces: Sequence[str] = ()) -> None:
        """`namespaces` are the names of those to import besides the main one, Help and Category."""
        self.settings: Mapping[str, str] = {}
        self._path = path
        self._open = open_stream
        self._names = dict(_STANDARD_NAMESPACES)
        self._cases: dict[int, str] = {}
        self._files: dict[str, str] = {}
        self._redirects: dict[str, str] = {}
        self._fault = ""
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[int] = Counter()
        first = next((page for page in self._iter_pages()), None)  # the names of the namespaces come before it
        if first is None:
            raise InvalidImport(f"{path.name} contains no pages{self._fault}", hint="export the pages again")
        self._by_name = {name.casefold().replace("_", " "): key for key, name in _STANDARD_NAMESPACES.items()}
        self._by_name |= {"image": 6} | {name.casefold(): key for key, name in self._names.items()}
        unknown = [name for name in namespaces if name.casefold().replace("_", " ") not in self._by_name]
        if unknown:
            known = ", ".join(sorted(filter(None, self._names.values())))
            raise InvalidImport(f"the dump has no namespace {unknown[0]!r}", hint=f"its namespaces: {known}")
        self._wanted = {
            *_DEFAULT_NAMESPACES,
            *(self._by_name[name.casefold().replace("_", " ")] for name in namespaces),
        }

    def get_notes(self) -> Sequence[str]:
        notes = []
        if self._skipped:
            parts = [f"{count:,} of {self._names.get(key) or key}" for key, count in self._skipped.most_common()]
            notes.append(f"pages of other namespaces left out: {', '.join(parts)} (--namespace NAME imports one)")
        if self._counts["templates"]:
            count, pages = self._counts["templates"], self._counts["pages with templates"]
            notes.append(f"{count:,} templates in {pages:,} pages: only the text of their parameters is kept")
        if self._counts["files"]:
            notes.append(f"{self._counts['files']:,} links to files: dumps do not contain them; captions are kept")
        return notes

    def iter_items(self) -> Iterator[ExportItem]:
        aliases = self._read_titles()
        found: Counter[str] = Counter()
        for page in self._iter_pages():
            key = self._normalize(page.title)
            # A title that is twice in the dump has one file; its second page is written over the first.
            if page.namespace not in self._wanted or key not in self._files or page.find_redirect():
                continue
            found[key] += 1
            item = self._convert(page, key, aliases.get(key, []))
            if item is not None:
                yield item
        if self._fault:
            yield ExportProblem(self._path.name, f"only {found.total():,} pages are imported{self._fault}")

    def _read_titles(self) -> dict[str, list[str]]:
        """Assign a file to each page, and return the titles of the redirects to each."""
        names = FileNames()
        titles: dict[str, str] = {}
        for count, page in enumerate(self._iter_pages(), 1):
            if count > _MAX_PAGES:
                raise InvalidImport(f"the dump has more than {_MAX_PAGES:,} pages", hint="export it in parts")
            key = self._normalize(page.title)
            if not page.title:
                continue
            if redirect := page.find_redirect():
                self._redirects[key] = self._normalize(redirect.partition("#")[0])
                titles[key] = page.title
            elif page.namespace not in self._wanted:
                self._skipped[page.namespace] += 1
            elif key not in self._files:
                self._files[key] = names.assign(self._split_title(page.title))
        aliases: dict[str, list[str]] = {}
        for source, title in titles.items():
            target = self._follow(source)
            if target in self._files:
                aliases.setdefault(target, []).append(title)
        return aliases

    def _convert(self, page: _DumpPage, key: str, aliases: Sequence[str]) -> ExportItem | None:
        revision = page.newest
        if revision is None or not revision.chars:
            return None
        if revision.chars > _MAX_TEXT_CHARS:
            return ExportProblem(page.title, f"it has more than {_MAX_TEXT_CHARS:,} characters")
        if revision.model not in ("", "wikitext"):
            return ExportProblem(page.title, f"its content is {revision.model} and not wikitext")
        file = self._files[key]
        converted = convert_wikitext("".join(revision.text), page.title, _PageLinks(self, file, page.title))
        self._counts["templates"] += converted.templates
        self._counts["pages with templates"] += bool(converted.templates)
        self._counts["files"] += converted.files
        fields: dict[str, str | Sequence[str]] = {
            "title": page.title,
            "updated": revision.timestamp,
            "author": revision.author,
            "aliases": list(aliases)[:100],
            "categories": converted.categories,
        }
        return ExportedPage(file, add_frontmatter(converted.text, fields))

    def _iter_pages(self) -> Iterator[_DumpPage]:
        """The pages up to the first damage, whose position is then in the fault."""
        parser = _DumpParser(self._names, self._cases)
        self._fault = ""
        try:
            with self._open(self._path) as stream:
                while True:
                    data = stream.read(_BLOCK_BYTES)
                    try:
                        parser.feed(data, is_last=not data)
                    finally:
                        yield from parser.pages
                        parser.pages.clear()
                    if not data:
                        return
        except expat.ExpatError as error:
            self._fault = f": the XML is damaged at line {error.lineno:,} ({expat.ErrorString(error.code)})"
        except (LookupError, ValueError) as error:
            self._fault = f": the encoding of the XML is unknown ({error})"
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, and not the content
            self._fault = f": the file is damaged ({error})"

    # Titles.

    def _split_title(self, title: str) -> list[str]:
        namespace, rest = self.split_namespace(title)
        parts = [part for part in rest.split("/") if part.strip()] or [rest]
        return [self._names[namespace], *parts] if namespace else parts

    def split_namespace(self, title: str) -> tuple[int, str]:
        prefix, colon, rest = title.partition(":")
        key = self._by_name.get(prefix.strip().replace("_", " ").casefold()) if colon and prefix.strip() else None
        return (key, rest.strip()) if key else (0, title)

    def _normalize(self, title: str) -> str:
        """The form of a title in which links are compared."""
        title = " ".join(title.replace("_", " ").split())
        namespace, rest = self.split_namespace(title)
        if self._cases.get(namespace, "first-letter") == "first-letter":
            rest = rest[:1].upper() + rest[1:]
        return f"{namespace}:{rest}"

    def _follow(self, key: str) -> str:
        for _ in range(_MAX_REDIRECTS):
            if key in self._files or key not in self._redirects:
                break
            key = self._redirects[key]
        return key

    def find_file(self, title: str) -> str:
        """The file of a page, also of one that does not exist; empty if its namespace is not imported."""
        key = self._follow(self._normalize(title))
        if key in self._files:
            return self._files[key]
        namespace, rest = self.split_namespace(title)
        prefix = title.partition(":")[0]
        if namespace not in self._wanted or (":" in rest and re.fullmatch(r"[a-z][a-z-]{1,11}", prefix)):
            return ""
        return "/".join(map(clean_name, self._split_title(" ".join(title.replace("_", " ").split())))) + ".md"


@dataclass(frozen=True, slots=True)
class _PageLinks(WikitextLinks):
    """The links of one page."""

    _dump: MediaWikiDump
    _file: str
    _title: str

    def find_kind(self, target: str) -> tuple[str, str]:
        namespace, rest = self._dump.split_namespace(target)
        if namespace in _FILE_NAMESPACES:
            return "file", rest
        return ("category", rest) if namespace == _CATEGORY_NAMESPACE else ("page", target)

    def find_target(self, target: str) -> str:
        title, _, heading = target.partition("#")
        title = title.strip()
        if title.startswith("/"):
            title = f"{self._title}{title.rstrip('/')}"
        while title.startswith("../"):
            parent = self._title.rpartition("/")[0]
            title = f"{parent}/{title[3:]}" if title[3:] else parent
        if not title:
            return make_link_target("", self._file, heading.replace("_", " ")) if heading else ""
        file = self._dump.find_file(title)
        return make_link_target(file, self._file, heading.replace("_", " ")) if file else ""
