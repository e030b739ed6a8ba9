"""Finds the page file for a path, and reads one page from git, with its links from the index."""

import json
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import BoundedSemaphore

from wikiholt.documents.conversion import UnreadableDocument, convert_document
from wikiholt.domain.git import Commit, EntryKind
from wikiholt.domain.page import Page, PageContent, PageLinks, PageProblem
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import StoredChunk
from wikiholt.errors import (
    IndexUnavailable,
    InputTooLarge,
    InvalidPage,
    NoCommits,
    PageNotFound,
    SourceCorrupt,
    TooManyRequests,
)
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.charset import decode_bytes
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.links import fold_path
from wikiholt.text.page_names import (
    PICTURE_EXTENSIONS,
    get_page_path,
    has_link_extension,
    is_code,
    is_document,
    make_page_name,
)
from wikiholt.text.source_lines import join_blocks
from wikiholt.wikis.pages.indexed_pages import IndexedPages, IndexOpener

MAX_PATH_CHARS = 1000
_CONVERSIONS = BoundedSemaphore(4)
"""How many documents the readers of a process convert at once: each may take minutes and 2 GB, and is not cached."""
_MAX_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page's file at a revision."""

    file: str
    blob: str

    @property
    def path(self) -> str:
        return get_page_path(self.file)


@dataclass(frozen=True, slots=True)
class RawPage:
    """The bytes of a page file, and its text for editing."""

    data: bytes
    text: str


class PageReader:
    """Finds and reads the pages of one wiki."""

    def __init__(self, source: Source, pipeline: TextPipeline, open_index: IndexOpener) -> None:
        self._source = source
        self._pipeline = pipeline
        self._open_index = open_index
        self._indexed_pages = IndexedPages(open_index)

    def read(self, path: str, revision: str | None = None) -> PageContent:
        """The page at HEAD, or, also by its later name, at a revision that is an ancestor of HEAD."""
        read_at, page_file = self._resolve(path, revision)
        raw = self._read_recognized(page_file) or read_text(self._source, page_file, self._pipeline)
        last = self._find_last_commit(page_file.file, read_at)
        page = self.get_pipeline().parse(page_file.file, page_file.blob, raw.data, last.date if last else None)
        if isinstance(page, PageProblem):
            raise InvalidPage(f"the page {page_file.path} cannot be shown: {page.detail}", hint="read it with git")
        return self._build_content(page_file, page, raw.text, last, read_at)

    def _read_recognized(self, page_file: PageFile) -> RawPage | None:
        """The text of a picture, or of a PDF that may be scanned, from the index: recognizing it takes seconds."""
        if not self._pipeline.reads_pictures or not page_file.file.lower().endswith((".pdf", *PICTURE_EXTENSIONS)):
            return None
        with suppress(IndexUnavailable), self._open_index() as index:
            page = index.find_page(page_file.path)
            if page is not None and index.get_page_blobs().get(page_file.file) == page_file.blob:
                chunks = index.get_page_chunks([page.page_id]).get(page.page_id, ())
                title = json.dumps(page.name, ensure_ascii=False)
                text = f"---\ntitle: {title}\n---\n\n{_join_chunks(chunks)}\n"
                # A hidden page has no chunks, but may have text.
                is_hidden = index.get_page_contents([page_file.file])[page_file.file].hidden
                return RawPage(text.encode(), text) if chunks or not is_hidden else None
        return None

    def read_draft(self, path: str, text: str) -> PageContent:
        """The page as it would be with this text, which is not saved. `revision` is empty if there is no page yet."""
        head = self._read_head()
        page_file = self._find_page(path, head) or PageFile(get_new_file(path), "")
        last = self._find_last_commit(page_file.file, head) if head and page_file.blob else None
        page = self.get_pipeline().parse(page_file.file, "", text.encode("utf-8", "replace"), None)
        if isinstance(page, PageProblem):
            raise InvalidPage(f"the page {page_file.path} cannot be shown: {page.detail}", hint="change the text")
        return self._build_content(page_file, page, text, last, "")

    def _find_last_commit(self, file: str, revision: str) -> Commit | None:
        """The commit that last changed the file; None if the history cannot be read so far: the page still can be."""
        with suppress(SourceCorrupt):
            return next(iter(self._source.read_history(file, 1, revision)), None)
        return None

    def _build_content(
        self, page_file: PageFile, page: Page, text: str, last: Commit | None, read_at: str
    ) -> PageContent:
        links, notes = self._load_links(page)
        return PageContent(
            name=page.name,
            path=page_file.path,
            file=page_file.file,
            content=text,
            metadata=page.metadata,
            frontmatter=split_frontmatter(text.removeprefix("\ufeff").replace("\r\n", "\n")).fields,
            words=page.words,
            length=page.length,
            blob=page_file.blob,
            revision=last.revision if last else read_at,
            last_commit=last,
            read_at=read_at,
            links_to=links.links_to,
            linked_from=links.linked_from,
            missing=links.missing,
            warnings=page.warnings,
            notes=notes,
            headings=page.headings,
        )

    def read_history(self, path: str, limit: int = 50) -> Sequence[Commit]:
        """The commits that changed the page, newest first, including its earlier names. Works for deleted pages."""
        head = self._read_head()
        page_file = self._find_page(path, head)
        if head is not None:
            for file in (page_file.file,) if page_file else get_candidate_files(validate_path(path)):
                commits = self._source.read_history(file, limit, head)
                if commits:
                    return commits
        raise PageNotFound(f"there never was a page {path[:200]!r}", hint="list the pages to see their paths")

    def resolve_path(self, path: str) -> str:
        """The exact path of the page."""
        return self._resolve(path, None)[1].path

    def _resolve(self, path: str, revision: str | None) -> tuple[str, PageFile]:
        """The full revision, and the page file there."""
        head = self._read_head()
        if head is None or revision is None:
            return head or "", self._get_page(path, head)
        full_revision = self._source.resolve_revision(revision)
        try:
            return full_revision, self._get_page(path, full_revision)
        except PageNotFound:
            former = self._find_former_file(path, head, full_revision)
            if former is None:
                raise
            return full_revision, former

    def _find_former_file(self, path: str, head: str, revision: str) -> PageFile | None:
        """The file that a page of HEAD was at the revision, before it was renamed."""
        page_file = self._find_page(path, head)
        if page_file is None:
            return None
        for file in self._source.get_former_files([page_file.file], head).get(page_file.file, ()):
            entry = self._source.find_file(file, revision)
            if entry is not None and entry.kind is EntryKind.FILE:
                return PageFile(file, entry.blob)
        return None

    def _load_links(self, page: Page) -> tuple[PageLinks, tuple[str, ...]]:
        try:
            return self._indexed_pages.resolve_links(page.path, page.links), ()
        except IndexUnavailable as error:
            return PageLinks(page.path), (f"its links are unavailable ({error.code})",)

    # The file of a path.

    def get_pipeline(self) -> TextPipeline:
        """The pipeline of the wiki, with what was detected for its index."""
        if not (self._pipeline.detects_dialect or self._pipeline.detects_languages):
            return self._pipeline
        try:
            with self._open_index() as index:
                return self._pipeline.with_detected(index.get_state().recipe)
        except IndexUnavailable:
            return self._pipeline

    def _read_head(self) -> str | None:
        """HEAD, or None before the first commit."""
        try:
            return self._source.get_head()
        except NoCommits:
            return None

    def _get_page(self, path: str, revision: str | None) -> PageFile:
        """The page with this path at the revision. Raises PageNotFound."""
        page_file = self._find_page(path, revision)
        if page_file is None:
            current = self._find_current_path(path, revision)
            hint = f"{current!r} has this alias or former name" if current else "list the pages to see their paths"
            raise PageNotFound(f"there is no page {path[:200]!r}", hint=hint, current_path=current)
        return page_file

    def _find_page(self, path: str, revision: str | None) -> PageFile | None:
        """The page with this path, or else the only one whose path differs only in case or Unicode normalization."""
        path = validate_path(path)
        if revision is None:
            return None
        for file in get_candidate_files(path):
            entry = self._source.find_file(file, revision)
            if entry is not None and entry.kind is EntryKind.FILE:
                return PageFile(file, entry.blob)
        matches = {file for file in self._list_candidates(path, revision) if _is_same_path(file, path)}
        if len(matches) != 1:
            return None
        (file,) = matches
        entry = self._source.find_file(file, revision)
        return PageFile(file, entry.blob) if entry is not None and entry.kind is EntryKind.FILE else None

    def _find_current_path(self, path: str, revision: str | None) -> str:
        """The only page at the revision that has this path as an alias or former name; empty if there is none."""
        if revision is None:
            return ""
        key = fold_path(get_page_path(validate_path(path)))
        try:
            with self._open_index() as index:
                pages = [page for page in index.find_pages_by_key([key]) if key in map(fold_path, page.aliases)]
        except IndexUnavailable:
            return ""
        # The index may be older than the revision.
        is_there = len(pages) == 1 and self._source.find_file(pages[0].file, revision) is not None
        return pages[0].path if is_there else ""

    def _list_candidates(self, path: str, revision: str) -> Iterable[str]:
        """Files that may have this path, written otherwise: by the index if it has this revision, else by the tree."""
        try:
            with self._open_index() as index:
                if index.get_state().revision == revision:
                    return [page.file for page in index.find_pages_by_key([fold_path(path)])]
        except IndexUnavailable:
            pass
        return self._source.read_tree(revision)


def read_text(source: Source, page_file: PageFile, pipeline: TextPipeline) -> RawPage:
    """Read the page's file. Raises InputTooLarge over the limit and InvalidPage if it is not text."""
    limit = pipeline.max_bytes
    (blob,) = source.read_blobs([page_file.blob], limit)
    if blob.size > limit:
        raise InputTooLarge(
            f"the page {page_file.path} has {blob.size:,} bytes; the limit is {limit:,}",
            hint="raise page.max_bytes, or split it",
        )
    if blob.data is None:
        raise InvalidPage(
            f"the page {page_file.path} cannot be read", hint="check its permissions, or the repository with `git fsck`"
        )
    if is_document(page_file.file):
        if not _CONVERSIONS.acquire(timeout=_MAX_WAIT_S):
            raise TooManyRequests("Other documents are being read.", retry_after=_MAX_WAIT_S, hint="Try again then.")
        try:
            text = convert_document(page_file.file, blob.data, reads_pictures=pipeline.reads_pictures).text
            text = join_blocks(text) if is_code(page_file.file) else text
        except UnreadableDocument as error:
            raise InvalidPage(
                f"the document {page_file.path} has no text: {error.detail}", hint="open the file itself"
            ) from error
        finally:
            _CONVERSIONS.release()
        return RawPage(text.encode(), text)
    try:
        # Exactly as in the file, so that writing it back changes nothing.
        return RawPage(blob.data, blob.data.decode("utf-8"))
    except UnicodeDecodeError:
        decoded = decode_bytes(blob.data)
    if decoded is None:
        raise InvalidPage(f"the page {page_file.path} contains binary data, not text", hint="read it with git")
    return RawPage(blob.data, decoded.text)


def _join_chunks(chunks: Sequence[StoredChunk]) -> str:
    """The text of a page from its chunks, which may repeat the end of the one before."""
    text, last_line = "", 0
    for chunk in chunks:
        sizes = range(len(chunk.text), 0, -1) if chunk.first_line <= last_line else ()
        repeated = next((size for size in sizes if text.endswith(chunk.text[:size])), 0)
        text += chunk.text[repeated:] if repeated or not text else f"\n\n{chunk.text}"
        last_line = chunk.last_line
    return text


def parse_name_and_warnings(file: str, data: bytes, pipeline: TextPipeline) -> tuple[str, tuple[str, ...]]:
    """The name of a page with this content, and its warnings."""
    page = pipeline.parse(file, "", data, None)
    return (make_page_name(file), (page.detail,)) if isinstance(page, PageProblem) else (page.name, page.warnings)


# Paths.


def validate_path(path: str) -> str:
    """The path without surrounding slashes. Raises InvalidPage."""
    stripped = path.strip("/")
    if not stripped or len(stripped) > MAX_PATH_CHARS or not _is_text(stripped):
        message = f"{path[:80]!r} is not a page path" if stripped else "the page path is empty"
        raise InvalidPage(message, hint="use a path from the list of pages, such as guides/backup")
    return stripped


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is the prefix, or below it as a folder. The prefix has no slash at its end."""
    return not prefix or path == prefix or path.startswith(f"{prefix}/")


def get_candidate_files(path: str) -> tuple[str, ...]:
    """The files that a path may name, the likeliest first."""
    if has_link_extension(path) or (is_document(path) and not is_code(path)):
        return (path, f"{path}.md")
    return (f"{path}.md", path) if is_code(path) else (f"{path}.md",)  # a page may be about Node.js


def get_new_file(path: str) -> str:
    """The file of a page that does not exist yet."""
    return get_candidate_files(validate_path(path))[0]


def _is_same_path(file: str, path: str) -> bool:
    return fold_case(path) in (fold_case(file), fold_case(get_page_path(file)))


def fold_case(path: str) -> str:
    """A key that is equal for paths that differ only in case or Unicode normalization."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _is_text(path: str) -> bool:
    # File names in git may contain line breaks. The source decides which names may be written.
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path)
