"""Questions over HTTP: the answer, its places, and refused requests."""

import pytest

from tests.support.served_application import ServedApplication
from wikiholt.errors import IndexMissing
from wikiholt.wikis.handle import WikiHandle


def test_an_answer_has_the_closest_pages_and_what_it_was_made_from(shared: ServedApplication) -> None:
    answer = shared.make_client("read").get("/api/v1/ask", params={"q": "is the printer drum worn out"})
    assert answer.status_code == 200
    document = answer.json()
    assert document["question"] == document["query"] == "is the printer drum worn out"
    assert document["answered"] == bool(document["sentences"])
    assert 0 <= document["probability"] <= 1
    assert document["closest"][0]["path"] == "Equipment/Printer"
    assert len({hit["path"] for hit in document["closest"]}) == len(document["closest"]) <= 3
    assert document["indexed_revision"] == document["head_revision"]
    for sentence in document["sentences"]:
        assert sentence["commit"] == document["indexed_revision"]
        assert sentence["line"] <= sentence["last_line"]


def test_a_follow_up_is_asked_with_the_words_of_the_previous_question(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    document = client.get("/api/v1/ask", params={"q": "and why?", "after": "is the printer drum worn"}).json()
    assert document["question"] == "and why?"
    assert {"printer", "drum"} <= set(document["query"].split())
    assert "Equipment/Printer" in {hit["path"] for hit in document["closest"]}


def test_a_filter_restricts_the_pages(shared: ServedApplication) -> None:
    document = shared.make_client("read").get("/api/v1/ask", params={"q": "printer drum", "prefix": "Coffee"}).json()
    assert {hit["path"] for hit in document["closest"]} <= {"Coffee"}


@pytest.mark.parametrize("query", ["", "?q=", "?q=%20", "?q=a&n=3", "?q=a&after=%00", f"?q={'a' * 2001}"])
def test_an_invalid_question_is_refused(shared: ServedApplication, query: str) -> None:
    answer = shared.make_client("read").get(f"/api/v1/ask{query}")
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_a_wiki_that_does_not_exist_and_one_without_an_index_are_errors(
    shared: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shared.make_client("operator")
    answer = client.get("/w/nowhere/api/v1/ask", params={"q": "printer"})
    assert (answer.status_code, answer.json()["code"]) == (404, "wiki-not-found")
    stranger = shared.make_client("other").get("/w/alpha/api/v1/ask", params={"q": "printer"})
    assert stranger.status_code in (401, 403)

    def open_missing(_: WikiHandle) -> None:
        raise IndexMissing("no index in /srv/secret/path")

    monkeypatch.setattr(WikiHandle, "open_snapshot", open_missing)
    answer = client.get("/w/alpha/api/v1/ask", params={"q": "printer"})
    assert (answer.status_code, answer.json()["code"]) == (503, "index-missing")
    assert "secret" not in answer.text
