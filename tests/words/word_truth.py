"""A real index whose pages have words and nothing else, and the comparison with what it answers itself."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from wikiholt.model import Change, Filter, Ints, Metadata, Page, PageEntry, Recipe, WordHit, WordQuery, Words
from wikiholt.stores.sqlite.index import SqliteIndex
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.words.cache import PostingsCache

WIKI = "wikiwiki"
VOCABULARY = ("disk", "diskette", "discover", "raid", "mirror", "mirrors", "backup", "über", "日本", "c++", "x")


def page(file: str, name: str = "", headings: str = "", body: str = "") -> PageEntry:
    hidden = not (name or headings or body)
    parsed = Page(file, file, name or file, Metadata(hidden=hidden), (), (), body, 1)
    return PageEntry("0" * 40, parsed, (), (), np.empty((0, 4), np.float32), Words(name, headings, body))


def new_index(root: Path, pages: Iterable[PageEntry] = ()) -> SqliteIndex:
    index = SqliteStore(root).create(WIKI, Recipe("none", 4, "words"))
    index.apply(Change(tuple(pages)))
    return index


def random_pages(count: int, seed: int = 0, start: int = 0) -> list[PageEntry]:
    """Pages whose words are spread as words are: few common, many rare."""
    rng = np.random.default_rng(seed)

    def some(most: int) -> str:
        ranks = rng.zipf(1.3, rng.integers(0, most)) % 300
        return " ".join(f"{VOCABULARY[rank % len(VOCABULARY)]}{rank // len(VOCABULARY) or ''}" for rank in ranks)

    return [page(f"p{start + at}", some(4), some(8), some(60)) for at in range(count)]


def cache_of(index: SqliteIndex, root: Path, **options: object) -> PostingsCache:
    cache = PostingsCache(index, root / WIKI, **{"background": False, **options})  # type: ignore[arg-type]
    cache.refresh()
    return cache


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / WIKI).glob("words-*"))


def assert_same(ours: Sequence[WordHit], theirs: Sequence[WordHit]) -> None:
    assert [hit.page_id for hit in ours] == [hit.page_id for hit in theirs]
    assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], rel=1e-12)


QUERIES = (
    WordQuery(("disk",)),
    WordQuery(("disk", "raid", "mirror1", "nowhere")),
    WordQuery(("disk", "disk", "x")),
    WordQuery(("raid", "dis"), prefix="dis"),
    WordQuery(("disk",), prefix="disk"),
    WordQuery(prefix="m"),
    WordQuery(prefix="über"),
    WordQuery(("日本", "c++"), excluded=(("raid",),)),
    WordQuery(("backup", "mirr"), excluded=(("disk",), ("x",)), prefix="mirr"),
    WordQuery(("nowhere",), prefix="zz"),
    WordQuery(),
)


def assert_agree(cache: PostingsCache, index: SqliteIndex, limits: Iterable[int] = (1, 5, 300)) -> None:
    """Every query gives what the store gives, at the store's version."""
    assert cache.version == index.version()
    for query in QUERIES:
        for limit in limits:
            assert_same(cache.search(query, limit, None), index.words(query, limit, Filter()))


def ids(index: SqliteIndex) -> Mapping[str, int]:
    found = {file: index.find_page(file) for file in index.pages()}
    return {file: stored.page_id for file, stored in found.items() if stored is not None}


def sorted_ids(some: Iterable[int]) -> Ints:
    return np.array(sorted(some), np.int64)
