"""Synonyms of a wiki over HTTP: from its page, and only in this wiki."""

from collections.abc import Iterator

import pytest

from tests.support.served_application import ServedApplication, serve_application


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("synonyms")) as made:
        made.alpha.commit({"_synonyms.md": "- zylinder = drum\n"})
        yield made


def find_paths(served: ServedApplication, key: str, **params: str) -> list[str]:
    params = {"q": "zylinder", "mode": "keyword", "fresh": "true", **params}
    return [hit["path"] for hit in served.make_client(key).get("/api/v1/search", params=params).json()["results"]]


def test_rules_of_a_page_count_in_its_wiki_only(served: ServedApplication) -> None:
    assert "Equipment/Printer" in find_paths(served, "read")
    served.beta.commit({"Drum.md": "# Drum\n\nA drum stands in the hall.\n"})
    assert find_paths(served, "other") == []
    assert find_paths(served, "other", q="drum") == ["Drum"]
