"""What a lexicon promises: the terms that living pages hold, and on how many they stand, at every version."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wikiholt.cachefile.faults import CacheNotReady
from wikiholt.model import Change, Metadata, Page, PageEntry, Recipe, Words
from wikiholt.ports import Lexicon
from wikiholt.stores.sqlite.index import SqliteIndex
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.words.cache import PostingsCache
from wikiholt.words.lexicon import Lexicons

TERMS = ("boot", "boots", "root", "reboot", "tür", "haustür", "türen", "замок", "日本", "本", "x", "c++")
FILES = st.integers(0, 8).map(lambda n: f"p{n}")
BODY = st.lists(st.sampled_from(TERMS), min_size=1, max_size=5).map(" ".join)


def page(file: str, body: str) -> PageEntry:
    parsed = Page(file, file, file, Metadata(), (), (), body, 1)
    return PageEntry("0" * 40, parsed, (), (), np.empty((0, 4), np.float32), Words("", "", body))


PAGES = st.lists(st.builds(page, FILES, BODY), max_size=6, unique_by=lambda entry: entry.page.file)
EDITS = st.lists(st.tuples(PAGES, st.lists(FILES, max_size=3)), max_size=3)


def new_index(root: Path) -> SqliteIndex:
    return SqliteStore(root).create("wikiwiki", Recipe("none", 4, "words"))


def assert_holds(lexicon: Lexicon | None, bodies: dict[str, str]) -> None:
    assert lexicon is not None
    held = {term: sum(term in body.split() for body in bodies.values()) for term in TERMS}
    assert {term: lexicon.pages(term) for term in TERMS} == held
    living = {term for term, pages in held.items() if pages}
    for part in ("boot", "t", "ür", "本", "ок", "zz", "бо"):
        assert sorted(lexicon.ending_with(part, 99)) == sorted(term for term in living if term.endswith(part))
        assert sorted(lexicon.beginning_with(part, 99)) == sorted(term for term in living if term.startswith(part))
        some = range(4, 6)
        fitting = sorted(term for term in living if term.endswith(part) and len(term) in some)
        assert sorted(lexicon.ending_with(part, 99, some)) == fitting


@settings(max_examples=12, deadline=None)
@given(edits=EDITS)
def test_a_lexicon_holds_the_terms_of_living_pages_whatever_was_edited_and_deleted(
    edits: list[tuple[list[PageEntry], list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        index = new_index(Path(name))
        cache = PostingsCache(index, Path(name) / "wikiwiki", background=False)
        cached, built = Lexicons(index, cache), Lexicons(index, None)
        bodies: dict[str, str] = {}
        for put, dropped in edits:
            index.apply(Change(tuple(put), tuple(dropped)))
            bodies.update((entry.page.file, entry.words.body) for entry in put)
            for file in set(dropped) - {entry.page.file for entry in put}:
                bodies.pop(file, None)
            assert_holds(cached(), bodies)
            assert_holds(built(), bodies)  # at first what the index says, then what was built of it
        cache.close()
        index.close()


def test_no_more_terms_are_given_than_asked_for(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.apply(Change((page("a", "boot reboot root boots"),)))
    lexicon = Lexicons(index, None)()
    assert lexicon is not None
    assert len(lexicon.ending_with("oot", 2)) == 2
    assert lexicon.beginning_with("boot", 1) == ["boot"]
    index.close()


def test_of_many_terms_with_an_ending_those_on_most_pages_are_given_however_they_are_kept(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    many = [f"{a}{b}boot" for a in "abcdefghij" for b in "klmnopqrst"]
    cache = PostingsCache(index, tmp_path / "wikiwiki", background=False)
    index.apply(Change((page("a", " ".join(many)), page("b", "zzboot yyboot"), page("c", "zzboot"))))
    cache.refresh()
    index.apply(Change((page("d", "zzboot xxboot"), page("e", "xxboot yyboot xxboot"), page("f", "xxboot"))))
    for lexicon in (Lexicons(index, cache)(), Lexicons(index, None)()):
        assert lexicon is not None
        assert list(lexicon.ending_with("boot", 4)) == ["xxboot", "zzboot", "yyboot", "akboot"]
    cache.close()
    index.close()


def test_a_lexicon_that_cannot_be_had_says_so_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = new_index(tmp_path)
    index.apply(Change((page("a", "boot"),)))
    closed = PostingsCache(index, tmp_path / "wikiwiki", background=False)
    closed.close()
    with pytest.raises(CacheNotReady):
        Lexicons(index, closed)()

    def away(_: SqliteIndex) -> None:
        raise OSError("the disk is away")

    lexicons = Lexicons(index, None)
    with monkeypatch.context() as broken:
        broken.setattr(SqliteIndex, "version", away)
        broken.setattr(SqliteIndex, "word_rows", away)
        unread = lexicons()
        assert unread is not None
        assert unread.pages("boot") == 1
        assert not unread.ending_with("oot", 9)
        assert not unread.beginning_with("b", 9)
    assert_holds(lexicons(), {"a": "boot"})
    index.close()
