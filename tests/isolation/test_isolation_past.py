"""Searches in the past stay in their wiki: over HTTP, with every key and commit, and in the files of the views."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.served_application import ServedApplication, serve_application
from wikiholt.api.isolation_check import check_isolation

ALPHA_SECRET, BETA_SECRET = "alphasecret", "betasecret"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """Two wikis that have removed a page each."""
    with serve_application(tmp_path_factory.mktemp("past")) as served:
        for repository, secret in ((served.alpha, ALPHA_SECRET), (served.beta, BETA_SECRET)):
            repository.commit({"Old.md": f"# Old\n\nThe word is {secret}.\n"}, "Write it")
            repository.run_git("tag", "before")
            repository.commit({"Old.md": None}, "Remove it")
        for slug in ("alpha", "beta"):
            served.application.service.get_handle(slug).sync()
        yield served


def search(served: ServedApplication, key: str | None, at: str, words: str, slug: str = "alpha") -> tuple[int, str]:
    answer = served.make_client(key).get(f"/w/{slug}/api/v1/past/search", params={"q": words, "at": at})
    return answer.status_code, answer.text


def test_removed_pages_are_found_with_their_removal_and_only_in_their_wiki(served: ServedApplication) -> None:
    answer = served.make_client("write").get("/api/v1/past/search", params={"q": ALPHA_SECRET, "at": "before"})
    document = answer.json()
    hit = document["results"][0]
    assert (hit["path"], hit["now"]["path"], hit["now"]["removed"]["message"]) == ("Old", None, "Remove it")
    assert (document["at"]["name"], document["at"]["revision"]) == ("before", document["indexed_revision"])
    assert answer.headers["cache-control"] == "no-store"
    today = served.make_client("write").get("/api/v1/search", params={"q": ALPHA_SECRET}).text
    assert f"The word is {ALPHA_SECRET}" not in today
    for at in ("before", "HEAD", "today"):
        status, text = search(served, "write", at, BETA_SECRET)
        assert status == 200
        assert f"is {BETA_SECRET}" not in text


def test_no_key_finds_a_commit_of_another_wiki(served: ServedApplication) -> None:
    commit = served.beta.run_git("rev-parse", "before").decode()
    assert search(served, "write", commit, BETA_SECRET)[0] == 404
    assert search(served, "other", commit, BETA_SECRET)[0] == 403
    assert search(served, "read", "before", ALPHA_SECRET)[0] == 403
    assert search(served, None, "before", ALPHA_SECRET)[0] == 401
    status, text = search(served, "operator", "before", BETA_SECRET, "beta")
    assert status == 200
    assert f"is {BETA_SECRET}" in text


def test_a_public_wiki_has_no_public_past(served: ServedApplication) -> None:
    served.application.service.configure("alpha", {"public": "true"})
    try:
        assert served.make_client().get("/w/alpha/api/v1/search?q=printer").status_code == 200
        assert search(served, None, "before", ALPHA_SECRET)[0] == 401
        assert served.make_client().get("/w/alpha/api/v1/past").status_code == 401
    finally:
        served.application.service.configure("alpha", {"public": ""})


def test_the_files_of_a_view_have_only_words_of_their_wiki_and_a_foreign_one_is_found(
    served: ServedApplication,
) -> None:
    service = served.application.service
    for slug in ("alpha", "beta"):
        service.get_handle(slug).past.build("before")
    stores = {slug: service.components.store.get_directory(service.registry.get(slug).id) for slug in ("alpha", "beta")}
    for slug, other in (("alpha", BETA_SECRET), ("beta", ALPHA_SECRET)):
        content = b"".join(file.read_bytes() for file in (stores[slug] / "past").rglob("*") if file.is_file())
        assert other.encode() not in content
        assert check_isolation(service, slug)[0].ok
    alpha, beta = (next((stores[slug] / "past").glob("*/*/g*.vectors")) for slug in ("alpha", "beta"))
    shutil.copyfile(beta, alpha)
    fault = check_isolation(service, "alpha")[0]
    assert not fault.ok
    assert "belongs to another wiki" in fault.detail
