"""A lexicon has the terms of the current pages, with their page counts, at every version."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.page import Page, PageMetadata, PageTerms
from wikiholt.domain.protocols import Lexicon
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.keywords.lexicon import LexiconProvider
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore

TERMS = ("boot", "boots", "root", "reboot", "tür", "haustür", "türen", "замок", "日本", "本", "x", "c++")
FILES = st.integers(0, 8).map(lambda n: f"p{n}")
BODY = st.lists(st.sampled_from(TERMS), min_size=1, max_size=5).map(" ".join)


def make_page(file: str, body: str) -> PageEntry:
    parsed = Page(file, file, file, PageMetadata(), (), (), body, 1)
    return PageEntry("0" * 40, parsed, (), (), np.empty((0, 4), np.float32), PageTerms("", "", body))


PAGES = st.lists(st.builds(make_page, FILES, BODY), max_size=6, unique_by=lambda entry: entry.page.file)
EDITS = st.lists(st.tuples(PAGES, st.lists(FILES, max_size=3)), max_size=3)


def create_index(root: Path) -> SqliteIndex:
    return SqliteStore(root).create("wikiwiki", Recipe("none", 4, "words"))


def assert_lexicon(lexicon: Lexicon, bodies: dict[str, str]) -> None:
    held = {term: sum(term in body.split() for body in bodies.values()) for term in TERMS}
    assert {term: lexicon.count_pages(term) for term in TERMS} == held
    living = {term for term, pages in held.items() if pages}
    for part in ("boot", "t", "ür", "本", "ок", "zz", "бо"):
        assert sorted(lexicon.find_by_suffix(part, 99)) == sorted(term for term in living if term.endswith(part))
        assert sorted(lexicon.find_by_prefix(part, 99)) == sorted(term for term in living if term.startswith(part))
        some = range(4, 6)
        fitting = sorted(term for term in living if term.endswith(part) and len(term) in some)
        assert sorted(lexicon.find_by_suffix(part, 99, some)) == fitting


@settings(max_examples=12, deadline=None)
@given(edits=EDITS)
def test_a_lexicon_has_the_terms_of_the_current_pages_after_any_edits_and_deletions(
    edits: list[tuple[list[PageEntry], list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        index = create_index(Path(name))
        cache = FileKeywordCache(index, Path(name) / "wikiwiki", background=False)
        cached, built = LexiconProvider(index, cache), LexiconProvider(index, None)
        bodies: dict[str, str] = {}
        for put, dropped in edits:
            index.apply(IndexChange(tuple(put), tuple(dropped)))
            bodies.update((entry.page.file, entry.terms.body) for entry in put)
            for file in set(dropped) - {entry.page.file for entry in put}:
                bodies.pop(file, None)
            assert_lexicon(cached(), bodies)
            assert_lexicon(built(), bodies)  # first read from the index, then from the built cache
        cache.close()
        index.close()


def test_no_more_terms_are_returned_than_requested(tmp_path: Path) -> None:
    index = create_index(tmp_path)
    index.apply(IndexChange((make_page("a", "boot reboot root boots"),)))
    lexicon = LexiconProvider(index, None)()
    assert len(lexicon.find_by_suffix("oot", 2)) == 2
    assert lexicon.find_by_prefix("boot", 1) == ["boot"]
    index.close()


def test_of_many_terms_with_a_suffix_the_most_frequent_are_returned_in_every_layout(tmp_path: Path) -> None:
    index = create_index(tmp_path)
    many = [f"{a}{b}boot" for a in "abcdefghij" for b in "klmnopqrst"]
    cache = FileKeywordCache(index, tmp_path / "wikiwiki", background=False)
    index.apply(
        IndexChange((make_page("a", " ".join(many)), make_page("b", "zzboot yyboot"), make_page("c", "zzboot")))
    )
    cache.refresh()
    index.apply(
        IndexChange((make_page("d", "zzboot xxboot"), make_page("e", "xxboot yyboot xxboot"), make_page("f", "xxboot")))
    )
    for lexicon in (LexiconProvider(index, cache)(), LexiconProvider(index, None)()):
        assert list(lexicon.find_by_suffix("boot", 4)) == ["xxboot", "zzboot", "yyboot", "akboot"]
    cache.close()
    index.close()


def test_the_index_tells_terms_while_the_keyword_file_cannot_answer(tmp_path: Path) -> None:
    index = create_index(tmp_path)
    index.apply(IndexChange((make_page("a", "boot"),)))
    closed = FileKeywordCache(index, tmp_path / "wikiwiki", background=False)
    closed.close()
    lexicon = LexiconProvider(index, closed)()
    assert (lexicon.count_pages("boot"), lexicon.find_by_prefix("bo", 3)) == (1, ["boot"])
    index.close()


def test_a_lexicon_that_cannot_be_read_raises_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = create_index(tmp_path)
    index.apply(IndexChange((make_page("a", "boot"),)))

    def refuse(_: SqliteIndex) -> None:
        raise OSError("the disk is away")

    lexicons = LexiconProvider(index, None)
    with monkeypatch.context() as broken:
        broken.setattr(SqliteIndex, "count_terms", refuse)
        unread = lexicons()
        assert unread.count_pages("boot") == 1
        with pytest.raises(OSError, match="away"):
            unread.find_by_suffix("oot", 9)
    assert_lexicon(lexicons(), {"a": "boot"})
    index.close()
