"""Near-duplicates over HTTP: one hit that names the others, and their list."""

from collections.abc import Iterator

import pytest

from tests.support.served_application import ServedApplication, serve_application

NOTICE = (
    "The boiler room is locked at night. Ask the caretaker for the key, sign for it in the grey book at the entrance, "
    "and bring it back before breakfast, because the fire brigade wants to see both keys on their hooks.\n"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("copies")) as made:
        made.alpha.commit({f"Boiler/{name}.md": f"# {name}\n\n{NOTICE}" for name in ("North", "South", "West")})
        yield made


@pytest.mark.parametrize(
    ("route", "count"), [("search", 1), ("search?collapse=false", 3), ("semantic-search", 3), ("similar", 0)]
)
def test_copies_are_one_hit_except_for_clients_of_the_old_plugin(
    served: ServedApplication, route: str, count: int
) -> None:
    params = {"path": "Boiler/North"} if route == "similar" else {"q": "grey book of the boiler room", "fresh": True}
    path, _, query = route.partition("?")
    answer = served.make_client("read").get(
        f"/api/v1/{path}", params={**params, **dict([query.split("=")] if query else [])}
    )
    hits = [hit for hit in answer.json()["results"] if hit["path"].startswith("Boiler/")]
    assert len(hits) == count
    also_on = [place for hit in hits for place in hit["also_on"]]
    assert len(also_on) == (2 if route == "search" else 0)
    for place in also_on:
        assert place.keys() == {"name", "path", "url", "file", "lines"}
        assert (place["file"], place["lines"]) == (f"{place['path']}.md", [1, 3])


def test_the_list_has_each_group_with_its_places(served: ServedApplication) -> None:
    client = served.make_client("write")
    client.get("/api/v1/search", params={"q": "boiler", "fresh": True})
    document = client.get("/api/v1/duplicates", params={"prefix": "Boiler"}).json()
    assert (document["wiki"], document["page_groups"], document["passage_groups"]) == ("alpha", 1, 0)
    (group,) = document["pages"]
    assert group["text"].startswith("# North The boiler room")
    assert [place["path"] for place in group["places"]] == ["Boiler/North", "Boiler/South", "Boiler/West"]
    assert client.get("/api/v1/duplicates", params={"prefix": "Boiler", "limit": 0}).status_code == 422


def test_pages_of_different_wikis_are_never_one_hit(served: ServedApplication) -> None:
    served.beta.commit({"North.md": f"# North\n\n{NOTICE}"})
    served.make_client("other").get("/api/v1/search", params={"q": "boiler", "fresh": True})
    params = {"q": "grey book of the boiler room", "wiki": ["alpha", "beta"]}
    found = served.make_client("operator").get("/api/v1/search", params=params).json()["results"]
    hits = [hit for hit in found if "North" in hit["path"] or "Boiler/" in hit["path"]]
    assert sorted(hit["wiki"] for hit in hits) == ["alpha", "beta"]
    assert {place["path"] for hit in hits for place in hit["also_on"]} <= {
        "Boiler/North",
        "Boiler/South",
        "Boiler/West",
    }
    assert sum(len(hit["also_on"]) for hit in hits) == 2
    assert served.make_client("other").get("/api/v1/duplicates").json()["page_groups"] == 0
