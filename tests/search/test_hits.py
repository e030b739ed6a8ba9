"""The chunk of a page that a hit shows: matched like in the keyword index, at a bounded cost."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.support.indexed_wiki import IndexedWiki
from wikiholt.domain.git import Blob
from wikiholt.domain.index import CosineScale, IndexChange, PageEntry
from wikiholt.domain.search import Hit, PageFilter, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.candidates import Passage
from wikiholt.search.hits import HitBuilder, choose_passages, count_mentions, get_stems, strip_leading_headings
from wikiholt.search.query import Query
from wikiholt.search.ranking import Candidate
from wikiholt.search.request import SearchRequest
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
        draft = pipeline.prepare(PageTask("page.md", Blob("b" * 40, 1, markdown.encode()), None), embedder)
        assert isinstance(draft, PreparedPage)
        vectors = embedder.embed_passages(draft.texts)
        index.apply(IndexChange((PageEntry(draft.blob, draft.page, draft.chunks, draft.hashes, vectors, draft.terms),)))
        query = parse_query(typed)
        (found,) = index.search_keywords(query, 5, PageFilter())
        candidates = [Candidate(found.page_id, keyword_share=1.0, channels=("keyword",))]
        asked = Query(SearchRequest(typed), query, query)
        shown = choose_passages(index, asked, candidates, index.get_pages([found.page_id]), {}, CosineScale())
        (hit,) = HitBuilder("{path}", "english").build(asked, shown, None)
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


def test_a_query_without_a_word_has_no_mentions() -> None:
    assert get_stems(parse_query("!!!")) == ()
    assert count_mentions("anything", ()) == 0


def test_a_snippet_does_not_begin_with_the_headings_named_beside_it() -> None:
    assert strip_leading_headings("# Coffee\n\n## Descaling\n\nRun it monthly.") == "Run it monthly."
    assert strip_leading_headings("Text first.\n\n# Then a heading") == "Text first.\n\n# Then a heading"
    assert strip_leading_headings("# Only\n## Headings") == "# Only\n## Headings"
    assert strip_leading_headings("#hashtag is no heading") == "#hashtag is no heading"


def make_chunk(chunk_id: int, text: str) -> StoredChunk:
    return StoredChunk(chunk_id, 1, chunk_id, text, (), "", 1, 1)


class ChunkIndex:
    """An index of one page that has only chunks."""

    def __init__(self, *texts: str) -> None:
        self._chunks = {number: make_chunk(number, text) for number, text in enumerate(texts, 1)}

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        return {chunk_id: self._chunks[chunk_id] for chunk_id in chunk_ids if chunk_id in self._chunks}

    def get_page_chunks(self, page_ids: Sequence[int], limit: int) -> Mapping[int, Sequence[StoredChunk]]:
        return {page_id: list(self._chunks.values())[:limit] for page_id in page_ids}


def choose_chunks(
    typed: str,
    shown: Sequence[Candidate],
    nearest: Mapping[int, Sequence[Passage]],
    *texts: str,
    hits_per_page: int = 1,
) -> list[tuple[Candidate, StoredChunk]]:
    """The candidates of pages that all have the same chunks, each with the chunk to show."""
    pages = {
        candidate.page_id: StoredPage(candidate.page_id, "p.md", "p", "Page", None, (), None, len(texts))
        for candidate in shown
    }
    words = parse_query(typed)
    query = Query(SearchRequest(typed, chunks_per_page=hits_per_page), words, words)
    index = cast(WikiIndex, ChunkIndex(*texts))
    chosen = choose_passages(index, query, shown, pages, nearest, CosineScale())
    return [(row.candidate, row.chunk) for row in chosen if row.chunk]


def choose(typed: str, distances: Sequence[float], *texts: str) -> str:
    near = [Passage(number, distance) for number, distance in enumerate(distances, 1)]
    shown = Candidate(1, near[0].chunk_id, near[0].distance, 0.5) if near else Candidate(1)
    ((_, chunk),) = choose_chunks(typed, [shown], {1: near} if near else {}, *texts)
    return chunk.text


def test_the_passage_is_chosen_by_words_and_meaning_together() -> None:
    texts = ("The pump stands in the cellar.", "The pump was bought in 1998.", "Unrelated words.")
    assert choose("when was the pump bought ", (0.30, 0.33, 0.9), *texts) == texts[1]
    assert choose("where is the pump ", (0.30, 0.35, 0.9), *texts) == texts[0]
    assert choose("when was the pump bought ", (0.05, 0.80, 0.9), *texts) == texts[0]


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    texts = ("pump filter", "pump zeolite", "pump filter oil")
    assert choose("filter zeolite ", (0.4, 0.4, 0.4), *texts) == texts[1]
    assert choose("pump filter zeolite ", (), *texts) == texts[1]


def test_more_passages_of_the_first_hit_are_compared() -> None:
    texts = ("pump", "pump", "pump", "pump", "pump zeolite")
    near = {page_id: [Passage(number, 0.4) for number in range(1, 6)] for page_id in (1, 2)}
    shown = [Candidate(page_id, 1, 0.4, 0.5) for page_id in near]
    chosen = choose_chunks("pump zeolite ", shown, near, *texts)
    assert [chunk.text for _, chunk in chosen] == ["pump zeolite", "pump"]


def test_among_passages_that_are_hits_the_best_of_a_page_comes_first() -> None:
    texts = ("pump", "pump", "pump zeolite", "zeolite", "zeolite")
    hits = [Candidate(1, number, 0.3 + number / 40, 0.5, likelihood=1 - number / 8) for number in range(1, 4)]
    other = Candidate(2, 4, 0.3, 0.5, likelihood=0.7)
    near = {1: [Passage(number, 0.3 + number / 40) for number in range(1, 4)], 2: [Passage(4, 0.3)]}
    shown = [hits[0], hits[1], other, hits[2]]
    for count in range(1, len(shown) + 1):
        chosen = choose_chunks("pump zeolite ", shown[:count], near, *texts, hits_per_page=3)
        assert [chunk.number for _, chunk in chosen] == [3, 2, 4, 1][:count], "n only lengthens the list"
        assert [candidate.chunk_id for candidate, _ in chosen] == [3, 2, 4, 1][:count]
        assert [candidate.distance for candidate, _ in chosen] == pytest.approx([0.375, 0.35, 0.3, 0.325][:count])
        assert [candidate.likelihood for candidate, _ in chosen] == [0.875, 0.75, 0.7, 0.625][:count]


def test_words_with_one_stem_count_once() -> None:
    assert get_stems(parse_query("http https ")) == ("http",)


def test_names_and_headings_have_their_matches(show: Show) -> None:
    page = f"# Coffee machine\n\n{FILLER}\n\n## Descaling of the machine\n\nDescale it monthly. {FILLER}\n"
    hit = show(page, "descale machine ")
    assert hit.heading_path == ("Coffee machine", "Descaling of the machine")
    marked = [
        [heading[s.start : s.end] for s in spans]
        for heading, spans in zip(hit.heading_path, hit.heading_matches, strict=True)
    ]
    assert marked == [["machine"], ["Descaling", "machine"]]
    assert [hit.name[s.start : s.end] for s in hit.name_matches] == ["machine"]


def test_the_first_of_several_passages_of_a_page_is_the_one_shown_alone(tmp_path: Path) -> None:
    page = "# Machines\n\n" + "\n\n".join(
        f"## {title}\n\n{text} {FILLER}"
        for title, text in (("Pump", "The pump, the pump."), ("Oil", "Oil."), ("Filter", "The zeolite pump."))
    )
    wiki = IndexedWiki(tmp_path, {"machines.md": page, "other.md": "# Other\n\nNothing of note."}).sync()
    for query in ("pump", "zeolite", "oil", "zeolite pump", "filter oil"):
        alone = wiki.handle.search(SearchRequest(query, 1)).hits[0]
        for n in (1, 2, 6):
            hits = wiki.handle.search(SearchRequest(query, n, chunks_per_page=3)).hits
            shown = [(hit.path, hit.chunk_index) for hit in hits]
            assert shown[0] == (alone.path, alone.chunk_index)
            assert len(set(shown)) == len(shown)
    wiki.close()
