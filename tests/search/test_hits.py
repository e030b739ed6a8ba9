"""The chunk of a page that a hit shows: matched like in the keyword index, at a bounded cost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from wikiholt.domain.git import Blob
from wikiholt.domain.index import IndexChange, PageEntry
from wikiholt.domain.search import Hit, PageFilter, SearchMode
from wikiholt.indexing.pipeline import PreparedPage, TextPipeline
from wikiholt.search import passages
from wikiholt.search.hits import HitBuilder, strip_leading_headings
from wikiholt.search.passages import PassageChooser, count_mentions, get_stems
from wikiholt.search.ranking import Candidate
from wikiholt.storage.sqlite import rows
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.text.keyword_query import parse_query

FILLER = "A paragraph about nothing in particular that fills its section with words. " * 12

Show = Callable[[str, str], Hit]


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """The one hit of a keyword search in a wiki of one page."""

    def shown(markdown: str, typed: str) -> Hit:
        embedder, pipeline = FakeEmbedder(), TextPipeline()
        index = SqliteStore(tmp_path).create("a" * 20, pipeline.build_recipe(embedder))
        draft = pipeline.prepare("page.md", Blob("b" * 40, 1, markdown.encode()), None, embedder)
        assert isinstance(draft, PreparedPage)
        vectors = embedder.embed_passages(draft.texts)
        index.apply(IndexChange((PageEntry(draft.blob, draft.page, draft.chunks, draft.hashes, vectors, draft.terms),)))
        query = parse_query(typed)
        (found,) = index.search_keywords(query, 5, PageFilter())
        (hit,) = HitBuilder(index, "{path}", "english").build(
            PassageChooser(query),
            SearchMode.KEYWORD,
            [Candidate(found.page_id, keyword_share=1.0, channels=("keyword",))],
        )
        index.close()
        return hit

    return shown


def make_menu_page(line: str) -> str:
    return f"# Page\n\n{FILLER}\n\n## Menu\n\n{line} {FILLER}\n\n## Staff\n\n{FILLER}\n"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("café", "We run a café."),
        ("cafe", "We run a CAFE\u0301."),
        ("Straße", "It is in a STRASSE."),
        ("naive", "How naïve."),
        ("full", "ＦＵＬＬ"),
        ("がく", "入学がくせい"),
        ("ก็", "เขาก็มา"),
        ("한국", "한국어"),
        ("studies", "One study."),
        ('"été dernier"', "L’été dernier."),
    ],
)
def test_the_chunk_with_the_word_is_shown_in_every_spelling(show: Show, typed: str, line: str) -> None:
    hit = show(make_menu_page(line), typed)
    assert hit.anchor == "menu"
    assert hit.first_line >= 5


def test_marks_that_are_not_accents_distinguish_words(show: Show) -> None:
    hit = show(f"# Page\n\nかく {FILLER}\n\n## Menu\n\nがく {FILLER}\n", "がく")
    assert hit.anchor == "menu"


@pytest.mark.slow
def test_a_very_long_page_is_read_only_in_part(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    whole = rows.to_stored_chunk
    monkeypatch.setattr(rows, "to_stored_chunk", lambda row: read.append(row[0]) or whole(row))
    page = "\n\n".join(f"## Part {n}\n\nword{n} {FILLER}" for n in range(passages._MAX_PAGE_CHUNKS + 50))
    assert show(page, "word7 ").anchor == "part-7"
    assert len(read) <= passages._MAX_PAGE_CHUNKS


def test_a_word_beyond_what_is_read_still_gives_a_hit(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "_MAX_PAGE_CHUNKS", 3)
    page = "\n\n".join(f"## Part {n}\n\nword{n} {FILLER}" for n in range(9))
    assert show(page, "word8 ").anchor == "part-0"


def test_a_query_without_a_word_has_no_mentions() -> None:
    assert get_stems(parse_query("!!!")) == ()
    assert count_mentions("anything", ()) == 0


def test_a_snippet_does_not_begin_with_the_headings_named_beside_it() -> None:
    assert strip_leading_headings("# Coffee\n\n## Descaling\n\nRun it monthly.") == "Run it monthly."
    assert strip_leading_headings("Text first.\n\n# Then a heading") == "Text first.\n\n# Then a heading"
    assert strip_leading_headings("# Only\n## Headings") == "# Only\n## Headings"
    assert strip_leading_headings("#hashtag is no heading") == "#hashtag is no heading"
