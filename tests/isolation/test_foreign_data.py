"""The isolation gate for what belongs to one wiki and was put where another's should be: never answered from."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.isolation.canaries import CanaryWiki, find_codes
from wikiholt.app.bootstrap import build_service
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchInterface
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.storage.postgres.store import PostgresStore
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService


class Two:
    """Two wikis in one place, each with its index, caches, query log and backup."""

    def __init__(self, place: Path, store: dict[str, object]) -> None:
        self.data = place / "data"
        self._settings = load_settings(self.data, overrides={"queries.log": True, **store})
        self.wikis = [CanaryWiki(place / "r", number, 320) for number in range(2)]
        self.service = self.open()
        for wiki in self.wikis:
            self.service.add(wiki.slug, str(wiki.repository.path), {})
            handle = self.service.get_handle(wiki.slug)
            handle.sync()
            handle.wait_for_caches(60)
            handle.search(SearchRequest(f"pump {wiki.get_word('asked')}"), interface=SearchInterface.CLI)
            handle.query_log.build_report()
            handle.backups.create()
        self.ids = [self.service.registry.get(wiki.slug).id for wiki in self.wikis]
        self.service.close()

    def open(self) -> WikiService:
        service = build_service(self._settings)
        embedder = FakeEmbedder()
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return service

    def place(self, number: int) -> Path:
        return self.data / "wikis" / self.ids[number]

    def told(self) -> set[str]:
        """Whose words the first wiki tells, to whoever asks for those of both."""
        handle, text = self.service.get_handle(self.wikis[0].slug), ""
        for word in ("pump", *(wiki.get_word("body") for wiki in self.wikis)):
            for mode in ("keyword", "semantic", "hybrid"):
                with suppress(WikiholtError):
                    text += repr(handle.search(SearchRequest(word, 50, mode)).hits)  # type: ignore[arg-type]
        with suppress(WikiholtError):
            text += repr(handle.pages.list().pages)
        with suppress(WikiholtError):
            text += repr(handle.query_log.build_report())
        return find_codes(text)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path, {})
    made.service = made.open()
    yield made
    made.service.close()


@pytest.mark.parametrize("running", [True, False], ids=["while it serves", "before it starts"])
def test_the_index_of_another_wiki_answers_nothing_and_is_set_aside(two: Two, running: bool) -> None:
    if running:
        assert two.told() == {two.wikis[0].code}
    else:
        two.service.close()
    mine, theirs = (two.place(number) / "g000001.sqlite" for number in range(2))
    other = mine.with_name("other")
    shutil.copy(theirs, other)
    other.replace(mine)
    for cache in two.place(0).glob("vectors*"):
        cache.unlink()
    if not running:
        two.service = two.open()
    assert two.told() <= {two.wikis[0].code}
    two.service.close()
    two.service = two.open()
    assert two.told() <= {two.wikis[0].code}, "its query log may answer, its index not"
    two.service.get_handle(two.wikis[0].slug).sync()
    assert two.told() == {two.wikis[0].code}
    assert next(path.name for path in two.place(0).glob("broken-*")).endswith("the-index-belongs-to-another-wiki")


def test_a_generation_of_another_wiki_is_never_published_in_the_place_of_a_lost_one(two: Two) -> None:
    two.service.close()
    shutil.copy(two.place(1) / "g000001.sqlite", two.place(0) / "g000007.sqlite")
    (two.place(0) / "CURRENT").unlink()
    two.service = two.open()
    assert two.told() == {two.wikis[0].code}


def test_caches_of_another_wiki_are_made_again(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.service.close()
    taken = [file for file in two.place(1).glob("*-g000001-*") if file.name.startswith(("vectors", "words"))]
    assert len(taken) == 2
    for file in taken:
        assert (two.place(0) / file.name).exists(), "both have the same generation and version"
        shutil.copy(file, two.place(0) / file.name)
    two.service = two.open()
    assert two.told() == {two.wikis[0].code}
    assert caplog.text.count("belongs to another wiki") == 2


def test_the_query_log_of_another_wiki_is_begun_anew(two: Two) -> None:
    two.service.close()
    shutil.copy(two.place(1) / "queries.sqlite", two.place(0) / "queries.sqlite")
    two.service = two.open()
    found = two.service.get_handle(two.wikis[0].slug).query_log.build_report()
    assert found.queries == 0
    assert two.told() == {two.wikis[0].code}


def test_the_backup_of_another_wiki_is_not_restored(two: Two) -> None:
    mine, theirs = (two.data / "backups" / wiki_id for wiki_id in two.ids)
    for file in mine.iterdir():
        file.unlink()
    for file in theirs.iterdir():
        shutil.copy(file, mine)
    handle = two.service.get_handle(two.wikis[0].slug)
    assert [backup.fault for backup in handle.backups.list()] == ["it belongs to another wiki"]
    with pytest.raises(WikiholtError) as caught:
        handle.restore()
    assert (caught.value.code, "another wiki" in caught.value.message) == ("index-foreign", True)
    assert caught.value.hint
    assert two.told() == {two.wikis[0].code}
    # Nor when the index is lost and whatever backup there is would take its place.
    two.service.close()
    (two.place(0) / "g000001.sqlite").unlink()
    two.service = two.open()
    two.service.get_handle(two.wikis[0].slug).sync()
    assert two.told() == {two.wikis[0].code}


def test_an_index_that_does_not_say_whose_it_is_is_built_again(two: Two) -> None:
    two.service.close()
    with sqlite3.connect(two.place(0) / "g000001.sqlite") as db:
        db.execute("DROP TABLE owner")
    two.service = two.open()
    with pytest.raises(WikiholtError, match="does not say which wiki"):
        two.service.get_handle(two.wikis[0].slug).search(SearchRequest("pump"))
    assert two.service.get_handle(two.wikis[0].slug).sync().chunks_embedded == 0, "by its own backup"
    assert two.told() == {two.wikis[0].code}


def test_rows_of_another_wikis_schema_answer_nothing(tmp_path: Path, database: str) -> None:
    two = Two(tmp_path, {"store": database})
    two.service = two.open()
    store = two.service.components.store
    assert isinstance(store, PostgresStore)
    role, (mine, theirs) = store.placements.get(two.ids[0]).role, (f"w_{wiki_id}" for wiki_id in two.ids)
    with psycopg.connect(database, autocommit=True) as db:
        tables = [
            name
            for (name,) in db.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'", (theirs,)
            )
        ]
        for table in tables:
            if table.startswith("g1_") or table == "state":
                db.execute(f"TRUNCATE {mine}.{table}")
                db.execute(f"INSERT INTO {mine}.{table} SELECT * FROM {theirs}.{table}")
        assert "searches" in tables
        db.execute(f"DROP TABLE {mine}.searches")
        db.execute(f"CREATE TABLE {mine}.searches (LIKE {theirs}.searches INCLUDING ALL)")
        db.execute(f"INSERT INTO {mine}.searches OVERRIDING SYSTEM VALUE SELECT * FROM {theirs}.searches")
        db.execute(f"GRANT SELECT, INSERT, DELETE ON {mine}.searches TO {role}")
    try:
        assert two.told() == set()
        two.service.get_handle(two.wikis[0].slug).sync()
        assert two.told() == {two.wikis[0].code}
        assert two.service.get_handle(two.wikis[0].slug).get_status().quarantined
    finally:
        two.service.close()


def test_the_backup_of_another_wiki_is_not_restored_into_postgresql(tmp_path: Path, database: str) -> None:
    two = Two(tmp_path, {"store": database})
    two.service = two.open()
    try:
        (file,) = (two.data / "backups" / two.ids[1]).glob("*.sqlite")
        store = two.service.components.store
        with store.write_lock(two.ids[0], 5), pytest.raises(WikiholtError) as caught:
            store.import_backup(two.ids[0], file)
        assert caught.value.code == "index-foreign"
        assert two.told() == {two.wikis[0].code}
    finally:
        two.service.close()
