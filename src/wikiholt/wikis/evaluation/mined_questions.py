"""Mines evaluation questions from a wiki: link texts, former titles, and descriptions.

Any search can find a page by its title, so questions that merely repeat it are left out. So are texts that a reader
could not answer either ("here", or a text that links to many pages). Nothing is written.
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
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.bm25 import build_page_terms, to_terms
from wikiholt.text.keyword_query import parse_query
from wikiholt.text.links import LinkResolution, PageNameIndex, get_folder
from wikiholt.text.model_text import to_plain_text
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.evaluation.questions import MINED_KINDS, Question, QuestionKind, sample_questions

_MIN_PAGE_WORDS = 20
"""Minimum words of a target page; a page without text cannot be found by its text."""
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
_MAX_VERSIONS = 20_000
"""Former versions of pages whose titles are read, newest first."""
_MAX_HEAD_BYTES = 8 * 1024
"""Bytes read of a former version; frontmatter and the first heading are at its beginning."""


@dataclass(frozen=True, slots=True)
class SearchablePages:
    """The pages of a wiki that can be targets of questions, by id, and the language of their words."""

    pages: Mapping[int, StoredPage]
    language: str = "english"

    @classmethod
    def from_pages(cls, pages: Iterable[StoredPage], language: str) -> "SearchablePages":
        """The pages that a search can find and that have enough text."""
        return cls({page.page_id: page for page in pages if page.chunks and page.words >= _MIN_PAGE_WORDS}, language)

    def get_terms(self, text: str) -> tuple[str, ...]:
        """The significant terms of a text."""
        return parse_query(text, self.language).terms

    def is_repetition(self, text: str, page: StoredPage) -> bool:
        """Whether all significant terms of the text are in the page's name, or all in its path."""
        terms = set(self.get_terms(text))
        return any(terms <= set(to_terms(name, self.language)) for name in (page.name, page.path))


def to_query_text(text: str) -> str:
    """A text of a page as a query: without markup, line breaks and query operators."""
    return " ".join(_OPERATOR_PATTERN.sub(" ", to_plain_text(text) or text).split())


def build_link_questions(
    searchable: SearchablePages, pages: Iterable[StoredPage], links: Iterable[StoredLink], resolution: LinkResolution
) -> list[Question]:
    """Link texts as questions. Pages with such a link contain the text, so they are excluded from the ranking."""
    all_pages = {page.page_id: page for page in pages}
    names = PageNameIndex((page.path for page in all_pages.values()), resolution=resolution)
    by_path = {page.path: page for page in searchable.pages.values()}
    targets: defaultdict[str, dict[str, None]] = defaultdict(dict)
    linking_pages: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        page = all_pages.get(link.page_id)
        target = names.find_page(link.paths, link.wiki, get_folder(page.path)) if page and link.paths else None
        if page and target and target != page.path and not _MARKUP_PATTERN.search(link.text):
            text = to_query_text(link.text)
            targets[text][target] = None
            linking_pages[text.casefold()].add(page.path)
    questions: list[Question] = []
    used: set[str] = set()
    for text, paths in sorted(targets.items()):
        excluded = linking_pages[text.casefold()]
        is_usable = _is_usable(searchable, text) and len(paths) <= _MAX_TARGETS and paths.keys() <= by_path.keys()
        if not is_usable or paths.keys() & (excluded | used):
            continue
        if any(searchable.is_repetition(text, by_path[path]) for path in paths):
            continue
        used |= paths.keys()  # one question per page, or a page with many links would count more
        relevant = dict.fromkeys(paths, 1)
        questions.append(
            Question(
                _format_id(QuestionKind.LINKS, len(questions)), QuestionKind.LINKS, text, relevant, frozenset(excluded)
            )
        )
    return questions


def build_former_title_questions(searchable: SearchablePages, former: Iterable[tuple[str, str]]) -> list[Question]:
    """Former titles of pages (by path) as questions, one per page. Titles in use or of two pages are skipped."""
    by_path = {page.path: page for page in searchable.pages.values()}
    current_titles = {page.name.casefold() for page in searchable.pages.values()}
    paths_by_title: defaultdict[str, set[str]] = defaultdict(set)
    spellings: dict[str, str] = {}
    for path, title in former:
        text = to_query_text(title)
        paths_by_title[text.casefold()].add(path)
        spellings.setdefault(text.casefold(), text)
    questions: list[Question] = []
    used: set[str] = set()
    for key, paths in sorted(paths_by_title.items()):
        path, text = next(iter(paths)), spellings[key]
        page = by_path.get(path)
        if len(paths) > 1 or page is None or path in used or key in current_titles or not searchable.get_terms(text):
            continue
        if len(text) > _MAX_QUESTION_CHARS or searchable.is_repetition(text, page):
            continue
        used.add(path)
        kind = QuestionKind.FORMER_TITLES
        questions.append(Question(_format_id(kind, len(questions)), kind, text, {path: 1}))
    return questions


def build_description_questions(searchable: SearchablePages, described: Mapping[str, Page]) -> list[Question]:
    """Descriptions from frontmatter as questions. Those shared by two pages or copied from the page are skipped."""
    paths_by_text: defaultdict[str, list[str]] = defaultdict(list)
    for path, page in described.items():
        paths_by_text[to_query_text(page.metadata.description or "")].append(path)
    questions: list[Question] = []
    for text, paths in sorted(paths_by_text.items()):
        is_usable = (
            len(paths) == 1
            and len(text) <= _MAX_QUESTION_CHARS
            and len(searchable.get_terms(text)) >= _MIN_DESCRIPTION_TERMS
        )
        if is_usable and not _is_copied(text, described[paths[0]].body, searchable.language):
            kind = QuestionKind.DESCRIPTIONS
            questions.append(Question(_format_id(kind, len(questions)), kind, text, {paths[0]: 1}))
    return questions


def remove_description(page: Page) -> Page:
    """The page without its description."""
    return replace(page, metadata=replace(page.metadata, description=None))


def _is_usable(searchable: SearchablePages, text: str) -> bool:
    plain = text.casefold().strip(" .,:;!?")
    return (
        len(text) <= _MAX_QUESTION_CHARS
        and plain not in _GENERIC_TEXTS
        and _MIN_TERMS <= len(searchable.get_terms(text)) <= _MAX_TERMS
    )


def _is_copied(text: str, body: str, language: str) -> bool:
    """Whether more than half of the text's five-grams of terms occur in the body."""
    five_grams = _build_five_grams(to_terms(text, language))
    if not five_grams:
        return text in body
    return 2 * len(five_grams & _build_five_grams(to_terms(body, language))) > len(five_grams)


def _build_five_grams(terms_in_order: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(terms_in_order[start : start + 5]) for start in range(len(terms_in_order) - 4)}


def _format_id(kind: QuestionKind, number: int) -> str:
    return f"{kind}-{number:04}"


@dataclass(frozen=True, slots=True)
class MinedQuestions:
    """Questions of a wiki at a revision."""

    questions: tuple[Question, ...]
    revision: str
    available: Mapping[QuestionKind, int]
    """How many questions of each kind were available."""


def mine_questions(
    index: WikiIndex,
    source: Source,
    pipeline: TextPipeline,
    kinds: Collection[QuestionKind] = MINED_KINDS,
    limit: int = 200,
    seed: int = 0,
    max_versions: int = _MAX_VERSIONS,
) -> MinedQuestions:
    """At most `limit` questions of each kind, with titles from the newest `max_versions` former versions of pages.

    Raises InvalidEvaluation if the wiki has none.
    """
    revision = index.get_state().revision
    if revision is None:
        raise NothingIndexed("this wiki is not fully indexed yet", hint="run `wikiholt sync`, then try again")
    _, pages = index.list_pages(PageFilter(), None)
    pipeline = TextPipeline.from_recipe(index.get_state().recipe) or pipeline
    searchable = SearchablePages.from_pages(pages, pipeline.language)
    described = (
        dict(_iter_described_pages(searchable.pages.values(), index, source, pipeline))
        if QuestionKind.DESCRIPTIONS in kinds
        else {}
    )
    questions: list[Question] = []
    if QuestionKind.LINKS in kinds:
        questions += build_link_questions(searchable, pages, index.get_links(), pipeline.dialect.resolution)
    if QuestionKind.FORMER_TITLES in kinds:
        former = _iter_former_titles(pages, source, revision, pipeline, max_versions)
        questions += build_former_title_questions(searchable, former)
    questions += build_description_questions(searchable, described)
    if not questions:
        raise InvalidEvaluation(
            "no test questions found in this wiki",
            hint="it has few links, renames or descriptions; supply your own questions: --queries and --qrels",
        )
    chosen = sample_questions(questions, limit, seed)
    available = {kind: sum(question.kind is kind for question in questions) for kind in kinds}
    return MinedQuestions(tuple(chosen), revision, available)


def build_terms_without(
    index: WikiIndex, source: Source, pipeline: TextPipeline, questions: Iterable[Question]
) -> dict[int, PageTerms]:
    """Terms of the target pages of description questions without the description, which the keyword index contains."""
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
    contents = source.read_blobs([blobs[file] for file in files], pipeline.max_bytes)
    for file, blob in zip(files, contents, strict=True):
        if b"---" not in (blob.data or b"")[:100]:
            continue  # no frontmatter, no description
        page = pipeline.parse(file, blob.id, blob.data or b"", None)
        if isinstance(page, Page) and page.metadata.description:
            yield page.path, page


def _iter_former_titles(
    pages: Iterable[StoredPage], source: Source, revision: str, pipeline: TextPipeline, limit: int
) -> Iterator[tuple[str, str]]:
    """Current path of a page, and a title of an earlier version."""
    files = {page.file for page in pages}
    versions = [version for version in source.find_old_versions(revision, limit) if version.file in files]
    contents = source.read_blobs([version.blob for version in versions], pipeline.max_bytes)
    for version, blob in zip(versions, contents, strict=True):
        page = pipeline.parse(version.old_file, version.blob, _cut_beginning(blob), None)
        if isinstance(page, Page):
            yield get_page_path(version.file), page.name


def _cut_beginning(blob: Blob) -> bytes:
    data = (blob.data or b"")[:_MAX_HEAD_BYTES]
    return data if len(data) < _MAX_HEAD_BYTES else data.rpartition(b"\n")[0]


def make_path_resolver(index: WikiIndex) -> Callable[[str], str | None]:
    """A function that maps a path or file name to the path of an indexed page, or None."""

    def resolve(path_or_file: str) -> str | None:
        page = index.find_page(path_or_file) or index.find_page(get_page_path(path_or_file))
        return page.path if page is not None else None

    return resolve
