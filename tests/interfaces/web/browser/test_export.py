"""A static export in a browser, opened from its directory and over HTTP: ranking, results, attacks, failures."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.interfaces.web.browser.conftest import QuietHandler
from tests.interfaces.web.browser.test_appearance import run_axe
from tests.support.browser import OpenTab
from tests.support.exported_search import find_parts
from tests.support.git_repository import Repository
from tests.support.html_attacks import ATTACKS
from tests.support.http_server import run_handler
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.interfaces.cli.demo_command import write_demo_wikis
from wikiholt.interfaces.cli.main import main
from wikiholt.search.candidates import find_by_words
from wikiholt.search.ranking import make_candidates, move_named, rank_candidates
from wikiholt.search.request import SearchRequest
from wikiholt.search.title_match import score_titles
from wikiholt.text.analysis import get_analyser
from wikiholt.wikis.export.contents import read_contents
from wikiholt.wikis.export.encoder import SCALE
from wikiholt.wikis.handle import WikiHandle

pytestmark = pytest.mark.model

URL = "https://wiki.example.org/{path}"
SEARCH = """async ([query, mode, limit]) => {
  const found = await document.querySelector("script[src$='wikiholt.js']").search(query, { mode, limit });
  return found.results;
}"""
QUERIES = [
    "ledger error codes",
    "restore the database",
    "backup",
    "how do I restart the gateway",
    "queues",
    "LEDG-4042",
    "on call",
    "who is on call at night",
    "certificates expire",
    "deploying",
    "ledge",
    "/etc/ledger/ledger.toml",
    "database -backup",
    "ledger's database",
    "runbook",
    "xyzzy",
]
MANY_LANGUAGES = {
    "Café.md": "# Café Müller\n\nDie Öffnungszeiten des Cafés: von acht bis zwanzig Uhr. Häuser und Bücher.\n",
    "Tokyo.md": "# 東京\n\n東京の図書館は朝九時に開きます。本を借りることができます。\n",
    "Code/getUserName.md": "# getUserName\n\nCall `getUserName()` with /etc/passwd and C++ or C#, see node_modules.\n",
    "Greek.md": "# Αθήνα\n\nΗ βιβλιοθήκη ανοίγει στις εννέα. Οι δρόμοι της πόλης.\n",
}
WORDS = [
    "Café",
    "cafes",
    "cafés",
    "Häuser",
    "Bucher",
    "図書館",
    "本",
    "getUserName",
    "user",
    "C++",
    "C#",
    "node_modules",
    "βιβλιοθήκη",
    "δρόμος",
    "Öffnungszeiten",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


def make_attack(number: int, attack: str) -> tuple[str, str]:
    """A page with an attack in its path, title, tag, heading and text."""
    name = f"Attack {number} {re.sub('[^a-z]', '', attack)[:20]}.md"
    title, tag = attack.replace("'", "''"), attack.replace("'", "")
    return name, f"---\ntitle: '{title}'\ntags: ['{tag}']\n---\n# {attack}\n\nHeron {number}: {attack}\n"


@pytest.fixture(scope="module")
def handle(place: Path) -> Iterator[WikiHandle]:
    """The demo's runbook, which is exported to `runbook`; and pages in many languages and with attacks."""
    write_demo_wikis(place / "demo")
    attacks = dict(make_attack(n, attack) for n, attack in enumerate(ATTACKS))
    for name, pages in (("languages", MANY_LANGUAGES), ("attacks", attacks)):
        Repository(place / "demo" / name).commit(pages)
    data = ["--data", str(place / "data")]
    for name in ("runbook", "languages", "attacks"):
        assert main([*data, "add", name, str(place / "demo" / name)]) == 0
        assert main([*data, "export", str(place / name), "-w", name, "--url", URL, "--quiet"]) == 0
    service = open_service(place / "data")
    yield service.get_handle("runbook")
    service.close()


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, handle: WikiHandle, place: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"{place.as_uri()}/"
        return
    with run_handler(partial(QuietHandler, directory=str(place))) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(handle: WikiHandle, place: Path, visit: OpenTab) -> Page:
    return visit((place / "runbook" / "index.html").as_uri(), wait="wikiholt-search").page


def ask(page: Page, query: str, mode: str = "hybrid", limit: int = 10) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(SEARCH, [query, mode, limit])
    return found


def test_a_search_shows_title_heading_and_marks_and_links_to_the_page(address: str, visit: OpenTab) -> None:
    tab = visit(f"{address}runbook/index.html", wait="wikiholt-search input", expected=("favicon",))
    box = tab.page.get_by_role("combobox", name="Search")
    box.fill("ledger error codes")
    options = tab.page.get_by_role("option")
    expect(options.first).to_contain_text("Error codes")
    expect(tab.page.get_by_role("group").first).to_contain_text("Ledger")
    assert options.first.locator("mark").count() > 0
    expect(options.first).to_have_attribute("href", "https://wiki.example.org/Services/Ledger#error-codes")
    assert run_axe(tab.page) == []
    # A question in other words: no page has "broke", "money" and "messages" together.
    box.fill("the wording that we show when a card payment is declined")
    expect(options.first).to_be_visible()
    box.fill("qqqzzz")
    expect(tab.page.get_by_role("status")).to_contain_text("Nothing found for “qqqzzz”.")


def test_a_query_in_the_address_is_searched(page: Page, place: Path, visit: OpenTab) -> None:
    tab = visit((place / "runbook" / "index.html").as_uri() + "?q=ledger%20error", wait="wikiholt-search a")
    expect(tab.page.get_by_role("combobox")).to_have_value("ledger error")


@pytest.mark.parametrize("query", QUERIES)
def test_words_are_ranked_as_the_index_ranks_them(page: Page, handle: WikiHandle, query: str) -> None:
    expected = [hit.path for hit in handle.search(SearchRequest(query, 10, SearchMode.KEYWORD)).hits]
    found = [hit["path"] for hit in ask(page, query, "keyword")]
    if handle.search(SearchRequest(query, 1, SearchMode.KEYWORD)).did_you_mean:
        return  # an export corrects no typo
    assert found == expected


def test_most_first_hits_are_those_of_the_hybrid_search(page: Page, handle: WikiHandle) -> None:
    same = 0
    for query in QUERIES:
        found = [hit["path"] for hit in ask(page, query, limit=1)]
        same += found == [hit.path for hit in handle.search(SearchRequest(query, 1)).hits]
    assert same >= len(QUERIES) - 3


def rank_in_python(handle: WikiHandle, query: str) -> list[str]:
    """The pages as the ranking of the product orders them by the numbers of the export."""
    with handle.open_snapshot() as snapshot:
        searcher = snapshot.live_index.searcher
        contents = read_contents(snapshot.live_index.index, handle.pages.get_pipeline())
        reader = searcher._open_reader(None)
        meant = searcher._interpreter.interpret(SearchRequest(query), lambda _: True)
        words = find_by_words(reader, meant)
        ids = [each.page.page_id for each in contents.pages]
        titles = score_titles("english", meant.words, meant.variants, reader.view.get_pages(ids))
    encoder = contents.encoder
    numbers = [
        contents.terms[term]
        for term in dict.fromkeys(get_analyser("english").to_terms(meant.text))
        if term in contents.terms
    ]
    known = [number for number in numbers if encoder.term_scales[number] > 0]
    scales = np.exp((np.round(np.log(encoder.term_scales[known]) * 16)) / 16)
    vector = (encoder.terms[known] * scales[:, None]).sum(axis=0)
    parts = encoder.parts / np.linalg.norm(encoder.parts, axis=1, keepdims=True)
    cosines = parts @ vector / np.linalg.norm(vector)
    rows = make_candidates(
        ids,
        share=[words.shares.get(page, np.nan) for page in ids],
        chunks=[each.page.chunks for each in contents.pages],
    )
    for row, page in enumerate(ids):
        own = encoder.part_pages == row
        rows["distance"][row] = 1 - cosines[own].max()
        mean = parts[own].sum(axis=0)
        rows["page_cosine"][row] = mean @ vector / np.linalg.norm(mean) / np.linalg.norm(vector)
        if titles:
            rows["overlap"][row], rows["title_share"][row], _ = titles[page]
    ranked = move_named(rank_candidates(SearchMode.HYBRID, rows, meant.shape, SCALE), words.named)
    paths = {each.page.page_id: each.page.path for each in contents.pages}
    return [paths[page] for page in ranked["page_id"].tolist()]


@pytest.mark.parametrize(
    "query",
    ["ledger error codes", "how do I restart the gateway", "backup", "who is on call at night", "certificates expire"],
)
def test_meaning_and_words_are_ranked_as_the_product_ranks_them(page: Page, handle: WikiHandle, query: str) -> None:
    assert [hit["path"] for hit in ask(page, query, limit=5)] == rank_in_python(handle, query)[:5]


def test_words_of_every_script_have_the_terms_of_the_index(handle: WikiHandle, place: Path, visit: OpenTab) -> None:
    tab = visit((place / "languages" / "index.html").as_uri(), wait="wikiholt-search")
    analyser = get_analyser("english")
    for word in WORDS:
        expected = {
            path
            for path, text in MANY_LANGUAGES.items()
            if set(analyser.to_field_text(word).split()) & set(analyser.to_field_text(text).split())
        }
        found = {f"{hit['path']}.md" for hit in ask(tab.page, word, "keyword")}
        assert found == expected, word


def test_fields_and_exclusions_narrow_the_search(page: Page, handle: WikiHandle) -> None:
    for query in (
        "path:Services database",
        "database -ledger",
        "title:ledger",
        "-path:Services database",
        "tag:oncall night",
    ):
        expected = {hit.path for hit in handle.search(SearchRequest(query, 50, SearchMode.KEYWORD)).hits}
        assert {hit["path"] for hit in ask(page, query, "keyword", 50)} == expected, query


def test_quoted_words_must_all_be_on_the_page_and_it_says_so(page: Page) -> None:
    page.get_by_role("combobox").fill('"error codes"')
    expect(page.get_by_role("status")).to_contain_text("their order is not checked")
    for hit in ask(page, '"error codes"'):
        assert hit["path"]


def test_no_attack_runs_or_becomes_an_element(address: str, visit: OpenTab) -> None:
    tab = visit(f"{address}attacks/index.html?q=heron", wait="wikiholt-search a", expected=("favicon",))
    tab.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    box = "document.querySelector('wikiholt-search').shadowRoot"
    shown = f"() => [...{box}.querySelectorAll('*')].map((each) => each.localName)"
    known = {"style", "div", "dialog", "input", "button", "p", "a", "span", "mark", "small"}
    for query in (
        "heron",
        "script alert",
        "img onerror",
        "javascript",
        "tag:script heron",
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
    ):
        tab.page.get_by_role("combobox").fill(query)
        expect(tab.page.get_by_role("option").first).to_be_visible()
        assert set(tab.page.evaluate(shown)) <= known
        for link in tab.page.get_by_role("option").all():
            assert (link.get_attribute("href") or "").startswith("https://wiki.example.org/Attack%20")


def test_a_missing_file_is_said_and_the_next_search_works(handle: WikiHandle, place: Path, visit: OpenTab) -> None:
    vectors = find_parts(place / "runbook") / "vectors.js"
    away = vectors.rename(vectors.with_name("away.js"))
    try:
        tab = visit(
            (place / "runbook" / "index.html").as_uri(),
            wait="wikiholt-search",
            expected=("ERR_FILE_NOT_FOUND",),
            fresh=True,
        )
        tab.page.get_by_role("combobox").fill("ledger")
        expect(tab.page.get_by_role("status")).to_contain_text("A file of the search cannot be loaded.")
    finally:
        away.rename(vectors)
    tab.page.get_by_role("combobox").fill("ledger ")
    tab.page.get_by_role("combobox").fill("ledger error")
    expect(tab.page.get_by_role("option").first).to_be_visible()


def test_the_script_works_as_a_box_on_another_page(handle: WikiHandle, place: Path, visit: OpenTab) -> None:
    (place / "site.html").write_text(
        '<!doctype html><html lang="en"><title>Site</title><script src="runbook/wikiholt.js"></script>'
    )
    tab = visit((place / "site.html").as_uri(), wait="wikiholt-search button")
    tab.page.keyboard.press("Control+k")
    tab.page.keyboard.type("ledger error codes")
    expect(tab.page.get_by_role("option").first).to_contain_text("Error codes")


def test_the_script_is_small(browser: Browser, handle: WikiHandle, place: Path) -> None:
    import gzip

    assert len(gzip.compress((place / "runbook" / "wikiholt.js").read_bytes())) <= 20_000
