"""A real index whose pages have only keywords, and the comparison with its own answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from wikiholt.domain.index import IndexChange, IntArray, PageEntry, Recipe
from wikiholt.domain.page import Page, PageMetadata, PageTerms
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore

WIKI = "wikiwiki"
VOCABULARY = ("disk", "diskette", "discover", "raid", "mirror", "mirrors", "backup", "über", "日本", "c++", "x")


def make_page(file: str, name: str = "", headings: str = "", body: str = "") -> PageEntry:
    hidden = not (name or headings or body)
    parsed = Page(file, file, name or file, PageMetadata(hidden=hidden), (), (), body, 1)
    return PageEntry("0" * 40, parsed, (), (), np.empty((0, 4), np.float32), PageTerms(name, headings, body))


def create_index(root: Path, pages: Iterable[PageEntry] = (), wiki: str = WIKI) -> SqliteIndex:
    index = SqliteStore(root).create(wiki, Recipe("none", 4, "words"))
    index.apply(IndexChange(tuple(pages)))
    return index


def make_random_pages(count: int, seed: int = 0, start: int = 0) -> list[PageEntry]:
    """Pages with a realistic word distribution: few common words, many rare ones."""
    rng = np.random.default_rng(seed)

    def some(most: int) -> str:
        ranks = rng.zipf(1.3, rng.integers(0, most)) % 300
        return " ".join(f"{VOCABULARY[rank % len(VOCABULARY)]}{rank // len(VOCABULARY) or ''}" for rank in ranks)

    return [make_page(f"p{start + at}", some(4), some(8), some(60)) for at in range(count)]


def open_cache(index: SqliteIndex, root: Path, **options: object) -> FileKeywordCache:
    chosen = {"background": False, **options}
    cache = FileKeywordCache(index, root / WIKI, **chosen)  # type: ignore[arg-type]
    cache.refresh()
    return cache


def list_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / WIKI).glob("*.keywords*"))


def assert_same_hits(ours: Sequence[KeywordHit], theirs: Sequence[KeywordHit]) -> None:
    assert [hit.page_id for hit in ours] == [hit.page_id for hit in theirs]
    assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], rel=1e-12)


QUERIES = (
    KeywordQuery(("disk",)),
    KeywordQuery(("disk", "raid", "mirror1", "nowhere")),
    KeywordQuery(("disk", "disk", "x")),
    KeywordQuery(("raid", "dis"), prefix="dis"),
    KeywordQuery(("disk",), prefix="disk"),
    KeywordQuery(prefix="m"),
    KeywordQuery(prefix="über"),
    KeywordQuery(("日本", "c++")),
    KeywordQuery(("backup", "mirr"), prefix="mirr"),
    KeywordQuery(("nowhere",), prefix="zz"),
    KeywordQuery(),
)


def assert_agree(cache: FileKeywordCache, index: SqliteIndex, limits: Iterable[int] = (1, 5, 300)) -> None:
    """Every query gives the index's result, at the index's version."""
    assert cache.version == index.get_version()
    for query in QUERIES:
        for limit in limits:
            assert_same_hits(cache.search(query, limit, None), index.search_keywords(query, limit, PageFilter()))
        assert cache.count_pages(query.terms) == index.count_pages(query.terms)


def get_page_ids(index: SqliteIndex) -> Mapping[str, int]:
    found = {file: index.find_page(file) for file in index.get_page_blobs()}
    return {file: stored.page_id for file, stored in found.items() if stored is not None}


def make_id_array(some: Iterable[int]) -> IntArray:
    return np.array(sorted(some), np.int64)
