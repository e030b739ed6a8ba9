"""From a blob to a page that is ready to be embedded. Sync, reindex, estimate and import all use this pipeline."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Any

from wikiholt.documents.conversion import UnreadableDocument, convert_document
from wikiholt.domain.git import Blob, EntryKind, TreeEntry
from wikiholt.domain.index import IndexState, Recipe
from wikiholt.domain.page import Chunk, Page, PageProblem, PageTerms
from wikiholt.domain.protocols import ModelInfo, PageTokenizer, Source
from wikiholt.text.bm25 import build_page_terms, detect_page_language
from wikiholt.text.chunks import build_chunks
from wikiholt.text.dialect import DIALECTS, GFM, MAX_SAMPLE_PAGES, Dialect, detect_dialect
from wikiholt.text.ignore_patterns import build_matcher, find_unused_patterns
from wikiholt.text.languages import detect_wiki_languages
from wikiholt.text.links import LinkResolution
from wikiholt.text.markdown import AnchorStyle
from wikiholt.text.model_text import build_embedding_text
from wikiholt.text.page_names import get_page_path, is_code, is_document, is_page_file, make_page_name
from wikiholt.text.page_parser import parse_page
from wikiholt.text.segmentation import MeteredTokenSpans, PageWorkLimitExceeded
from wikiholt.text.source_lines import to_source_lines

TEXT_VERSION = 16
"""Incremented when parsing, chunking or analysis changes the contents of an index, which forces a rebuild."""

BATCH_PAGES = 48
"""Pages per batch: enough to use every core, few enough that a crash loses little work."""

_WORK_PER_BYTE = 3
"""Characters the tokenizer may read per page, per byte of `page.max_bytes`. Prose in any script needs at most 2.5."""
_MIN_WORK_LIMIT = 1_000_000
"""A page that needs less work than this is always accepted, even if `page.max_bytes` is small."""
_WORK_PER_LINE = 8
"""A line costs the chunker about as much time as the tokenizer needs for this many characters."""

_compile_patterns = cache(build_matcher)


@dataclass(frozen=True, slots=True)
class PageTask:
    """A blob that is to become a page."""

    file: str
    blob: Blob
    changed_at: datetime | None
    former_files: Sequence[str] = ()
    words_only: bool = False
    """Whether the page is not embedded yet, so that the texts to embed are not made."""


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page to be embedded. `texts` are the texts to embed, one per chunk; none of a task with `words_only`."""

    blob: str
    page: Page
    chunks: tuple[Chunk, ...]
    texts: tuple[str, ...]
    hashes: tuple[bytes, ...]
    terms: PageTerms


@dataclass(frozen=True, slots=True)
class TextPipeline:
    """Settings that turn pages into chunks and terms. Part of an index's recipe."""

    target_tokens: int = 200
    overlap_tokens: int = 50
    language: str = "english"
    """Language for stemming. If a wiki has several, its own comes first (see `split_languages`)."""
    anchors: AnchorStyle = "github"
    max_bytes: int = 10 * 1024 * 1024
    hide: tuple[str, ...] = ()
    """Patterns of pages that searches never return (see `wikiholt.text.ignore_patterns`)."""
    dialect: Dialect = GFM
    detects_dialect: bool = False
    """Whether a sync detects the dialect. Until then, `dialect` is that of the last sync (see `with_detected`)."""
    detects_languages: bool = False
    """Whether a sync detects the languages, as the dialect."""
    reads_pictures: bool = False
    """Whether the text of pictures is recognized, also of scanned pages of a PDF."""

    def build_recipe(self, embedder: ModelInfo) -> Recipe:
        settings = {name: getattr(self, name) for name in _SETTING_NAMES}
        settings |= {"dialect": self.dialect.name, "text_version": TEXT_VERSION}
        pipeline = json.dumps(settings, sort_keys=True)
        return Recipe(embedder.fingerprint, embedder.dimensions, pipeline, embedder.model, embedder.precision)

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "TextPipeline | None":
        """The pipeline an index was built with, or None if this version of Wikiholt no longer supports it."""
        settings = _read_settings(recipe)
        dialect = DIALECTS.get(settings.get("dialect", ""))
        if settings.pop("text_version", None) != TEXT_VERSION or settings.keys() != _SETTING_NAMES or dialect is None:
            return None
        return cls(**{**settings, "hide": tuple(settings["hide"]), "dialect": dialect})

    def with_detected(self, recipe: Recipe) -> "TextPipeline":
        """This pipeline with the dialect and the languages that were detected for an index, if it detects them.

        The index may be of another version: until it is rebuilt, its pages are still shown in their dialect.
        """
        settings, pipeline = _read_settings(recipe), self
        dialect = DIALECTS.get(settings.get("dialect", "")) if settings.get("detects_dialect") else None
        if self.detects_dialect and dialect:
            pipeline = replace(pipeline, dialect=dialect)
        if self.detects_languages and settings.get("detects_languages"):
            pipeline = replace(pipeline, language=settings["language"])
        return pipeline

    def parse(self, file: str, blob: str, data: bytes, changed_at: datetime | None) -> Page | PageProblem:
        """Parse a page; of a document, its Markdown. Never raises."""
        return parse_page(file, blob, data, changed_at, self.anchors, GFM if is_document(file) else self.dialect)

    def prepare(self, task: PageTask, tokenizer: PageTokenizer) -> PreparedPage | PageProblem:
        """Prepare the page in this blob, or return its problem. An internal error affects only this page."""
        file, blob = task.file, task.blob
        if problem := self._check_blob(file, blob):
            return problem
        try:
            page = self._read_page(task)
            if isinstance(page, PageProblem):
                return page
            page = _add_former_names(page, task.former_files)
            return self._prepare_page(page, blob.id, tokenizer, words_only=task.words_only)
        except UnreadableDocument as error:
            return PageProblem(file, blob.id, error.reason, error.detail)
        except PageWorkLimitExceeded:
            detail = (
                f"preparing this page takes more than {self._get_work_limit():,} steps of work (very short lines or"
                " very long words); split it into several pages, or raise page.max_bytes"
            )
            return PageProblem(file, blob.id, "too-costly", detail)
        except Exception as error:  # noqa: BLE001 - an error in one page must not stop the others
            return PageProblem(file, blob.id, "failed", f"{type(error).__name__}: {error}")

    def _read_page(self, task: PageTask) -> Page | PageProblem:
        """The page in this blob, or in the text of a document. Raises UnreadableDocument."""
        file, blob = task.file, task.blob
        data = blob.data or b""
        if not is_document(file):
            return self.parse(file, blob.id, data, task.changed_at)
        document = convert_document(file, data, reads_pictures=self.reads_pictures)
        page = self.parse(file, blob.id, document.text.encode(), task.changed_at)
        if isinstance(page, PageProblem) or not document.warnings:
            return page
        return replace(page, warnings=(*document.warnings, *page.warnings))

    def _check_blob(self, file: str, blob: Blob) -> PageProblem | None:
        """Why this blob cannot be read as a page."""
        if blob.size > self.max_bytes:
            limit = f"{blob.size:,} bytes; the limit is {self.max_bytes:,} (page.max_bytes)"
            return PageProblem(file, blob.id, "too-large", limit)
        if blob.data is None:
            # A directory that cannot be listed has an entry of its own in the tree.
            kind = "the content of this page" if is_page_file(file) or is_document(file) else "this folder"
            return PageProblem(file, blob.id, "unreadable", f"{kind} cannot be read")
        return None

    def read_batch(
        self,
        source: Source,
        entries: Mapping[str, TreeEntry],
        changed_at: Mapping[str, datetime] | None = None,
        former_files: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[list[PageTask], list[PageProblem]]:
        """Read these files. Irregular files become problems."""
        problems: list[PageProblem] = []
        regular = []
        for file, entry in entries.items():
            if problem := _check_regular_file(file, entry):
                problems.append(problem)
            else:
                regular.append(file)
        blobs = source.read_blobs((entries[file].blob for file in regular), self.max_bytes)
        dates, former = changed_at or {}, former_files or {}
        tasks = [
            PageTask(file, blob, dates.get(file), former.get(file, ()))
            for file, blob in zip(regular, blobs, strict=True)
        ]
        return tasks, problems

    def _prepare_page(self, page: Page, blob: str, tokenizer: PageTokenizer, *, words_only: bool) -> PreparedPage:
        if not page.metadata.hidden and self.is_hidden(page.file):
            page = replace(page, metadata=replace(page.metadata, hidden=True))
        if page.metadata.hidden:
            # Hidden pages are listed but have no searchable content.
            return PreparedPage(blob, page, (), (), (), PageTerms("", "", ""))
        spans = MeteredTokenSpans(tokenizer.get_token_spans, self._get_work_limit())
        spans.spend(_WORK_PER_LINE * page.body.count("\n"))
        chunks = build_chunks(page, spans, target_tokens=self.target_tokens, overlap_tokens=self.overlap_tokens)
        texts = tuple(
            build_embedding_text(page, chunk, spans, tokenizer.max_tokens, self.dialect)
            for chunk in (() if words_only else chunks)
        )
        hashes = tuple(map(hash_text, texts))
        if is_code(page.file):
            chunks = to_source_lines(page, chunks)
        else:
            page = replace(page, metadata=replace(page.metadata, language=detect_page_language(page, self.language)))
        return PreparedPage(blob, page, chunks, texts, hashes, build_page_terms(page, self.language))

    def _get_work_limit(self) -> int:
        return max(_WORK_PER_BYTE * self.max_bytes, _MIN_WORK_LIMIT)

    def is_hidden(self, file: str) -> bool:
        """Whether the settings hide this file from searches."""
        return bool(self.hide) and _compile_patterns(self.hide, self._ignores_case)(file)

    @property
    def _ignores_case(self) -> bool:
        """Whether names of pages have no case of their own, so that patterns ignore it."""
        return self.dialect.resolution is LinkResolution.OTTERWIKI

    def find_unused_hide_patterns(self, files: Collection[str]) -> list[str]:
        """The patterns of `hide` that match none of the files."""
        return find_unused_patterns(self.hide, files, self._ignores_case)


_SETTING_NAMES = {field.name for field in fields(TextPipeline)}


def _read_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that `build_recipe` wrote; empty for the recipe of another program."""
    try:
        settings = json.loads(recipe.pipeline)
    except ValueError:
        return {}
    return settings if isinstance(settings, dict) else {}


def _add_former_names(page: Page, former_files: Sequence[str]) -> Page:
    """The page with its former names and paths as aliases, after its own."""
    if not former_files:
        return page
    own = page.metadata.aliases
    aliases = (*own, *find_former_names(page.file, page.path, own, former_files))
    return replace(page, metadata=replace(page.metadata, aliases=aliases))


def find_former_names(file: str, path: str, aliases: Sequence[str], former_files: Sequence[str]) -> Iterable[str]:
    """The names and paths of a page at its former files that it does not have now."""
    names = (name for former in former_files for name in (make_page_name(former), get_page_path(former)))
    # The title may still be a former name, but links are resolved by file and alias, not by title.
    known = {name.casefold() for name in (make_page_name(file), path, *aliases)}
    return {name.casefold(): name for name in names if name.casefold() not in known}.values()


def hash_text(text: str) -> bytes:
    """The hash under which the vector of an embedded text is stored. Accepts text with lone surrogates."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def iter_batches(files: Iterable[str], size: int = BATCH_PAGES) -> Iterator[list[str]]:
    """Split file names into batches."""
    remaining = iter(files)
    while batch := list(islice(remaining, size)):
        yield batch


def _check_regular_file(file: str, entry: TreeEntry) -> PageProblem | None:
    """The problem of a tree entry that has a page's name but is not a regular file."""
    if entry.kind is EntryKind.FILE:
        return None
    return PageProblem(file, entry.blob, str(entry.kind), f"this is a {entry.kind}, not a page")


# Detection of the dialect and the languages of a wiki before a sync, if its settings do not name them.

_MAX_SAMPLE_BYTES = 100_000


class TreeReader:
    """Reads trees of one source. Within `keep_last`, the same tree is not listed again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: tuple[str, Mapping[str, TreeEntry]] | None = None

    def read(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision."""
        if self._last is None or self._last[0] != revision:
            self._last = revision, self._source.read_tree(revision)
        return self._last[1]

    def read_with_others(self, revision: str) -> tuple[Mapping[str, TreeEntry], Sequence[str]]:
        """Every page file at the revision, and the files that are not pages."""
        tree, others = self._source.read_all_files(revision)
        self._last = revision, tree
        return tree, others

    @contextmanager
    def keep_last(self) -> Iterator[None]:
        """Keep the last tree in this block: that of a commit never changes."""
        try:
            yield
        finally:
            self._last = None


class PipelineDetector:
    """Detects the dialect and the languages of one wiki: in the first sync of a process, and in a small wiki if its
    files are others."""

    def __init__(self, source: Source, trees: TreeReader) -> None:
        self._source = source
        self._trees = trees
        self._is_large = False
        self._last: tuple[tuple[Collection[str], Collection[str]], TextPipeline] | None = None
        """The pages and the other files of a small wiki at the last detection, and its result."""

    def update(self, pipeline: TextPipeline, revision: str, state: IndexState | None) -> TextPipeline:
        """The pipeline with the dialect and the languages of the wiki at this revision, as far as it detects them.

        `state` is that of the published index, if it can be read.
        """
        if not (pipeline.detects_dialect or pipeline.detects_languages) or self._is_large:
            return pipeline
        if state is not None:
            # What is indexed stays without clear evidence for something else.
            pipeline = pipeline.with_detected(state.recipe)
            if state.revision == revision and _is_detected(state.recipe, pipeline):
                return pipeline
        tree, other_files = self._trees.read_with_others(revision)
        files = (list(tree), other_files)
        if self._last == (files, pipeline):
            return pipeline  # unless the index differs, because its generation is not complete yet
        pages = {file: entry for file, entry in tree.items() if not is_code(file)}
        texts = list(self._read_sample(pages))
        if pipeline.detects_dialect:
            # Source code says which site generator there is, as it does where it is not indexed.
            others = [*other_files, *filter(is_code, tree)]
            dialect = detect_dialect(map(get_page_path, pages), others, texts, pipeline.dialect)
            pipeline = replace(pipeline, dialect=dialect)
        if pipeline.detects_languages:
            pipeline = replace(pipeline, language=detect_wiki_languages(texts, pipeline.language))
        self._is_large = len(tree) > MAX_SAMPLE_PAGES
        self._last = None if self._is_large else (files, pipeline)
        return pipeline

    def _read_sample(self, tree: Mapping[str, TreeEntry]) -> Iterator[str]:
        """The text of some pages, chosen by their names, so that edits hardly change the choice."""
        texts = (file for file in tree if not is_document(file))
        files = sorted(texts, key=lambda file: blake2b(file.encode("utf-8", "replace"), digest_size=8).digest())
        blobs = [tree[file].blob for file in files[:MAX_SAMPLE_PAGES] if tree[file].kind is EntryKind.FILE]
        for blob in self._source.read_blobs(blobs, _MAX_SAMPLE_BYTES):
            yield (blob.data or b"").decode("utf-8", "replace")


def _is_detected(recipe: Recipe, wanted: TextPipeline) -> bool:
    """Whether all that this pipeline detects was detected for the index with this recipe."""
    indexed = TextPipeline.from_recipe(recipe)
    return (
        indexed is not None
        and indexed.detects_dialect >= wanted.detects_dialect
        and indexed.detects_languages >= wanted.detects_languages
    )
