"""Isolation of misplaced data: files and rows of one wiki in the place of another are never used."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.isolation.canaries import CanaryWiki, find_codes
from wikiholt.api.backends import open_backend
from wikiholt.api.bootstrap import build_service
from wikiholt.api.isolation_check import check_isolation
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import SearchInterface
from wikiholt.errors import WikiholtError, WikiNotFound
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry
from wikiholt.wikis.service import WikiService

_PAGE_COUNT, _KEYWORD_CACHE_MIN_PAGES = 60, 50


class TwoWikis:
    """Two wikis in one storage, each with its index, caches, query log and backup."""

    def __init__(self, directory: Path, store: dict[str, object]) -> None:
        self.data = directory / "data"
        self._settings = load_settings(self.data, overrides={"queries.log": True, **store})
        self.wikis = [CanaryWiki(directory / "r", number, _PAGE_COUNT) for number in range(2)]
        self.service = self.open()
        for wiki in self.wikis:
            self.service.add(wiki.slug, str(wiki.repository.path), {})
            handle = self.service.get_handle(wiki.slug)
            handle.sync()
            handle.wait_for_caches(60)
            handle.search(SearchRequest(f"pump {wiki.get_word('query')}"), interface=SearchInterface.CLI)
            handle.query_log.build_report()
            handle.backups.create()
        self.ids = [self.service.registry.get(wiki.slug).id for wiki in self.wikis]
        self.service.close()

    def copy(self, data: Path) -> "TwoWikis":
        """The same wikis with a copy of the data directory."""
        shutil.copytree(self.data, data)
        made = copy(self)
        made.data, made._settings = data, replace(self._settings, data=data)
        return made

    def open(self) -> WikiService:
        backend = open_backend(self._settings, BackupPolicy(self.data / "backups", self._settings.backup_keep))
        backend = replace(backend, keyword_cache_min_pages=_KEYWORD_CACHE_MIN_PAGES)
        service = build_service(self._settings, backend=backend)
        embedder = FakeEmbedder()
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return service

    def get_directory(self, number: int) -> Path:
        return self.data / "wikis" / self.ids[number]

    def find_visible_codes(self) -> set[str]:
        """The codes of the wikis whose words the first wiki returns when searched for the words of both."""
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


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> TwoWikis:
    return TwoWikis(tmp_path_factory.mktemp("two"), {})


@pytest.fixture
def two(template: TwoWikis, tmp_path: Path) -> Iterator[TwoWikis]:
    """The wikis in a data directory of the test. No test changes their repositories."""
    made = template.copy(tmp_path / "data")
    made.service = made.open()
    yield made
    made.service.close()


@pytest.mark.parametrize("running", [True, False], ids=["while it serves", "before it starts"])
def test_the_index_of_another_wiki_is_not_used_and_is_quarantined(two: TwoWikis, running: bool) -> None:
    if running:
        assert two.find_visible_codes() == {two.wikis[0].code}
    else:
        two.service.close()
    own, foreign = (two.get_directory(number) / "g000001.sqlite" for number in range(2))
    other = own.with_name("other")
    shutil.copy(foreign, other)
    other.replace(own)
    if not running:
        two.service = two.open()
    assert two.find_visible_codes() <= {two.wikis[0].code}
    two.service.close()
    two.service = two.open()
    assert two.find_visible_codes() <= {two.wikis[0].code}, "its query log may be used, its index not"
    two.service.get_handle(two.wikis[0].slug).sync()
    assert two.find_visible_codes() == {two.wikis[0].code}
    assert next(path.name for path in two.get_directory(0).glob("broken-*")).endswith(
        "the-index-belongs-to-another-wiki"
    )


def test_verify_isolation_finds_a_page_and_files_of_another_wiki_and_changes_nothing(
    two: TwoWikis, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify() -> tuple[int, list[str]]:
        code = main(["--data", str(two.data), "verify-isolation", "--json"])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (code == 0)
        return code, [f"{each['subject']}: {each['detail']}" for each in document["findings"] if not each["ok"]]

    assert main(["--data", str(two.data), "verify-isolation", "nosuch"]) == WikiNotFound.exit_code
    assert f"`wikiholt --data {two.data} list` shows all wikis" in capsys.readouterr().err
    assert verify() == (0, [])
    own, foreign = (two.get_directory(number) for number in range(2))
    with closing(two.service.components.store.open(two.ids[0])) as index:
        index.apply(IndexChange(pages=(make_entry("Leaked.md", ["from another wiki"], FakeEmbedder()),)))
    for name in ("g000001.sqlite", "queries.sqlite"):
        shutil.copy(foreign / name, own / name.replace("g000001", "g000009"))
    for name in ("g000009-1.vectors", "copy-g000009-1.vectors"):
        shutil.copy(foreign / "g000001-1.vectors", own / name)
    two_backups = [next((two.data / "backups" / wiki_id).glob("*.sqlite")) for wiki_id in two.ids]
    shutil.copy(two_backups[1], two_backups[0])
    before = {file: file.read_bytes() for file in sorted(own.iterdir()) if not file.name.endswith(("-shm", "-wal"))}
    code, faults = verify()
    assert code == 10
    text = "\n".join(faults)
    assert "published index: pages that are not in its repository: 1 (Leaked.md)" in text
    for part in ("g000009.sqlite", "queries.sqlite", "g000009-1.vectors", "copy-g000009-1.vectors"):
        assert f" {part}: it belongs to another wiki ({two.ids[1]})" in text
    assert len([line for line in faults if ": backup of " in line]) == 1
    assert all(line.startswith(f"wiki {two.wikis[0].slug}: ") for line in faults)
    assert before == {file: file.read_bytes() for file in before}


def test_verify_isolation_finds_a_passage_with_the_text_of_another_wiki(two: TwoWikis) -> None:
    slug = two.wikis[0].slug
    assert [check.ok for check in check_isolation(two.service, slug)] == [True]
    own, foreign = (two.get_directory(number) / "g000001.sqlite" for number in range(2))
    with closing(sqlite3.connect(own, isolation_level=None)) as db:
        db.execute("ATTACH ? AS other", (str(foreign),))
        db.execute(
            "UPDATE main.chunks SET content = (SELECT max(content) FROM other.chunks)"
            " WHERE id = (SELECT min(id) FROM main.chunks)"
        )
    (fault,) = check_isolation(two.service, slug)
    assert (fault.ok, fault.detail) == (
        False,
        "rows of the published index: page 1 is not as it was written",
    )


def test_a_generation_of_another_wiki_is_never_published_instead_of_a_lost_one(two: TwoWikis) -> None:
    two.service.close()
    shutil.copy(two.get_directory(1) / "g000001.sqlite", two.get_directory(0) / "g000007.sqlite")
    (two.get_directory(0) / "CURRENT").unlink()
    two.service = two.open()
    assert two.find_visible_codes() == {two.wikis[0].code}


def test_caches_of_another_wiki_are_rebuilt(two: TwoWikis, caplog: pytest.LogCaptureFixture) -> None:
    two.service.close()
    caches = [two.get_directory(1) / "g000001.keywords"]
    for file in caches:
        assert (two.get_directory(0) / file.name).exists(), "both have the same generation and version"
        shutil.copy(file, two.get_directory(0) / file.name)
    two.service = two.open()
    assert two.find_visible_codes() == {two.wikis[0].code}
    assert caplog.text.count("belongs to another wiki") == 1


def test_vectors_of_another_wiki_are_not_used_and_are_quarantined(two: TwoWikis) -> None:
    two.service.close()
    shutil.copy(two.get_directory(1) / "g000001-1.vectors", two.get_directory(0))
    two.service = two.open()
    assert two.find_visible_codes() <= {two.wikis[0].code}
    two.service.get_handle(two.wikis[0].slug).sync()
    assert two.find_visible_codes() == {two.wikis[0].code}
    assert list(two.get_directory(0).glob("broken-*/g000001-1.vectors"))


def test_the_query_log_of_another_wiki_is_replaced_by_an_empty_one(two: TwoWikis) -> None:
    two.service.close()
    shutil.copy(two.get_directory(1) / "queries.sqlite", two.get_directory(0) / "queries.sqlite")
    two.service = two.open()
    found = two.service.get_handle(two.wikis[0].slug).query_log.build_report()
    assert found.queries == 0
    assert two.find_visible_codes() == {two.wikis[0].code}


def test_the_backup_of_another_wiki_is_not_restored(two: TwoWikis) -> None:
    own, foreign = (two.data / "backups" / wiki_id for wiki_id in two.ids)
    for file in own.iterdir():
        file.unlink()
    for file in foreign.iterdir():
        shutil.copy(file, own)
    handle = two.service.get_handle(two.wikis[0].slug)
    assert [backup.fault for backup in handle.backups.list()] == ["it belongs to another wiki"]
    with pytest.raises(WikiholtError) as caught:
        handle.restore()
    assert (caught.value.code, "another wiki" in caught.value.message) == ("index-foreign", True)
    assert caught.value.hint
    assert two.find_visible_codes() == {two.wikis[0].code}
    # Nor when the index is lost and the next sync looks for a backup.
    two.service.close()
    (two.get_directory(0) / "g000001.sqlite").unlink()
    two.service = two.open()
    two.service.get_handle(two.wikis[0].slug).sync()
    assert two.find_visible_codes() == {two.wikis[0].code}


def test_an_index_without_an_owner_is_rebuilt(two: TwoWikis) -> None:
    two.service.close()
    with sqlite3.connect(two.get_directory(0) / "g000001.sqlite") as db:
        db.execute("DROP TABLE owner")
    two.service = two.open()
    with pytest.raises(WikiholtError, match="does not say which wiki"):
        two.service.get_handle(two.wikis[0].slug).search(SearchRequest("pump"))
    assert two.service.get_handle(two.wikis[0].slug).sync().chunks_embedded == 0, "restored from its own backup"
    assert two.find_visible_codes() == {two.wikis[0].code}


def test_rows_of_the_schema_of_another_wiki_are_not_used(tmp_path: Path, database: str) -> None:
    two = TwoWikis(tmp_path, {"store": database})
    two.service = two.open()
    store = two.service.components.store
    assert isinstance(store, PostgresStore)
    role, (own, foreign) = store.placements.get(two.ids[0]).role, (f"w_{wiki_id}" for wiki_id in two.ids)
    with psycopg.connect(database, autocommit=True) as db:
        tables = [
            name
            for (name,) in db.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'", (foreign,)
            )
        ]
        for table in tables:
            if table.startswith("g1_") or table == "state":
                db.execute(f"TRUNCATE {own}.{table}")
                db.execute(f"INSERT INTO {own}.{table} SELECT * FROM {foreign}.{table}")
        assert "searches" in tables
        db.execute(f"DROP TABLE {own}.searches")
        db.execute(f"CREATE TABLE {own}.searches (LIKE {foreign}.searches INCLUDING ALL)")
        db.execute(f"INSERT INTO {own}.searches OVERRIDING SYSTEM VALUE SELECT * FROM {foreign}.searches")
        db.execute(f"GRANT SELECT, INSERT, DELETE ON {own}.searches TO {role}")
    try:
        assert two.find_visible_codes() == set()
        two.service.get_handle(two.wikis[0].slug).sync()
        assert two.find_visible_codes() == {two.wikis[0].code}
        assert two.service.get_handle(two.wikis[0].slug).get_status().quarantined
    finally:
        two.service.close()


def test_verify_isolation_finds_rights_of_other_roles_and_foreign_pages_in_postgresql(
    tmp_path: Path, database: str
) -> None:
    two = TwoWikis(tmp_path, {"store": database})
    two.service = two.open()
    store, slug = two.service.components.store, two.wikis[0].slug
    assert isinstance(store, PostgresStore)
    try:
        assert [check.ok for wiki in two.wikis for check in check_isolation(two.service, wiki.slug)] == [True, True]
        (own, role), (_, other_role) = (
            (placement.schema, placement.role) for placement in map(store.placements.get, two.ids)
        )
        with closing(store.open(two.ids[0])) as index:
            index.apply(IndexChange(pages=(make_entry("Leaked.md", ["from another wiki"], FakeEmbedder()),)))
        with psycopg.connect(database, autocommit=True) as db:
            db.execute(f"GRANT USAGE ON SCHEMA {own} TO PUBLIC")
            db.execute(f"GRANT SELECT ON {own}.g1_chunks TO {other_role}")
        details = [check.detail for check in check_isolation(two.service, slug) if not check.ok]
        assert details == [
            "published index: pages that are not in its repository: 1 (Leaked.md)",
            f"rights in PostgreSQL: other roles can use its schema or its role: PUBLIC, {other_role}",
        ]
        assert role not in details[1]
        assert [check.ok for check in check_isolation(two.service, two.wikis[1].slug)] == [True]
    finally:
        two.service.close()
