"""Language settings, with the real model, in both stores."""

import io
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

PAGES: dict[str, str | bytes | None] = {
    "onboarding.md": "# First week\n\nOn your first day you get a badge, a laptop and the key to the building.",
    "küche.md": "# Küche\n\nDie Kaffeemaschine wird am Freitag entkalkt. Am Abend davor muss man sie reinigen.",
    "werkstatt.md": "# Werkstatt\n\nJede Maschine hat ein Buch, und in das wird die Wartung eingetragen.",
    "clés.md": "---\nlang: fr\n---\n# Clés\n\nClés des bâtiments : armoire générale, rez-de-chaussée.",
    "当番.md": "# 当番\n\n当番は毎週月曜日に交代します。",
    "paths.md": "# Names\n\nThe names of machines are in /etc/hosts and in .env of the proxy.",
}
QUERIES = {
    "Kaffeemaschinen reinigen": "küche",
    "Kaffeemaschine": "küche",
    "wo ist das Buch der Maschine": "werkstatt",
    "clé du bâtiment": "clés",
    "batiments": "clés",
    "月曜": "当番",
    "番": "当番",
    "/etc/hosts": "paths",
    ".env": "paths",
    "what do I get on my first day": "onboarding",
}
LANGUAGE_SETTINGS = {"languages": "german, french"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "wiki")
    made.commit(PAGES)
    return made


@pytest.mark.model
def test_both_stores_find_the_same_pages_in_every_language(
    database: str, repository: Repository, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        services: list[WikiService] = []
        for name, store in (("files", ""), ("postgres", database)):
            service = open_service(tmp_path / name, overrides={"store": store})
            stack.callback(service.close)
            service.add("house", str(repository.path), LANGUAGE_SETTINGS)
            service.get_handle("house").sync()
            services.append(service)
        for typed, page in QUERIES.items():
            for mode in (SearchMode.KEYWORD, SearchMode.HYBRID):
                one, other = (
                    service.get_handle("house").search(SearchRequest(typed, 10, mode)) for service in services
                )
                assert one.hits[0].path == page, (typed, mode)
                seen = [
                    [(hit.path, round(hit.score, 4), hit.snippet) for hit in answer.hits] for answer in (one, other)
                ]
                assert seen[0] == seen[1], (typed, mode)


@pytest.fixture
def service(repository: Repository, tmp_path: Path) -> Iterator[WikiService]:
    opened = open_service(tmp_path / "data")
    opened.add("house", str(repository.path), {"language": "english"})
    yield opened
    opened.close()


@pytest.mark.model
def test_other_languages_rebuild_the_index_without_embedding(service: WikiService) -> None:
    request = SearchRequest("Wartungen ", 10, SearchMode.KEYWORD)
    assert service.get_handle("house").sync().chunks_embedded == len(PAGES)
    assert service.get_handle("house").search(request).hits == ()
    service.configure("house", LANGUAGE_SETTINGS)
    report = service.get_handle("house").sync()
    assert (report.added, report.chunks_embedded) == (len(PAGES), 0)
    assert [hit.path for hit in service.get_handle("house").search(request).hits] == ["werkstatt"]
    assert service.get_handle("house").sync().added == 0


def test_a_language_that_is_not_known_is_refused_and_nothing_is_lost(service: WikiService) -> None:
    with pytest.raises(InvalidSetting, match="klingon"):
        service.configure("house", {"languages": "german, klingon"})
    with pytest.raises(InvalidSetting, match="languages"):
        open_service(Path("unused"), overrides={"languages": ["german", "englisch"]})
    assert service.registry.get("house").settings == {"language": "english"}


def test_languages_are_given_when_a_wiki_is_added(repository: Repository, tmp_path: Path) -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        given = ["add", "house", str(repository.path), "--language", "german", "--languages", "english,french"]
        assert main(["--data", str(tmp_path / "data"), *given]) == 0
        assert main(["--data", str(tmp_path / "data"), "add", "x", str(repository.path), "--languages", "elvish"]) == 2
    opened = open_service(tmp_path / "data")
    try:
        assert opened.registry.get("house").settings == {"language": "german", "languages": "english,french"}
        assert opened.get_config(opened.registry.get("house")).pipeline.language == "german+english+french"
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("settings", "languages", "is_detected"),
    [
        ({}, "english", True),
        ({"language": "auto"}, "english", True),
        ({"language": "german"}, "german", False),
        ({"languages": "french"}, "english+french", False),
        ({"language": "auto", "languages": "french"}, "english+french", False),
    ],
)
def test_languages_are_detected_unless_they_are_set(
    repository: Repository, tmp_path: Path, settings: dict[str, str], languages: str, is_detected: bool
) -> None:
    opened = open_service(tmp_path / "data")
    try:
        pipeline = opened.get_config(opened.add("house", str(repository.path), settings)).pipeline
        assert (pipeline.language, pipeline.detects_languages) == (languages, is_detected)
    finally:
        opened.close()
