"""The sentence of a hit that is closest in meaning: in every mode, for every number of hits, in every interface."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.documents.search_documents import build_hit_document, build_result_document, render_snippet
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import Confidence, Hit, SearchMode, SearchResult, Snippet, Span
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import ModelMissing
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.interfaces.cli.hit_output import format_result
from wikiholt.interfaces.cli.output import TerminalStyle
from wikiholt.models import load_embedder
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

WIKI_ID = "cccccccccccccccccccc"
PAGES: dict[str, str | bytes | None] = {
    "Kitchen.md": "# Kitchen\n\nThe machine stands beside the sink. Beans are in the cupboard on the left, and a new "
    "bag is ordered every Monday by the person who opens the last one. Every second week the chalk has to come out: "
    "fill the tank with the powder dissolved in warm water and let it run through. The milk goes into the small "
    "fridge. Cups are washed by everyone who uses them.",
    "Travel.md": "# Travel\n\nTickets are bought at the counter. The company pays for trains and buses. Nobody flies "
    "for less than five hundred kilometres. Keep every receipt until the money is back on your account.",
    "Leave.md": "# Leave\n\nHolidays are written into the calendar on the wall. Ask the others first.",
}


class SentenceFixture:
    """A wiki whose model can be removed."""

    def __init__(self, directory: Path) -> None:
        repository = Repository(directory / "wiki")
        repository.commit(PAGES)
        self.model: Embedder | None = load_embedder(threads=1)
        store = SqliteStore(directory / "data")
        components = Components(
            store,
            self._get_embedder,
            lambda index, wiki_id: None,
            1,
        )
        wiki = Wiki(WIKI_ID, "office", str(repository.path), datetime.now(UTC))
        self.handle = WikiHandle(wiki, WikiConfig(GitSource(repository.path), TextPipeline(), "/{path}"), components)
        self.handle.sync()

    def _get_embedder(self) -> Embedder:
        if self.model is None:
            raise ModelMissing("it is gone", hint="bring it back")
        return self.model


@pytest.fixture(scope="module")
def sentence_wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentenceFixture]:
    made = SentenceFixture(tmp_path_factory.mktemp("office"))
    yield made
    made.handle.close()


def get_closest(hit: Hit) -> str | None:
    span = hit.snippet.sentence
    return None if span is None else hit.snippet.text[span.start : span.end]


def find_hit(answer: SearchResult, name: str) -> Hit:
    return next(hit for hit in answer.hits if hit.name == name)


@pytest.mark.model
def test_a_sentence_without_any_word_of_the_query_is_shown_and_marked(sentence_wiki: SentenceFixture) -> None:
    hit = find_hit(
        sentence_wiki.handle.search(SearchRequest("who pays for airplanes", 3, SearchMode.SEMANTIC)), "Travel"
    )
    assert get_closest(hit) in {
        "The company pays for trains and buses.",
        "Nobody flies for less than five hundred kilometres.",
    }
    kitchen = find_hit(sentence_wiki.handle.search(SearchRequest("dishes cleaned", 3)), "Kitchen")
    assert kitchen.snippet.matches == ()
    assert get_closest(kitchen) == "Cups are washed by everyone who uses them."
    assert kitchen.snippet.text.endswith("who uses them.")


@pytest.mark.model
def test_it_is_the_same_for_every_number_of_hits(sentence_wiki: SentenceFixture) -> None:
    few = sentence_wiki.handle.search(SearchRequest("where do I put the receipts", 1)).hits
    many = sentence_wiki.handle.search(SearchRequest("where do I put the receipts", 3)).hits
    assert [hit.snippet for hit in many[:1]] == [hit.snippet for hit in few]
    assert get_closest(few[0]) == "Keep every receipt until the money is back on your account."


@pytest.mark.model
def test_without_a_model_words_select_the_sentence(sentence_wiki: SentenceFixture) -> None:
    by_words = sentence_wiki.handle.search(SearchRequest("milk", 3, SearchMode.KEYWORD))
    assert get_closest(by_words.hits[0]) == "The milk goes into the small fridge."
    named_only = sentence_wiki.handle.search(SearchRequest("travel", 1, SearchMode.KEYWORD)).hits[0]
    assert (get_closest(named_only), named_only.snippet.matches) == (None, ())
    assert named_only.snippet.text.startswith("Tickets are bought")
    model, sentence_wiki.model = sentence_wiki.model, None
    try:
        degraded = sentence_wiki.handle.search(SearchRequest("milk", 3))
        assert degraded.degraded
        assert degraded.hits[0].snippet == by_words.hits[0].snippet
    finally:
        sentence_wiki.model = model


@pytest.mark.model
def test_documents_give_its_offsets_and_pages_a_class(sentence_wiki: SentenceFixture) -> None:
    hit = sentence_wiki.handle.search(SearchRequest("milk", 1)).hits[0]
    span = hit.snippet.sentence
    assert span is not None
    assert build_hit_document(hit)["sentence"] == [span.start, span.end]
    assert '<span class="closest">The <mark>milk</mark> goes into the small fridge.</span>' in render_snippet(
        hit.snippet
    )
    assert build_hit_document(replace(hit, snippet=Snippet("x")))["sentence"] is None


def test_html_of_a_snippet_is_escaped_and_well_nested() -> None:
    text = "<b>&\"'</b> 😀 <script>x</script> y"
    shown = render_snippet(Snippet(text, (Span(0, 3), Span(11, 15)), Span(2, 13)))
    assert shown == (
        '<mark>&lt;b</mark><span class="closest"><mark>&gt;</mark>&amp;&quot;&#x27;&lt;/b&gt; <mark>😀 </mark></span>'
        "<mark>&lt;s</mark>cript&gt;x&lt;/script&gt; y"
    )
    assert render_snippet(Snippet("a<b")) == "a&lt;b"


def test_a_terminal_shows_it_bright_and_the_rest_dim_on_every_line() -> None:
    text = f"{'Before it. ' * 9}The milk is here. {'After it. ' * 4}".strip()
    at = text.index("The milk")
    snippet = Snippet(text, (Span(at + 4, at + 8),), Span(at, at + 17))
    hit = Hit("N", "p", "u", snippet, 0.1, 0.5, Confidence.LOW, (), (), "", 1, 2, 0, None, (), None)
    answer = build_result_document(
        SearchResult("q", SearchMode.HYBRID, (hit,), 1, 1.0, None, None, False, False, False)
    )
    rows = [row.strip() for row in format_result(answer, TerminalStyle(use_color=True)) if "it." in row]
    assert len(rows) > 1
    assert all(row.startswith("\x1b[2m") and row.endswith("\x1b[0m") for row in rows)
    assert "\x1b[0mThe \x1b[1m\x1b[32mmilk\x1b[0m is here.\x1b[2m After" in " ".join(rows)
    assert not any("\x1b" in row for row in format_result(answer, TerminalStyle(use_color=False)))
