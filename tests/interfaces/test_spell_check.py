"""Spelling corrections on the command line, over HTTP and on the noscript page. Queries are never markup."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from lxml import html

from tests.search.spell_check_fixtures import PAGES
from tests.support.git_repository import Repository
from tests.support.served_application import ServedApplication, serve_application
from wikiholt.api.documents.search_documents import format_did_you_mean
from wikiholt.interfaces.cli.main import main
from wikiholt.search.spell_check import find_replaced_words, format_as_typed

SUGGESTION_XPATH = "//p[@class='correction']"
HOSTILE = "pritner <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("slips"), {"serve.public": True}) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: ServedApplication) -> TestClient:
    return served.make_client("read")


@pytest.mark.parametrize("address", ["search", "semantic-search"])
def test_the_http_answer_has_the_correction_and_the_query_as_typed(client: TestClient, address: str) -> None:
    document = client.get(f"/api/v1/{address}", params={"q": "the pritner drum"}).json()
    assert (document["query"], document["did_you_mean"]) == ("the pritner drum", "the printer drum")
    assert document["results"]
    assert document["as_typed"] == "the +pritner drum"
    again = client.get(f"/api/v1/{address}", params={"q": document["as_typed"]}).json()
    assert (again["did_you_mean"], again["as_typed"]) == (None, None)


def test_openapi_describes_the_correction_fields(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["SearchResultDocument"]["properties"]
    assert schema["did_you_mean"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert "as_typed" in schema


def test_words_of_another_wiki_are_not_suggested(served: ServedApplication) -> None:
    other = served.make_client("other").get("/api/v1/search", params={"q": "alphacanray"})
    assert other.json()["did_you_mean"] is None
    own = served.make_client("read").get("/api/v1/search", params={"q": "alphacanray"})
    assert own.json()["did_you_mean"] == "alphacanary"


def test_the_noscript_page_shows_the_correction_as_text_with_a_link_to_the_original(client: TestClient) -> None:
    page = html.fromstring(client.get("/w/alpha/find", params={"q": HOSTILE, "mode": "keyword"}).text)
    (suggestion,) = page.xpath(SUGGESTION_XPATH)
    assert not page.xpath("//img")
    assert suggestion.xpath("strong")[0].text_content() == HOSTILE.replace("pritner", "printer")
    (link,) = suggestion.xpath("a")
    assert link.text_content() == f"Search for {HOSTILE}"
    address = urlsplit(link.get("href"))
    assert address.path == "find"
    assert parse_qs(address.query) == {"q": [f"+{HOSTILE}"], "mode": ["keyword"]}
    assert not html.fromstring(client.get("/w/alpha/find", params={"q": "printer"}).text).xpath(SUGGESTION_XPATH)


@pytest.mark.parametrize(
    ("typed", "corrected", "exactly", "words"),
    [
        ("the pritner", "the printer", "the +pritner", ["pritner"]),
        ("hedge hog here", "hedgehog here", "+hedge +hog here", ["hedge", "hog"]),
        ("coffeemachine", "coffee machine", "+coffeemachine", ["coffeemachine"]),
        ('"rear flap" (pritner) -toner', '"rear flap" (printer) -toner', '"rear flap" (+pritner) -toner', ["pritner"]),
        ("printer", "", "printer", []),
    ],
)
def test_replaced_words_are_found_from_the_correction(
    typed: str, corrected: str, exactly: str, words: list[str]
) -> None:
    assert format_as_typed(typed, corrected) == exactly
    assert [typed[start:end] for start, end in find_replaced_words(typed, corrected)] == words


def test_the_notice_names_every_word_once() -> None:
    notice = format_did_you_mean("pritner pritner tonner", "a b c")
    assert notice == "Showing results for “a b c”; no page contains “pritner” or “tonner”."


@pytest.mark.model
def test_the_command_line_shows_the_correction_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiki = Repository(tmp_path / "wiki")
    wiki.commit(PAGES)
    data = ("--data", str(tmp_path / "data"))
    assert main([*data, "add", "house", str(wiki.path)]) == 0
    assert main([*data, "sync", "--quiet"]) == 0
    capsys.readouterr()

    def run_search(*arguments: str) -> str:
        assert main([*data, "search", "-w", "house", *arguments]) in {0, 1}, "exit code 1 if nothing was found"
        return capsys.readouterr().out

    lines = run_search("kuberntes replicas").splitlines()
    assert lines[0] == "Showing results for “kubernetes replicas”; no page contains “kuberntes”."
    assert lines[1].startswith("1. Kubernetes")
    document = json.loads(run_search("kuberntes\x1b[31m", "--json"))
    assert document["did_you_mean"] == "kubernetes\x1b[31m"
    assert "\x1b" not in run_search("kuberntes\x1b[31m x")
    assert json.loads(run_search("boat", "--json"))["did_you_mean"] is None
    assert json.loads(run_search("boat", "--mode", "keyword", "--json"))["did_you_mean"] is None
    assert json.loads(run_search("+kuberntes", "--mode", "keyword", "--json"))["did_you_mean"] is None
