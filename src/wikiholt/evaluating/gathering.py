"""Reads what questions are mined from: links by the index, descriptions and former titles by git. Writes nothing."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from wikiholt.errors import InvalidEvaluation, NothingIndexed
from wikiholt.evaluating.mining import (
    SearchablePages,
    build_description_questions,
    build_former_title_questions,
    build_link_questions,
    remove_description,
)
from wikiholt.evaluating.questions import MINED_KINDS, QuestionKind, Question, sample_questions
from wikiholt.model import Blob, PageFilter, Page, StoredPage, PageTerms
from wikiholt.pages import TextPipeline
from wikiholt.ports import Source, WikiIndex
from wikiholt.text.page import get_page_path, parse_page
from wikiholt.text.words import build_page_terms

_MAX_VERSIONS = 20_000
"""Former versions of pages whose titles are looked at, the newest first."""
_MAX_HEAD_BYTES = 8 * 1024
"""What is read of a former version: frontmatter and the first heading stand at its beginning."""


@dataclass(frozen=True, slots=True)
class MinedQuestions:
    """Questions of a wiki at a revision."""

    questions: tuple[Question, ...]
    revision: str
    available: Mapping[QuestionKind, int]
    """How many questions of each kind there were to choose from."""


def mine_questions(
    index: WikiIndex,
    source: Source,
    pipeline: TextPipeline,
    kinds: Collection[QuestionKind] = MINED_KINDS,
    limit: int = 200,
    seed: int = 0,
) -> MinedQuestions:
    """At most `limit` questions of each kind; raises InvalidEvaluation where the wiki holds none at all."""
    revision = index.get_state().revision
    if revision is None:
        raise NothingIndexed("this wiki is not indexed to the end yet", hint="run `wikiholt sync`, then try again")
    _, pages = index.list_pages(PageFilter(), None)
    pipeline = TextPipeline.from_recipe(index.get_state().recipe) or pipeline
    wanted = SearchablePages.from_pages(pages, pipeline.language)
    described = dict(_iter_described_pages(wanted.pages.values(), index, source, pipeline)) if QuestionKind.DESCRIPTIONS in kinds else {}
    found: list[Question] = []
    if QuestionKind.LINKS in kinds:
        found += build_link_questions(wanted, pages, index.get_links())
    if QuestionKind.FORMER_TITLES in kinds:
        found += build_former_title_questions(wanted, _iter_former_titles(pages, source, revision, pipeline))
    found += build_description_questions(wanted, described)
    if not found:
        raise InvalidEvaluation(
            "no questions could be mined from this wiki",
            hint="few links, renames or descriptions are in it; bring questions of your own: --queries and --qrels",
        )
    chosen = sample_questions(found, limit, seed)
    available = {kind: sum(each.kind is kind for each in found) for kind in kinds}
    return MinedQuestions(tuple(chosen), revision, available)


def build_terms_without(
    index: WikiIndex, source: Source, pipeline: TextPipeline, questions: Iterable[Question]
) -> dict[int, PageTerms]:
    """The words of the pages that are asked for by their description, without it: the keyword index holds it."""
    pipeline = TextPipeline.from_recipe(index.get_state().recipe) or pipeline
    paths = {path for question in questions if question.kind is QuestionKind.DESCRIPTIONS for path in question.relevant}
    pages = {path: page for path in sorted(paths) if (page := index.find_page(path)) is not None}
    described = _iter_described_pages(pages.values(), index, source, pipeline)
    return {pages[path].page_id: build_page_terms(remove_description(page), pipeline.language) for path, page in described}


def _iter_described_pages(
    pages: Iterable[StoredPage], index: WikiIndex, source: Source, pipeline: TextPipeline
) -> Iterator[tuple[str, Page]]:
    blobs = index.get_page_blobs()
    files = [page.file for page in pages if page.file in blobs]
    read = source.read_blobs([blobs[file] for file in files], pipeline.max_bytes)
    for file, blob in zip(files, read, strict=True):
        if b"---" not in (blob.data or b"")[:100]:
            continue  # no frontmatter, no description
        page = parse_page(file, blob.id, blob.data or b"", None, pipeline.anchors)
        if isinstance(page, Page) and page.metadata.description:
            yield page.path, page


def _iter_former_titles(
    pages: Iterable[StoredPage], source: Source, revision: str, pipeline: TextPipeline
) -> Iterator[tuple[str, str]]:
    """Path of a page today, and a title an earlier version of it bore."""
    today = {page.file for page in pages}
    versions = [each for each in source.find_old_versions(revision, _MAX_VERSIONS) if each.file in today]
    read = source.read_blobs([each.blob for each in versions], pipeline.max_bytes)
    for version, blob in zip(versions, read, strict=True):
        page = parse_page(version.old_file, version.blob, _cut_beginning(blob), None, pipeline.anchors)
        if isinstance(page, Page):
            yield get_page_path(version.file), page.name


def _cut_beginning(blob: Blob) -> bytes:
    data = (blob.data or b"")[:_MAX_HEAD_BYTES]
    return data if len(data) < _MAX_HEAD_BYTES else data.rpartition(b"\n")[0]


def make_path_resolver(index: WikiIndex) -> Callable[[str], str | None]:
    """A function that gives the path of an indexed page by its path or file, None for what is no page."""

    def resolve(path_or_file: str) -> str | None:
        page = index.find_page(path_or_file) or index.find_page(get_page_path(path_or_file))
        return page.path if page is not None else None

    return resolve
