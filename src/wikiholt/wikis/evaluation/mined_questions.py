"""Questions that a wiki holds itself: how its own pages call one another, what they were called before, what they say
they are about. Pure functions.

A question that merely repeats the title of the page it should find would be answered by any search; such are left out,
and so are those a reader could not answer either ("here", a text that leads to many pages).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wikiholt.domain.git import Blob
from wikiholt.domain.page import Page, PageTerms
from wikiholt.domain.protocols import Source
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidEvaluation, NothingIndexed
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.text.bm25 import build_page_terms, to_terms
from wikiholt.text.keyword_query import parse_query
from wikiholt.text.links import PageNameIndex
from wikiholt.text.model_text import to_plain_text
from wikiholt.text.page_names import get_page_path
from wikiholt.text.page_parser import parse_page
from wikiholt.wikis.evaluation.questions import MINED_KINDS, Question, QuestionKind, sample_questions

_MIN_PAGE_WORDS = 20
"""Words a page must have to be asked for: what says nothing cannot be found by what it says."""
_MIN_TERMS, _MAX_TERMS = 2, 12
_MIN_DESCRIPTION_TERMS = 4
_MAX_TARGETS = 3
_MAX_QUESTION_CHARS = 300
_GENERIC_TEXTS = frozenset(
    {"click here", "read more", "see here", "see also", "learn more", "this page", "this link", "this section"}
    | {"this article", "these docs", "more details", "more information", "further reading", "full list"}
    | {"back to top", "next page", "previous page", "source code"}
)
_OPERATOR_PATTERN = re.compile(r"""["“”„«»]|(?:(?<=\s)|^)-+""")
_MARKUP_PATTERN = re.compile(r"!\[|</?[a-zA-Z]|://")


@dataclass(frozen=True, slots=True)
class SearchablePages:
    """The pages of a wiki that may be asked for, by id, in the words of one language."""

    pages: Mapping[int, StoredPage]
    language: str = "english"

    @classmethod
    def from_pages(cls, pages: Iterable[StoredPage], language: str) -> "SearchablePages":
        """Those a search can find, and whose text says something."""
        return cls({page.page_id: page for page in pages if page.chunks and page.words >= _MIN_PAGE_WORDS}, language)

    def get_terms(self, text: str) -> tuple[str, ...]:
        """The terms of a text that say something."""
        return parse_query(text, self.language).terms

    def is_repetition(self, text: str, page: StoredPage) -> bool:
        """Whether a text holds no telling term that the page's name, or its path, does not hold too."""
        said = set(self.get_terms(text))
        return any(said <= set(to_terms(name, self.language)) for name in (page.name, page.path))


def to_query_text(text: str) -> str:
    """A text of a page as a query: no markup, no line breaks, and nothing the query language would obey."""
    return " ".join(_OPERATOR_PATTERN.sub(" ", to_plain_text(text) or text).split())


def build_link_questions(
    searchable: SearchablePages, pages: Iterable[StoredPage], links: Iterable[StoredLink]
) -> list[Question]:
    """Texts of links to a page from others. Every page that links by that text holds it, and is excluded."""
    everyone = {page.page_id: page for page in pages}
    names = PageNameIndex(page.path for page in everyone.values())
    by_path = {page.path: page for page in searchable.pages.values()}
    targets: defaultdict[str, dict[str, None]] = defaultdict(dict)
    linking: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        page = everyone.get(link.page_id)
        target = names.find_page(link.paths, link.wiki) if page and link.paths else None
        if page and target and target != page.path and not _MARKUP_PATTERN.search(link.text):
            text = to_query_text(link.text)
            targets[text][target] = None
            linking[text.casefold()].add(page.path)
    questions: list[Question] = []
    taken: set[str] = set()
    for text, found in sorted(targets.items()):
        excluded = linking[text.casefold()]
        fits = _is_usable(searchable, text) and len(found) <= _MAX_TARGETS and found.keys() <= by_path.keys()
        if not fits or found.keys() & (excluded | taken):
            continue
        if any(searchable.is_repetition(text, by_path[path]) for path in found):
            continue
        taken |= found.keys()  # one question a page, or a page that everybody links to would count for many
        relevant = dict.fromkeys(found, 1)
        questions.append(
            Question(
                _format_id(QuestionKind.LINKS, len(questions)), QuestionKind.LINKS, text, relevant, frozenset(excluded)
            )
        )
    return questions


def build_former_title_questions(searchable: SearchablePages, former: Iterable[tuple[str, str]]) -> list[Question]:
    """What pages (by path) were called before, unless a page is called so today or two were; one a page."""
    by_path = {page.path: page for page in searchable.pages.values()}
    today = {page.name.casefold() for page in searchable.pages.values()}
    bearers: defaultdict[str, set[str]] = defaultdict(set)
    spelled: dict[str, str] = {}
    for path, title in former:
        text = to_query_text(title)
        bearers[text.casefold()].add(path)
        spelled.setdefault(text.casefold(), text)
    questions: list[Question] = []
    taken: set[str] = set()
    for key, paths in sorted(bearers.items()):
        path, text = next(iter(paths)), spelled[key]
        page = by_path.get(path)
        if len(paths) > 1 or page is None or path in taken or key in today or not searchable.get_terms(text):
            continue
        if len(text) > _MAX_QUESTION_CHARS or searchable.is_repetition(text, page):
            continue
        taken.add(path)
        kind = QuestionKind.FORMER_TITLES
        questions.append(Question(_format_id(kind, len(questions)), kind, text, {path: 1}))
    return questions


def build_description_questions(searchable: SearchablePages, described: Mapping[str, Page]) -> list[Question]:
    """The descriptions in pages' frontmatter; one that two pages share, or that stands on its page anyway, is none."""
    bearers: defaultdict[str, list[str]] = defaultdict(list)
    for path, page in described.items():
        bearers[to_query_text(page.metadata.description or "")].append(path)
    questions: list[Question] = []
    for text, paths in sorted(bearers.items()):
        fits = (
            len(paths) == 1
            and len(text) <= _MAX_QUESTION_CHARS
            and len(searchable.get_terms(text)) >= _MIN_DESCRIPTION_TERMS
        )
        if fits and not _is_copied(text, described[paths[0]].body, searchable.language):
            kind = QuestionKind.DESCRIPTIONS
            questions.append(Question(_format_id(kind, len(questions)), kind, text, {paths[0]: 1}))
    return questions


def remove_description(page: Page) -> Page:
    """The page as it would be had nobody described it."""
    return replace(page, metadata=replace(page.metadata, description=None))


def _is_usable(searchable: SearchablePages, text: str) -> bool:
    plain = text.casefold().strip(" .,:;!?")
    return (
        len(text) <= _MAX_QUESTION_CHARS
        and plain not in _GENERIC_TEXTS
        and _MIN_TERMS <= len(searchable.get_terms(text)) <= _MAX_TERMS
    )


def _is_copied(text: str, body: str, language: str) -> bool:
    """Whether more than half of each five terms in a row stand so in the body."""
    said = _build_five_grams(to_terms(text, language))
    return 2 * len(said & _build_five_grams(to_terms(body, language))) > len(said) if said else text in body


def _build_five_grams(terms_in_order: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(terms_in_order[at : at + 5]) for at in range(len(terms_in_order) - 4)}


def _format_id(kind: QuestionKind, number: int) -> str:
    return f"{kind}-{number:04}"


# Reads what questions are mined from: links by the index, descriptions and former titles by git. Writes nothing.


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
    described = (
        dict(_iter_described_pages(wanted.pages.values(), index, source, pipeline))
        if QuestionKind.DESCRIPTIONS in kinds
        else {}
    )
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
    return {
        pages[path].page_id: build_page_terms(remove_description(page), pipeline.language) for path, page in described
    }


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
