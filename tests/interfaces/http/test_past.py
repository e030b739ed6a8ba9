"""Searches of the wiki as it was, over HTTP."""

from tests.support.served_application import ServedApplication


def test_the_list_names_the_commits_that_were_searched(writable: ServedApplication) -> None:
    client = writable.make_client("write")
    assert client.get("/api/v1/past").json() == {"views": [], "total": 0}
    first = writable.alpha.get_head()
    writable.alpha.run_git("mv", "Coffee.md", "Espresso.md")
    writable.alpha.commit({})
    writable.application.service.get_handle("alpha").sync()
    found = client.get("/api/v1/past/search", params={"q": "descale", "at": first[:9], "n": 1}).json()
    assert found["results"][0]["path"] == "Coffee"
    assert found["results"][0]["now"] == {"path": "Espresso", "removed": None}
    (view,) = client.get("/api/v1/past").json()["views"]
    assert (view["revision"], view["complete"], view["pages"]) == (first, True, 3)


def test_errors_say_what_to_name(writable: ServedApplication) -> None:
    writable.alpha.run_git("tag", "v1.0")
    client = writable.make_client("admin")
    unknown = client.get("/api/v1/past/search", params={"q": "x", "at": "v1"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "revision-not-found")
    assert "v1.0" in unknown.json()["hint"]
    assert client.get("/api/v1/past/search", params={"q": "x"}).status_code == 422
    assert client.get("/api/v1/search", params={"q": "x", "at": "v1.0"}).status_code == 422


def test_a_search_does_not_wait_longer_than_it_may(writable: ServedApplication) -> None:
    session = writable.application.service.get_handle("alpha")
    from wikiholt.wikis import past_views

    with past_views._BUILDS:
        answer = writable.make_client("write").get("/api/v1/past/search", params={"q": "x", "at": "HEAD"})
    assert (answer.status_code, answer.json()["code"]) == (503, "view-pending")
    assert answer.headers["retry-after"] == "2"
    assert session.past.list_views()[0].is_complete is False
