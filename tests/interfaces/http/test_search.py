"""Search over HTTP: parameters, responses and rejected requests."""

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S
from wikiholt.git.source import GitSource
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest

LEGACY_FIELDS = {
    "name",
    "path",
    "text",
    "snippet",
    "distance",
    "section",
    "section_path",
    "chunk_index",
    "total_chunks",
}


def test_a_response_has_the_fields_of_both_plugins_and_its_freshness(shared: ServedApplication) -> None:
    answer = shared.make_client("read").get("/api/v1/search", params={"q": "drum worn out"})
    assert answer.status_code == 200
    document = answer.json()
    assert document["query"] == "drum worn out"
    assert document["mode"] == "hybrid"
    assert document["total"] == len(document["results"]) == 3
    assert document["considered"] == 3
    assert document["indexed_revision"] == document["head_revision"] == shared.alpha.get_head()
    assert not document["stale"]
    first = document["results"][0]
    assert first["path"] == "Equipment/Printer"
    assert first["section_path"] == first["section"] == "Printer"
    assert first.keys() >= LEGACY_FIELDS | {"page_word_count", "score"}


def test_semantic_search_returns_pages_once_unless_a_setting_or_the_client_wants_more(tmp_path: Path) -> None:
    long_page = "# Long\n\n" + "\n\n".join(f"## Part {part}\n\n{'printer paper jam flap ' * 25}" for part in range(8))
    with serve_application(tmp_path) as served:
        served.alpha.commit({"Long.md": long_page})
        served.application.service.get_handle("alpha").sync()
        client = served.make_client("read")

        def find(**params: int) -> list[str]:
            answer = client.get("/api/v1/semantic-search", params={"q": "printer paper jam flap", "n": 4, **params})
            return sorted(hit["path"] for hit in answer.json()["results"])

        pages = ["Coffee", "Equipment/Printer", "Home", "Long"]
        assert find() == pages
        assert find(max_chunks_per_page=3).count("Long") == 3
        settings = replace(served.application.settings, search_semantic_chunks_per_page=2)
        served.app.state.application = replace(served.application, settings=settings)
        assert find().count("Long") == 2
        assert find(max_chunks_per_page=1) == pages


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"tag": "kitchen"}, {"Coffee"}),
        ({"tag": ["paper", "repair"]}, {"Equipment/Printer"}),
        ({"category": "Equipment"}, {"Equipment/Printer"}),
        ({"prefix": "Equipment"}, {"Equipment/Printer"}),
        ({"path": "Equipment"}, {"Equipment/Printer"}),
        ({"since": "2100-01-01"}, set()),
        ({"updated_since": "2020-01-01T00:00:00Z"}, {"Coffee", "Equipment/Printer", "Home"}),
        ({"where": "title=printer"}, {"Equipment/Printer"}),
        ({"where": ["tags=paper", "category!=kitchen"]}, {"Equipment/Printer"}),
        ({"where": ["tags=paper", "tags=kitchen"]}, set()),
    ],
    ids=lambda each: str(sorted(each)),
)
def test_filters_narrow_what_is_found(shared: ServedApplication, params: dict[str, object], expected: set[str]) -> None:
    answer = shared.make_client("read").get("/api/v1/search", params={"q": "printer", **params})  # type: ignore[dict-item]
    assert {hit["path"] for hit in answer.json()["results"]} == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "q"),
        ("q=", "q"),
        ("q=%20%20", "q"),
        ("q=a%00b", "q"),
        (f"q={'x' * 2001}", "q"),
        ("q=a&n=0", "n"),
        ("q=a&n=101", "n"),
        ("q=a&n=five", "n"),
        ("q=a&n=1e1", "n"),
        ("q=a&n=5.0", "n"),
        ("q=a&n=", "n"),
        ("q=a&n=%D9%A5", "n"),
        ("q=a&mode=fuzzy", "mode"),
        ("q=a&fresh=yes", "fresh"),
        ("q=a&since=someday", "since"),
        ("q=a&since=0001-01-01T00:00:00%2B14:00", "since"),
        ("q=a&limit=3", "limit"),
        ("q=a&tenant=beta", "tenant"),
        ("q=a&q=b", "q"),
        ("q=a&tag=", "tag.0"),
        ("q=a&max_chunks_per_page=11", "max_chunks_per_page"),
        ("q=a&offset=901", "offset"),
        ("q=a&sort=size", "sort"),
        ("q=a&facets=", "facets.0"),
        ("q=%FF", ""),
        ("q=%ED%A0%80", ""),
        ("q=a&path=x&prefix=y", ""),
    ],
)
def test_an_invalid_or_unknown_parameter_is_rejected_by_name(shared: ServedApplication, query: str, field: str) -> None:
    answer = shared.make_client("read").get(f"/api/v1/search?{query}")
    assert answer.status_code == 422
    document = answer.json()
    assert field in {fault["field"] for fault in document["errors"]}
    assert document["code"] == "invalid-input"
    assert document["error"] == f"{document['detail']}. {document['hint']}"


@pytest.mark.parametrize(
    ("params", "message", "hint"),
    [
        ({"q": "a", "where": "priority>high"}, "at column 10: > needs a number or a date", "2026-01-31"),
        ({"q": "a", "where": "status"}, "at column 7: it has no operator", "status=draft"),
        ({"q": 'a tag:"b'}, "at column 7", "two words"),
        ({"q": '"a b" OR'}, "at column 7", "another phrase"),
    ],
)
def test_a_syntax_error_says_where_it_is(
    shared: ServedApplication, params: dict[str, str], message: str, hint: str
) -> None:
    answer = shared.make_client("read").get("/api/v1/search", params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-query")
    assert message in answer.text.replace("\\u003e", ">")
    assert hint in answer.text


def test_hits_can_be_paged_sorted_and_counted_by_property(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    every = client.get("/api/v1/search", params={"q": "printer"}).json()
    second = client.get("/api/v1/search", params={"q": "printer", "n": 1, "offset": 1}).json()
    assert [hit["path"] for hit in second["results"]] == [every["results"][1]["path"]]
    assert (second["offset"], every["offset"], every["facets"]) == (1, 0, {})
    counted = client.get("/api/v1/search", params={"q": "printer", "facets": ["Category", "tags"]}).json()
    tags = [{"value": value, "count": 1} for value in ("kitchen", "paper", "repair")]
    assert counted["facets"] == {"Category": [{"value": "Equipment", "count": 1}], "tags": tags}
    facets = client.get("/api/v1/facets", params={"facets": "tags", "where": "category=equipment"}).json()
    assert (facets["pages"], facets["properties"]) == (1, {"tags": tags[1:]})
    newest = client.get("/api/v1/search", params={"q": "printer", "sort": "date"}).json()["results"]
    assert [hit["last_updated"] for hit in newest] == sorted((hit["last_updated"] for hit in newest), reverse=True)


@pytest.mark.parametrize("path", ["/api/v1/pages", "/api/v1/status", "/api/v1/wikis", "/healthz", "/api/v1/links/Home"])
def test_unknown_parameters_are_rejected_everywhere(shared: ServedApplication, path: str) -> None:
    answer = shared.make_client("read").get(path, params={"nonsense": "1"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "nonsense", "where": "query", "message": "unknown field"}]


def test_an_unchanged_answer_is_304(writable: ServedApplication) -> None:
    client = writable.make_client("read")
    first = client.get("/api/v1/search", params={"q": "printer"})
    tag = first.headers["etag"]
    again = client.get("/api/v1/search", params={"q": "printer"}, headers={"If-None-Match": f'"x", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    other = client.get("/api/v1/search", params={"q": "coffee"}, headers={"If-None-Match": tag})
    assert other.status_code == 200
    writable.alpha.commit({"New.md": "# New\n\nprinter once more"})
    moved = client.get("/api/v1/search", params={"q": "printer"}, headers={"If-None-Match": tag})
    assert moved.status_code == 200
    assert moved.json()["stale"]


@pytest.mark.parametrize("path", ["search?q=printer", "similar?path=Home", "facets", "pages", "links"])
def test_an_answer_of_one_wiki_is_never_304_for_another(writable: ServedApplication, path: str) -> None:
    # Two wikis of one repository, with the same HEAD and the same number of changes of the index.
    writable.alpha.commit({"a/Home.md": "printer a", "a/X.md": "x", "b/Home.md": "printer b", "b/X.md": "x"})
    service = writable.application.service
    for name in "ab":
        service.add(name, str(writable.alpha.path), {"subdirectory": name})
        service.get_handle(name).sync()
    client = writable.make_client("operator")
    tags = [client.get(f"/w/{name}/api/v1/{path}").headers["etag"] for name in "ab"]
    assert tags[0] != tags[1]
    assert client.get(f"/w/b/api/v1/{path}", headers={"If-None-Match": tags[0]}).status_code == 200


def test_an_answer_with_other_settings_of_the_wiki_is_not_304(writable: ServedApplication) -> None:
    client = writable.make_client("read")
    tag = client.get("/api/v1/search", params={"q": "printer"}).headers["etag"]
    writable.application.service.configure("alpha", {"url": "https://wiki.example.org/{path}"})
    changed = client.get("/api/v1/search", params={"q": "printer"}, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["results"][0]["url"].startswith("https://wiki.example.org/")


def test_fresh_waits_for_the_latest_commit(writable: ServedApplication) -> None:
    client = writable.make_client("read")
    writable.alpha.commit({"Zebra.md": "# Zebra\n\nstripes and savannah"})
    answer = client.get("/api/v1/search", params={"q": "stripes savannah", "fresh": "true"}).json()
    assert answer["results"][0]["path"] == "Zebra"
    assert not answer["stale"]
    assert answer["head_revision"] == writable.alpha.get_head()


def test_similar_pages_exclude_the_page_itself(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    answer = client.get("/api/v1/similar", params={"path": "Home", "n": 2}).json()
    assert answer["total"] == 2
    assert "Home" not in {hit["path"] for hit in answer["results"]}


def test_head_answers_as_get_does_without_the_body(shared: ServedApplication) -> None:
    client = shared.make_client("read")
    got, head = (client.request(method, "/api/v1/search?q=printer") for method in ("GET", "HEAD"))
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["etag"] == got.headers["etag"]
    assert client.head("/healthz").status_code == 200


@pytest.mark.model
def test_the_real_model_finds_by_meaning_over_http(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("real"), embedder=None) as served:
        answer = served.make_client("read").get("/api/v1/semantic-search", params={"q": "how do I fix blurry copies?"})
        assert answer.json()["results"][0]["path"] == "Equipment/Printer"
        assert answer.json()["results"][0]["distance"] < 0.7
        like = served.make_client("read").get("/api/v1/similar", params={"path": "Coffee"}).json()
        assert {hit["path"] for hit in like["results"]} == {"Home", "Equipment/Printer"}
        assert served.make_client().get("/readyz").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/search?q=drum", "/api/v1/similar?path=Coffee"])
def test_a_search_reads_head_and_the_published_generation_once(
    writable: ServedApplication, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    client = writable.make_client("read")
    assert client.get(path).status_code == 200  # the index is open, and no background task needs it
    assert writable.application.scheduler.stop(TIMEOUT_S)
    reads: list[str] = []
    # Applications of other tests in this process may read their wikis at any time.
    is_own_store = partial(operator.is_, writable.application.service.components.store)
    counted = count_calls(SqliteStore.get_published, reads, is_own_store)
    monkeypatch.setattr(SqliteStore, "get_published", counted)
    counted = count_calls(GitSource.get_last_known_head, reads, lambda source: source._path == writable.alpha.path)
    monkeypatch.setattr(GitSource, "get_last_known_head", counted)
    answer = client.get(path)
    assert sorted(reads) == ["get_last_known_head", "get_published"]
    assert answer.json()["head_revision"] == writable.alpha.get_head()
    del reads[:]
    assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert sorted(reads) == ["get_last_known_head", "get_published"]


def test_a_sync_during_a_request_does_not_change_its_result(writable: ServedApplication) -> None:
    handle = writable.application.service.get_handle("alpha")
    with handle.open_snapshot() as snapshot:
        writable.alpha.commit({"Tea.md": "# Tea\n\nIn the cupboard.\n"})
        handle.sync()
        result = handle.search(SearchRequest("cupboard"), snapshot=snapshot)
    assert "Tea" not in [hit.path for hit in result.hits]
    assert result.head_revision == result.indexed_revision == snapshot.version.head != writable.alpha.get_head()
    assert not result.stale
    assert handle.search(SearchRequest("cupboard")).hits[0].path == "Tea"


def count_calls(method: Callable[..., Any], calls: list[str], is_own: Callable[[Any], bool]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        if is_own(arguments[0]):
            calls.append(method.__name__)
        return method(*arguments)

    return counted


def test_a_filter_that_no_page_passes_is_explained_in_the_notes(shared: ServedApplication) -> None:
    client = shared.make_client("read")

    def get_notes(**params: str) -> list[str]:
        document = client.get("/w/alpha/api/v1/search", params={"q": "printer", **params}).json()
        assert document["results"] == []
        notes: list[str] = document["notes"]
        return notes

    assert get_notes(tag="papr") == ["no page has this tag; did you mean 'paper'?"]
    (note,) = get_notes(prefix="equipment")
    assert note.endswith("did you mean 'Equipment'? Case matters.")
