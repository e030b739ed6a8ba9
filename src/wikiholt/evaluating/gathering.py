"""Reads what questions are mined from: links by the index, descriptions and former titles by git. Writes nothing."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from wikiholt.errors import InvalidEvaluation, NothingIndexed
from wikiholt.evaluating.mining import (
    Wanted,
    description_questions,
    former_title_questions,
    link_questions,
    without_description,
)
from wikiholt.evaluating.questions import MINED, Kind, Question, sampled
from wikiholt.model import Blob, Filter, Page, StoredPage, Words
from wikiholt.pages import Pipeline
from wikiholt.ports import Source, WikiIndex
from wikiholt.text.page import page_path, parse_page
from wikiholt.text.words import page_words

_MOST_VERSIONS = 20_000
"""Former versions of pages whose titles are looked at, the newest first."""
_HEAD_BYTES = 8 * 1024
"""What is read of a former version: frontmatter and the first heading stand at its beginning."""


@dataclass(frozen=True, slots=True)
class Mined:
    """Questions of a wiki at a revision."""

    questions: tuple[Question, ...]
    revision: str
    available: Mapping[Kind, int]
    """How many questions of each kind there were to choose from."""


def mine(
    index: WikiIndex,
    source: Source,
    pipeline: Pipeline,
    kinds: Collection[Kind] = MINED,
    limit: int = 200,
    seed: int = 0,
) -> Mined:
    """At most `limit` questions of each kind; raises InvalidEvaluation where the wiki holds none at all."""
    revision = index.state().revision
    if revision is None:
        raise NothingIndexed("this wiki is not indexed to the end yet", hint="run `wikiholt sync`, then try again")
    _, pages = index.list_pages(Filter(), None)
    pipeline = Pipeline.of(index.state().recipe) or pipeline
    wanted = Wanted.among(pages, pipeline.language)
    described = dict(_described(wanted.pages.values(), index, source, pipeline)) if Kind.DESCRIPTIONS in kinds else {}
    found: list[Question] = []
    if Kind.LINKS in kinds:
        found += link_questions(wanted, pages, index.links())
    if Kind.FORMER_TITLES in kinds:
        found += former_title_questions(wanted, _former_titles(pages, source, revision, pipeline))
    found += description_questions(wanted, described)
    if not found:
        raise InvalidEvaluation(
            "no questions could be mined from this wiki",
            hint="few links, renames or descriptions are in it; bring questions of your own: --queries and --qrels",
        )
    chosen = sampled(found, limit, seed)
    available = {kind: sum(each.kind is kind for each in found) for kind in kinds}
    return Mined(tuple(chosen), revision, available)


def words_without(
    index: WikiIndex, source: Source, pipeline: Pipeline, questions: Iterable[Question]
) -> dict[int, Words]:
    """The words of the pages that are asked for by their description, without it: the keyword index holds it."""
    pipeline = Pipeline.of(index.state().recipe) or pipeline
    paths = {path for question in questions if question.kind is Kind.DESCRIPTIONS for path in question.relevant}
    pages = {path: page for path in sorted(paths) if (page := index.find_page(path)) is not None}
    described = _described(pages.values(), index, source, pipeline)
    return {pages[path].page_id: page_words(without_description(page), pipeline.language) for path, page in described}


def _described(
    pages: Iterable[StoredPage], index: WikiIndex, source: Source, pipeline: Pipeline
) -> Iterator[tuple[str, Page]]:
    blobs = index.pages()
    files = [page.file for page in pages if page.file in blobs]
    read = source.read([blobs[file] for file in files], pipeline.max_bytes)
    for file, blob in zip(files, read, strict=True):
        if b"---" not in (blob.data or b"")[:100]:
            continue  # no frontmatter, no description
        page = parse_page(file, blob.id, blob.data or b"", None, pipeline.anchors)
        if isinstance(page, Page) and page.metadata.description:
            yield page.path, page


def _former_titles(
    pages: Iterable[StoredPage], source: Source, revision: str, pipeline: Pipeline
) -> Iterator[tuple[str, str]]:
    """Path of a page today, and a title an earlier version of it bore."""
    today = {page.file for page in pages}
    versions = [each for each in source.versions(revision, _MOST_VERSIONS) if each.file in today]
    read = source.read([each.blob for each in versions], pipeline.max_bytes)
    for version, blob in zip(versions, read, strict=True):
        page = parse_page(version.then, version.blob, _beginning(blob), None, pipeline.anchors)
        if isinstance(page, Page):
            yield page_path(version.file), page.name


def _beginning(blob: Blob) -> bytes:
    data = (blob.data or b"")[:_HEAD_BYTES]
    return data if len(data) < _HEAD_BYTES else data.rpartition(b"\n")[0]


def known_paths(index: WikiIndex) -> Callable[[str], str | None]:
    """A function that gives the path of an indexed page by its path or file, None for what is no page."""

    def known(name: str) -> str | None:
        page = index.find_page(name) or index.find_page(page_path(name))
        return page.path if page is not None else None

    return known
