"""Search in several wikis over HTTP: which keys it needs, what it returns, and what it refuses."""

import pytest
from starlette.testclient import TestClient

from tests.support.served_application import ServedApplication
from wikiholt.errors import StorageError
from wikiholt.wikis.handle import WikiHandle


def make_client(served: ServedApplication, *keys: str) -> TestClient:
    token = ",".join(served.tokens.get(key, key) for key in keys)
    return TestClient(served.app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("keys", [("operator",), ("read", "other"), ("other", "read", "read")])
def test_hits_of_all_wikis_are_merged_by_score(shared: ServedApplication, keys: tuple[str, ...]) -> None:
    answer = make_client(shared, *keys).get("/api/v1/search", params={"q": "printer", "n": 100})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    document = answer.json()
    assert set(document["wikis"]) == {"alpha", "beta"} == {hit["wiki"] for hit in document["results"]}
    scores = [hit["score"] for hit in document["results"]]
    assert scores == sorted(scores, reverse=True)
    single = make_client(shared, "read").get("/api/v1/search", params={"q": "printer", "n": 100}).json()
    assert (single["wikis"], {hit["wiki"] for hit in single["results"]}) == ([], {None})
    of_alpha = [hit["path"] for hit in document["results"] if hit["wiki"] == "alpha"]
    assert of_alpha == [hit["path"] for hit in single["results"]]


def test_the_number_of_hits_is_that_of_all_wikis_together(shared: ServedApplication) -> None:
    assert make_client(shared, "operator").get("/api/v1/search", params={"q": "printer", "n": 2}).json()["total"] == 2


@pytest.mark.parametrize("keys", [("operator",), ("read", "other")])
def test_wikis_can_be_named(shared: ServedApplication, keys: tuple[str, ...]) -> None:
    client = make_client(shared, *keys)
    only = client.get("/api/v1/search", params={"q": "home", "wiki": "beta"}).json()
    assert only["indexed_revision"] == shared.beta.get_head()
    assert client.get("/api/v1/search", params={"q": "home", "wiki": ["beta", "alpha"]}).json()["wikis"] == [
        "beta",
        "alpha",
    ]


@pytest.mark.parametrize(
    ("keys", "params", "status", "code"),
    [
        (("read",), {"wiki": "beta"}, 403, "forbidden"),
        (("read",), {"wiki": "no-such"}, 403, "forbidden"),
        (("read", "other"), {"wiki": "no-such"}, 403, "forbidden"),
        (("read", "write"), {"wiki": "beta"}, 403, "forbidden"),
        (("read", "wh_aaaaaaaaaaaa_" + "a" * 40), {}, 401, "unauthorized"),
        (("read", ""), {}, 401, "unauthorized"),
        (("read", *("wh_aaaaaaaaaaaa_" + "a" * 40 + str(n) for n in range(60))), {}, 401, "unauthorized"),
        (("operator",), {"wiki": "Beta"}, 422, "invalid-slug"),
        (("operator",), {"fresh": "true"}, 422, "invalid-query"),
    ],
)
def test_other_requests_are_refused(
    shared: ServedApplication, keys: tuple[str, ...], params: dict[str, str], status: int, code: str
) -> None:
    answer = make_client(shared, *keys).get("/api/v1/search", params={"q": "home", **params})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["hint"]


def test_a_key_that_is_sent_twice_is_one_key(shared: ServedApplication) -> None:
    twice = make_client(shared, "read", "read").get("/api/v1/search", params={"q": "home"})
    once = make_client(shared, "read").get("/api/v1/search", params={"q": "home"})
    assert twice.json()["results"] == once.json()["results"]


def test_a_list_of_keys_is_no_key_for_any_other_route(shared: ServedApplication) -> None:
    client = make_client(shared, "read", "other")
    for path in ("/api/v1/pages", "/api/v1/semantic-search?q=x", "/w/alpha/api/v1/search?q=x", "/api/v1/wikis"):
        assert client.get(path).status_code == 401, path


def test_a_wiki_that_fails_is_named_and_the_others_answer(
    shared: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = WikiHandle.search

    def fail(self: WikiHandle, *arguments: object, **options: object) -> object:
        if self.wiki.slug == "beta":
            raise StorageError("/secret/place is full", hint="")
        return search(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(WikiHandle, "search", fail)
    document = make_client(shared, "operator").get("/api/v1/search", params={"q": "printer"}).json()
    assert {hit["wiki"] for hit in document["results"]} == {"alpha"}
    assert document["degraded"]
    assert any(note.startswith("beta was not searched: ") for note in document["notes"])
    assert "secret" not in str(document)


def test_too_many_wikis_have_to_be_named(shared: ServedApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikiholt.interfaces.http.request_context.MAX_WIKIS_PER_SEARCH", 1)
    client = make_client(shared, "operator")
    refused = client.get("/api/v1/search", params={"q": "home"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-query")
    assert "wiki=SLUG" in refused.json()["hint"]
    assert client.get("/api/v1/search", params={"q": "home", "wiki": "beta"}).status_code == 200
