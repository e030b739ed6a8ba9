"""Questions that a wiki holds itself: how its own pages call one another, what they were called before, what they say
they are about. Pure functions.

A question that merely repeats the title of the page it should find would be answered by any search; such are left out,
and so are those a reader could not answer either ("here", a text that leads to many pages).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wikiholt.evaluating.questions import Kind, Question
from wikiholt.model import Page, StoredLink, StoredPage
from wikiholt.text.links import Names
from wikiholt.text.plain import plain_text
from wikiholt.text.queries import parse_query
from wikiholt.text.words import terms

_SHORTEST_PAGE = 20
"""Words a page must have to be asked for: what says nothing cannot be found by what it says."""
_FEWEST, _MOST = 2, 12
_FEWEST_OF_DESCRIPTION = 4
_MOST_TARGETS = 3
_LONGEST = 300
_GENERIC = frozenset(
    {"click here", "read more", "see here", "see also", "learn more", "this page", "this link", "this section"}
    | {"this article", "these docs", "more details", "more information", "further reading", "full list"}
    | {"back to top", "next page", "previous page", "source code"}
)
_OPERATORS = re.compile(r"""["“”„«»]|(?:(?<=\s)|^)-+""")
_PICTURE = re.compile(r"!\[|</?[a-zA-Z]|://")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pages of a wiki that may be asked for, by id, in the words of one language."""

    pages: Mapping[int, StoredPage]
    language: str = "english"

    @classmethod
    def among(cls, pages: Iterable[StoredPage], language: str) -> "Wanted":
        """Those a search can find, and whose text says something."""
        return cls({page.page_id: page for page in pages if page.chunks and page.words >= _SHORTEST_PAGE}, language)

    def telling(self, text: str) -> tuple[str, ...]:
        """The terms of a text that say something."""
        return parse_query(text, self.language).terms

    def repeats(self, text: str, page: StoredPage) -> bool:
        """Whether a text holds no telling term that the page's name, or its path, does not hold too."""
        said = set(self.telling(text))
        return any(said <= set(terms(name, self.language)) for name in (page.name, page.path))


def asked_plainly(text: str) -> str:
    """A text of a page as a query: no markup, no line breaks, and nothing the query language would obey."""
    return " ".join(_OPERATORS.sub(" ", plain_text(text) or text).split())


def link_questions(wanted: Wanted, pages: Iterable[StoredPage], links: Iterable[StoredLink]) -> list[Question]:
    """Texts of links to a page from others. Every page that links by that text holds it, and is excluded."""
    everyone = {page.page_id: page for page in pages}
    names = Names(page.path for page in everyone.values())
    by_path = {page.path: page for page in wanted.pages.values()}
    targets: defaultdict[str, dict[str, None]] = defaultdict(dict)
    linking: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        page = everyone.get(link.page_id)
        target = names.page(link.paths, link.wiki) if page and link.paths else None
        if page and target and target != page.path and not _PICTURE.search(link.text):
            text = asked_plainly(link.text)
            targets[text][target] = None
            linking[text.casefold()].add(page.path)
    questions: list[Question] = []
    taken: set[str] = set()
    for text, found in sorted(targets.items()):
        excluded = linking[text.casefold()]
        fits = _fits(wanted, text) and len(found) <= _MOST_TARGETS and found.keys() <= by_path.keys()
        if not fits or found.keys() & (excluded | taken):
            continue
        if any(wanted.repeats(text, by_path[path]) for path in found):
            continue
        taken |= found.keys()  # one question a page, or a page that everybody links to would count for many
        relevant = dict.fromkeys(found, 1)
        questions.append(Question(_id(Kind.LINKS, len(questions)), Kind.LINKS, text, relevant, frozenset(excluded)))
    return questions


def former_title_questions(wanted: Wanted, former: Iterable[tuple[str, str]]) -> list[Question]:
    """What pages (by path) were called before, unless a page is called so today or two were; one a page."""
    by_path = {page.path: page for page in wanted.pages.values()}
    today = {page.name.casefold() for page in wanted.pages.values()}
    bearers: defaultdict[str, set[str]] = defaultdict(set)
    spelled: dict[str, str] = {}
    for path, title in former:
        text = asked_plainly(title)
        bearers[text.casefold()].add(path)
        spelled.setdefault(text.casefold(), text)
    questions: list[Question] = []
    taken: set[str] = set()
    for key, paths in sorted(bearers.items()):
        path, text = next(iter(paths)), spelled[key]
        page = by_path.get(path)
        if len(paths) > 1 or page is None or path in taken or key in today or not wanted.telling(text):
            continue
        if len(text) > _LONGEST or wanted.repeats(text, page):
            continue
        taken.add(path)
        kind = Kind.FORMER_TITLES
        questions.append(Question(_id(kind, len(questions)), kind, text, {path: 1}))
    return questions


def description_questions(wanted: Wanted, described: Mapping[str, Page]) -> list[Question]:
    """The descriptions in pages' frontmatter; one that two pages share, or that stands on its page anyway, is none."""
    bearers: defaultdict[str, list[str]] = defaultdict(list)
    for path, page in described.items():
        bearers[asked_plainly(page.metadata.description or "")].append(path)
    questions: list[Question] = []
    for text, paths in sorted(bearers.items()):
        fits = len(paths) == 1 and len(text) <= _LONGEST and len(wanted.telling(text)) >= _FEWEST_OF_DESCRIPTION
        if fits and not _copied(text, described[paths[0]].body, wanted.language):
            kind = Kind.DESCRIPTIONS
            questions.append(Question(_id(kind, len(questions)), kind, text, {paths[0]: 1}))
    return questions


def without_description(page: Page) -> Page:
    """The page as it would be had nobody described it."""
    return replace(page, metadata=replace(page.metadata, description=None))


def _fits(wanted: Wanted, text: str) -> bool:
    plain = text.casefold().strip(" .,:;!?")
    return len(text) <= _LONGEST and plain not in _GENERIC and _FEWEST <= len(wanted.telling(text)) <= _MOST


def _copied(text: str, body: str, language: str) -> bool:
    """Whether more than half of each five terms in a row stand so in the body."""
    said = _fives(terms(text, language))
    return 2 * len(said & _fives(terms(body, language))) > len(said) if said else text in body


def _fives(found: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(found[at : at + 5]) for at in range(len(found) - 4)}


def _id(kind: Kind, number: int) -> str:
    return f"{kind}-{number:04}"
