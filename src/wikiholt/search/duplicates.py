"""Finds the pages and passages of a wiki that are nearly the same."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wikiholt.domain.search import PageFilter, PassagePlace, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.hits import format_page_link, strip_leading_headings
from wikiholt.text.near_duplicates import Wording, WordingGroups, read_wording

_BATCH_PAGES = 64


class DuplicateGroup(NamedTuple):
    """Places on different pages with nearly the same text."""

    text: str
    """The text at the first place."""
    places: Sequence[PassagePlace]


class Duplicates(NamedTuple):
    """What is nearly the same in a wiki, in groups, those of most pages first."""

    pages: Sequence[DuplicateGroup]
    passages: Sequence[DuplicateGroup]
    """Without those whose pages are all in one group of pages."""


class _Texts:
    """Texts with their places, to be grouped."""

    def __init__(self) -> None:
        self._texts: list[tuple[Wording, str, PassagePlace]] = []

    def add(self, text: str, place: PassagePlace) -> None:
        wording = read_wording(strip_leading_headings(text))
        if wording is not None:
            self._texts.append((wording, text, place))

    def list_groups(self) -> list[DuplicateGroup]:
        wordings = WordingGroups(wording for wording, *_ in self._texts)
        by_number: dict[int, tuple[str, dict[str, PassagePlace]]] = {}
        for wording, text, place in self._texts:
            _, places = by_number.setdefault(wordings.add(wording), (text, {}))
            places.setdefault(place.path, place)
        groups = [DuplicateGroup(text, list(places.values())) for text, places in by_number.values()]
        return sorted((group for group in groups if len(group.places) > 1), key=lambda group: -len(group.places))


def find_duplicates(index: WikiIndex, where: PageFilter, link: str) -> Duplicates:
    """The near-duplicates among the pages that pass the filter. `link` is the template of the links to pages."""
    pages, passages = _Texts(), _Texts()
    _, listed = index.list_pages(where, None)
    for start in range(0, len(listed), _BATCH_PAGES):
        batch = listed[start : start + _BATCH_PAGES]
        by_page: Mapping[int, Sequence[StoredChunk]] = index.get_page_chunks([page.page_id for page in batch])
        for page in batch:
            chunks = by_page.get(page.page_id, ())
            for chunk in chunks:
                passages.add(chunk.text, _build_place(page, chunk, chunk, link))
            if chunks:
                pages.add("\n\n".join(chunk.text for chunk in chunks), _build_place(page, chunks[0], chunks[-1], link))
    same_pages = pages.list_groups()
    of_page = {place.path: number for number, group in enumerate(same_pages) for place in group.places}
    return Duplicates(same_pages, [group for group in passages.list_groups() if not _is_within_one(group, of_page)])


def _is_within_one(group: DuplicateGroup, of_page: Mapping[str, int]) -> bool:
    """Whether the pages of this group are all in one group of pages."""
    numbers = {of_page.get(place.path) for place in group.places}
    return len(numbers) == 1 and None not in numbers


def _build_place(page: StoredPage, first: StoredChunk, last: StoredChunk, link: str) -> PassagePlace:
    url = format_page_link(link, page.path, first.anchor)
    return PassagePlace(page.name, page.path, page.file, url, first.first_line, last.last_line)
