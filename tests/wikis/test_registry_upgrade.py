"""A data directory of the version before is upgraded once: registry, keys and kept repositories."""

import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexCorrupt
from wikiholt.wikis.registry import Registry

_ARCHIVE = Path(__file__).parent / "data_of_version_2.tar.xz"
"""Made by version 2: the wiki garden, the created wiki notes with one page, a valid and a revoked key of garden, and an
operator's key."""


@dataclass(frozen=True)
class OldData:
    """An extracted data directory and its keys."""

    data: Path
    valid: str
    revoked: str
    operator: str

    def open(self) -> Registry:
        return Registry(self.data / "registry.sqlite")


@pytest.fixture
def old(tmp_path: Path) -> OldData:
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    keys = {name: (tmp_path / "keys" / name).read_text().strip() for name in ("valid", "revoked", "operator")}
    return OldData(tmp_path / "data", **keys)


@pytest.fixture
def registry(old: OldData) -> Iterator[Registry]:
    with closing(old.open()) as opened:
        yield opened


def test_wikis_settings_hosts_and_keys_are_kept(registry: Registry, old: OldData) -> None:
    garden, notes = registry.list_wikis()
    assert (garden.slug, garden.source, garden.settings) == (
        "garden",
        "/tmp/srv/garden",
        {"hosts": "garden.example", "language": "german"},
    )
    assert garden.repository.startswith("marked")
    assert registry.find_by_host("garden.example") == garden
    assert (notes.slug, notes.source) == ("notes", str(old.data / "repositories" / f"{notes.id}.git"))
    valid, operator = registry.keys.find_by_token(old.valid), registry.keys.find_by_token(old.operator)
    assert valid is not None
    assert operator is not None
    assert (valid.wiki_id, valid.scope, operator.wiki_id) == (garden.id, Scope.READ, None)
    assert registry.keys.find_by_token(old.revoked) is None
    assert registry.keys.has_ever_had_any()
    assert sorted(file.name for file in old.data.iterdir() if file.is_file()) == ["registry.sqlite", "revoked"]


def test_a_kept_repository_is_read_as_before(old: OldData) -> None:
    service = build_service(load_settings(old.data))
    with closing(service):
        wiki = service.registry.get("notes")
        service.check_repository(wiki)
        assert list(service.get_source(wiki).read_tree(service.get_source(wiki).get_head())) == ["Kept.md"]


def test_a_key_that_only_an_old_backup_has_stays_revoked(registry: Registry, old: OldData) -> None:
    older = next((old.data / "backups" / "registry").glob("*-k3-*.sqlite"))
    for newer in (old.data / "backups" / "registry").glob("*-k2-*.sqlite"):
        newer.unlink()
    restored = registry.backups.restore()
    assert restored.backup.name == older.stem.rpartition("-")[0]
    assert [key.label for key in restored.omitted_keys] == ["revoked"]
    assert registry.keys.find_by_token(old.revoked) is None
    assert registry.keys.find_by_token(old.valid) is not None
    assert len(registry.list_wikis()) == 2


def test_an_older_registry_of_version_2_is_refused_after_the_upgrade(old: OldData) -> None:
    older = old.data / "older.sqlite"
    shutil.copy(next((old.data / "backups" / "registry").glob("*-k3-*.sqlite")), older)
    with closing(old.open()) as registry:
        registry.list_wikis()
    shutil.copy(older, old.data / "registry.sqlite")
    with closing(old.open()) as registry:
        for _ in range(2):
            with pytest.raises(IndexCorrupt, match="older copy"):
                registry.keys.find_by_token(old.revoked)
        assert registry.backups.restore().revocations_known
        assert registry.keys.find_by_token(old.valid) is not None
        assert registry.keys.find_by_token(old.revoked) is None


def test_a_registry_of_version_2_that_is_not_the_last_one_is_refused(old: OldData) -> None:
    shutil.copy(next((old.data / "backups" / "registry").glob("*-k3-*.sqlite")), old.data / "registry.sqlite")
    with closing(old.open()) as registry, pytest.raises(IndexCorrupt, match="older copy"):
        registry.list_wikis()
    assert not (old.data / "revoked").exists()


def test_a_damaged_registry_of_version_2_is_refused_and_restored(old: OldData) -> None:
    file = old.data / "registry.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("UPDATE keys SET wiki_id = NULL")
    with closing(old.open()) as registry:
        with pytest.raises(IndexCorrupt):
            registry.list_wikis()
        restored = registry.backups.restore()
        assert not restored.revocations_known
        assert registry.keys.find_by_token(old.revoked) is None
        assert [wiki.slug for wiki in registry.list_wikis()] == ["garden", "notes"]


def test_of_many_that_open_it_at_once_one_upgrades_it(old: OldData) -> None:
    registries = [old.open() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda registry: [wiki.slug for wiki in registry.list_wikis()], registries))
    assert found == [["garden", "notes"]] * 6
    for registry in registries:
        registry.close()
