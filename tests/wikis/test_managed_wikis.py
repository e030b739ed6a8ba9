"""Wikis whose repository Wikiholt keeps: created, filled, backed up, moved and removed."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import build_service
from wikiholt.api.doctor import run_checks
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.api.store_migration import MigrationOutcome, StoreMigration
from wikiholt.domain.git import Author
from wikiholt.errors import (
    InvalidSetting,
    InvalidSlug,
    NoCommits,
    NoPages,
    NoPagesYet,
    NotWritable,
    SourceMissing,
    WikiExists,
    WikiholtError,
)
from wikiholt.git.process import GitRunner
from wikiholt.search.request import SearchRequest
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.pages.bulk_writer import BulkLine
from wikiholt.wikis.service import WikiService

ADA = Author("Ada", "ada@example.org")


def open_service(data: Path, **settings: object) -> WikiService:
    service = build_service(load_settings(data, overrides=settings))
    service.components = replace(service.components, embedder=FakeEmbedder, identity=None)
    return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[WikiService]:
    service = open_service(tmp_path / "data")
    yield service
    service.close()


def write(service: WikiService, slug: str, *paths: str) -> None:
    lines = [BulkLine(n, path, f"# {path}\n\nThe {slug}canary of {path}.\n") for n, path in enumerate(paths, 1)]
    assert not [result for result in service.get_handle(slug).pages.write_many(lines, ADA) if result.error]


def list_repositories(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "repositories").iterdir())


def test_pages_of_two_managed_wikis_stay_apart(service: WikiService) -> None:
    for slug in ("alpha", "beta"):
        service.create(slug, {})
        write(service, slug, "Home", f"{slug}/Page")
        service.get_handle(slug).sync()
    for slug, other in (("alpha", "beta"), ("beta", "alpha")):
        hits = service.get_handle(slug).search(SearchRequest(f"{other}canary {slug}canary")).hits
        assert {hit.path for hit in hits} <= {"Home", f"{slug}/Page"}
        assert all(f"{other}canary" not in hit.snippet.text for hit in hits)
    assert service.registry.get("alpha").source != service.registry.get("beta").source


def test_a_new_wiki_is_empty_and_can_be_read(service: WikiService) -> None:
    wiki = service.create("notes", {"language": "german"})
    assert wiki.is_managed
    assert Path(wiki.source).is_dir()
    assert service.get_handle("notes").pages.list().total == 0


@pytest.mark.parametrize(("slug", "error"), [("notes", WikiExists), ("No/Slug", InvalidSlug)])
def test_a_wiki_that_cannot_be_registered_leaves_no_repository(
    service: WikiService, tmp_path: Path, slug: str, error: type[WikiholtError]
) -> None:
    service.create("notes", {})
    with pytest.raises(error):
        service.create(slug, {})
    assert len(list_repositories(tmp_path / "data")) == 1


def test_a_removed_wiki_is_deleted_with_its_pages_and_backups(service: WikiService, tmp_path: Path) -> None:
    for slug in ("notes", "other"):
        service.create(slug, {})
        write(service, slug, "Home")
        service.get_handle(slug).sync()
        service.get_handle(slug).backups.create()
    kept = service.registry.get("other").id
    service.remove("notes")
    assert list_repositories(tmp_path / "data") == [f"{kept}.git"]
    assert [path.name for path in (tmp_path / "data" / "backups").glob("*/*.bundle")]
    assert {path.parent.name for path in (tmp_path / "data" / "backups").glob("*/*.bundle")} == {kept}


def test_the_repository_of_a_removal_that_was_killed_is_deleted_later(
    service: WikiService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create("notes", {})
    write(service, "notes", "Home")
    with monkeypatch.context() as patch:
        patch.setattr(service, "_remove_leftovers_of", lambda _: None)
        service.remove("notes")
    assert len(list_repositories(tmp_path / "data")) == 1
    service.remove_leftovers()
    assert list_repositories(tmp_path / "data") == []


def test_a_backup_contains_the_pages_and_git_restores_them(service: WikiService, tmp_path: Path) -> None:
    wiki = service.create("notes", {})
    handle = service.get_handle("notes")
    write(service, "notes", "Home")
    handle.sync()
    handle.backups.create()
    write(service, "notes", "Later")
    handle.sync()
    handle.backups.create()
    (bundle,) = (tmp_path / "data" / "backups" / wiki.id).glob("*.bundle")
    shutil.rmtree(wiki.source)
    with pytest.raises(SourceMissing):
        handle.sync()
    subprocess.run(["git", "clone", "--quiet", "--mirror", bundle, wiki.source], check=True)
    service.rebind("notes")
    assert {page.path for page in service.get_handle("notes").pages.list().pages} == {"Home", "Later"}
    write(service, "notes", "Written after the restore")


def test_the_data_directory_can_be_moved(service: WikiService, tmp_path: Path) -> None:
    service.create("notes", {})
    write(service, "notes", "Home")
    service.close()
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = open_service(tmp_path / "moved")
    assert moved.get_handle("notes").pages.read("Home").content.startswith("# Home")
    moved.configure("notes", {"public": "true"})
    assert moved.registry.read_rows()["wikis"][0][2] == ""  # no path is stored
    moved.close()


@pytest.mark.parametrize("kind", ["", "git", "directory"])
def test_a_managed_wiki_cannot_become_another_kind(service: WikiService, kind: str) -> None:
    service.create("notes", {})
    with pytest.raises(InvalidSetting, match="cannot be set or changed"):
        service.configure("notes", {"kind": kind})


def test_a_repository_cannot_become_managed(service: WikiService, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="cannot be set or changed"):
        service.add("notes", str(tmp_path), {"kind": "managed"})


def test_nodes_that_share_a_database_need_a_shared_directory(tmp_path: Path) -> None:
    address = "postgresql://user@127.0.0.1:1/nowhere"
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidSetting, match="Other nodes") as caught:
        open_service(tmp_path / "data", store=address).create("notes", {})
    assert "repositories.directory" in caught.value.hint


def test_a_directory_that_cannot_be_written_is_an_error(service: WikiService, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "repositories").write_text("a file")
    with pytest.raises(WikiholtError, match="cannot be written"):
        service.create("notes", {})


def test_a_wiki_that_was_removed_meanwhile_cannot_be_written(service: WikiService) -> None:
    service.create("notes", {})
    pages = service.get_handle("notes").pages
    service.remove("notes")
    with pytest.raises((SourceMissing, NotWritable)):
        pages.write_many([BulkLine(1, "Home", "# Home\n")], ADA)


def test_a_migration_to_another_store_needs_the_repository_there(service: WikiService, tmp_path: Path) -> None:
    service.create("notes", {})
    write(service, "notes", "Home")
    service.get_handle("notes").sync()
    target = open_service(tmp_path / "other")
    (failed,) = StoreMigration(service, target, tmp_path / "scratch").run().wikis
    assert isinstance(failed.error, SourceMissing)
    assert target.registry.list_wikis() == []
    shutil.copytree(tmp_path / "data" / "repositories", tmp_path / "other" / "repositories")
    (moved,) = StoreMigration(service, target, tmp_path / "scratch").run().wikis
    assert moved.outcome is MigrationOutcome.MOVED
    assert target.get_handle("notes").pages.read("Home").content.startswith("# Home")
    target.close()


# A wiki in which nobody has written a page yet.


@pytest.fixture
def scheduler(service: WikiService) -> Iterator[Scheduler]:
    scheduler = Scheduler(service, SchedulerConfig(workers=1, discovery_interval_s=0.05, get_interval=lambda _: 0.05))
    scheduler.start()
    yield scheduler
    assert scheduler.stop(TIMEOUT_S)


def wait_for_checks(scheduler: Scheduler, count: int = 5) -> None:
    goal = scheduler.get_counters().head_checks + count
    wait_until(lambda: scheduler.get_counters().head_checks >= goal)


def test_a_wiki_without_a_page_yet_is_no_failure(
    service: WikiService, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("no git process is needed")

    wiki = service.create("notes", {})
    wait_until(lambda: isinstance(scheduler.get_sync_state(wiki.id).error, NoPagesYet))
    with monkeypatch.context() as patch:
        patch.setattr(GitRunner, "run", fail)
        scheduler.touch(wiki.id)
        wait_for_checks(scheduler)
    counters, state = scheduler.get_counters(), scheduler.get_sync_state(wiki.id)
    assert (counters.failing, counters.failures, counters.syncs, counters.waiting) == (0, 0, 0, 0)
    assert (state.failures, state.waiting, state.missing) == (0, False, False)
    assert scheduler.get_progress().wikis == 0
    assert isinstance(service.get_handle("notes").get_status().error, NoPagesYet)
    found = run_checks(service, service.components.store.get_directory(wiki.id).parent, 60.0)
    assert [(result.ok, result.detail) for result in found if result.subject == "wiki notes"] == [
        (True, "no pages yet")
    ]
    write(service, "notes", "Home")
    wait_until(lambda: scheduler.get_sync_state(wiki.id).synced_revision is not None)
    assert scheduler.get_sync_state(wiki.id).error is None
    assert service.get_handle("notes").search(SearchRequest("notescanary")).hits


@pytest.mark.parametrize("loses_index", [False, True])
def test_a_wiki_that_lost_all_its_pages_is_a_failure(
    service: WikiService, scheduler: Scheduler, tmp_path: Path, loses_index: bool
) -> None:
    wiki = service.create("notes", {})
    shutil.copytree(wiki.source, tmp_path / "empty")
    write(service, "notes", "Home")
    wait_until(lambda: scheduler.get_sync_state(wiki.id).synced_revision is not None)
    service.get_handle("notes").backups.create()
    shutil.rmtree(wiki.source)
    shutil.copytree(tmp_path / "empty", wiki.source)
    if loses_index:
        service.components.store.delete(wiki.id)
    wait_until(lambda: scheduler.get_counters().failing == 1)
    for error in (scheduler.get_sync_state(wiki.id).error, service.get_handle("notes").get_status().error):
        assert isinstance(error, NoCommits)
        assert not isinstance(error, NoPagesYet)
    with pytest.raises(NoCommits, match="any more"):
        service.get_handle("notes").sync()


def test_a_lost_branch_does_not_look_like_a_new_wiki(service: WikiService) -> None:
    wiki = service.create("notes", {})
    write(service, "notes", "Home")
    (Path(wiki.source) / "refs/heads/main").unlink()
    with pytest.raises(NoCommits) as caught:
        service.get_handle("notes").sync()
    assert not isinstance(caught.value, NoPagesYet)


def test_all_pages_deleted_is_a_failure(service: WikiService, scheduler: Scheduler) -> None:
    wiki = service.create("notes", {})
    write(service, "notes", "Home")
    wait_until(lambda: scheduler.get_sync_state(wiki.id).synced_revision is not None)
    service.get_handle("notes").pages.delete("Home", ADA)
    wait_until(lambda: isinstance(scheduler.get_sync_state(wiki.id).error, NoPages))
    assert scheduler.get_counters().failing == 1


def test_an_added_repository_without_commits_is_a_failure(
    service: WikiService, scheduler: Scheduler, tmp_path: Path
) -> None:
    Repository(tmp_path / "empty")
    wiki = service.add("notes", str(tmp_path / "empty"), {})
    wait_until(lambda: scheduler.get_counters().failing == 1)
    error = scheduler.get_sync_state(wiki.id).error
    assert isinstance(error, NoCommits)
    assert not isinstance(error, NoPagesYet)
