"""Wikis that are added, changed, damaged, removed and restored while a scheduler runs."""

import shutil
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, pairwise

import pytest

from tests.support.git_repository import Repository, hang_git
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoPages, SourceCorrupt, WikiNotFound
from wikiholt.sync import tasks, wiki_records
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import WikiEntry


def test_a_commit_is_noticed_without_a_notification(fixture: SchedulerFixture) -> None:
    repository = fixture.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    commit = repository.commit({"Peas.md": "# Peas\n\nSow them early.\n"})
    wait_until(lambda: scheduler.get_sync_state(fixture.get_wiki_id("garden")).synced_revision == commit)
    assert fixture.can_find("garden", "sow early", "Peas")


def test_a_repository_that_disappears_keeps_its_wiki_and_is_reported_missing_until_it_returns(
    fixture: SchedulerFixture,
) -> None:
    repository = fixture.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    wiki = fixture.get_wiki_id("garden")
    wait_until(lambda: scheduler.get_sync_state(wiki).synced_revision == repository.get_head())
    away = repository.path.rename(fixture.wikis.parent / "unmounted")
    wait_until(lambda: scheduler.get_sync_state(wiki).missing)
    assert scheduler.get_counters().missing == 1
    assert scheduler.get_sync_state(wiki).failures == 0
    assert fixture.can_find("garden", "climbing", "Beans")
    Repository.commit(Repository(away), {"Peas.md": "# Peas\n\nSow early.\n"})
    away.rename(repository.path)
    wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
    assert not scheduler.get_sync_state(wiki).missing
    assert fixture.get_wiki_id("garden") == wiki


def test_a_wiki_removed_during_its_sync_is_deleted_and_not_discovered_again(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    gate = embedder.block("garden text 100")
    fixture.create_repository("garden", make_pages(400, "garden"))
    scheduler = fixture.make_scheduler()
    assert embedder.reached.wait(TIMEOUT_S)
    wiki = fixture.get_wiki_id("garden")
    assert scheduler.get_activity(wiki) is not None
    gate.set()
    assert "CURRENT" in fixture.service.remove("garden").files
    assert not fixture.store.get_directory(wiki).exists()
    fixture.create_repository("later", {"A.md": "# A\n\nAnother wiki.\n"})
    wait_until(lambda: fixture.can_find("later", "another", "A"))
    assert not fixture.store.get_directory(wiki).exists()
    assert [found.slug for found in fixture.service.registry.list_wikis()] == ["later"]
    with pytest.raises(WikiNotFound):
        scheduler.get_sync_state(wiki)
    scheduler.touch(wiki)
    with pytest.raises(WikiNotFound):
        scheduler.notify_changed(wiki)


def test_a_wiki_added_by_other_means_is_synced_and_its_repository_not_registered_twice(
    fixture: SchedulerFixture,
) -> None:
    repository = fixture.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    fixture.service.remove("garden")
    fixture.service.add("plot", str(repository.path), {})
    wait_until(lambda: fixture.can_find("plot", "climbing", "Beans"))
    fixture.create_repository("later", {"A.md": "# A\n\nAnother.\n"})
    wait_until(lambda: fixture.can_find("later", "another", "A"))
    assert [wiki.slug for wiki in fixture.service.registry.list_wikis()] == ["later", "plot"]


def test_skipped_repositories_are_reported_and_do_not_affect_the_others(fixture: SchedulerFixture) -> None:
    garden = fixture.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    elsewhere = Repository(fixture.data.parent / "elsewhere")
    elsewhere.commit({"A.md": "# A\n\nAnother.\n"})
    fixture.service.add("plot", str(elsewhere.path), {})
    invalid = DiscoveredRepository("Bad Name", garden.path.with_name("Bad Name"), "it has a space")
    duplicate = DiscoveredRepository("plot", fixture.wikis / "plot")
    find_repositories = fixture.find_repositories
    fixture.find_repositories = lambda: [invalid, duplicate, *find_repositories()]  # type: ignore[method-assign]
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    assert [repository.slug for repository in scheduler.skipped] == ["Bad Name", "plot"]
    assert all(repository.reason for repository in scheduler.skipped)


def test_a_broken_repository_is_retried_with_backoff_and_does_not_affect_the_others(fixture: SchedulerFixture) -> None:
    broken = fixture.create_repository("broken", {"A.md": "# A\n\nOnce whole.\n"})
    (broken.path / ".git" / "refs" / "heads" / "main").write_text("not a commit\n")
    began = time.monotonic()
    scheduler = fixture.make_scheduler(interval=0.05)
    wait_until(lambda: broken.path and scheduler.get_counters().failing == 1)
    for number in range(3):
        slug = f"well-{number}"
        fixture.create_repository(slug, {"A.md": "# A\n\nWell and good.\n"})
        wait_until(lambda slug=slug: fixture.can_find(slug, "well and good", "A"))
    state = scheduler.get_sync_state(fixture.get_wiki_id("broken"))
    assert isinstance(state.error, SourceCorrupt)
    looks = scheduler.get_counters().head_checks
    wait_until(lambda: scheduler.get_counters().head_checks > looks + 20)
    # The delay between retries doubles, however long this test takes. The interval of HEAD checks does not.
    failures = scheduler.get_sync_state(fixture.get_wiki_id("broken")).failures
    assert failures >= 1
    assert time.monotonic() - began >= 0.75 * wiki_records._FIRST_RETRY_S * (2 ** (failures - 1) - 1)
    (broken.path / ".git" / "refs" / "heads" / "main").unlink()
    broken.run_git("reset", "--hard", "HEAD@{0}", check=False)
    broken.commit({"A.md": "# A\n\nWhole again.\n"})
    scheduler.notify_changed(fixture.get_wiki_id("broken"))
    wait_until(lambda: fixture.can_find("broken", "whole again", "A"))
    wait_until(lambda: scheduler.get_sync_state(fixture.get_wiki_id("broken")).failures == 0)


def test_retry_delays_double_up_to_an_hour_with_jitter() -> None:
    entry = WikiEntry(Wiki("a" * 20, "a", "/nowhere", datetime.now(UTC)), 60.0, 0.0)
    delays = []
    for _ in range(16):
        entry.record_failure(SourceCorrupt("broken"), None, now=0.0)
        delays.append(entry.retry_at)
    for before, after in pairwise(delays[:8]):
        assert 1.1 < after / before < 3.5
    assert all(timedelta(minutes=44) < timedelta(seconds=delay) < timedelta(minutes=76) for delay in delays[11:])
    entry.clear_failures()
    assert (entry.failures, entry.error, entry.retry_at) == (0, None, 0.0)


def test_a_wiki_without_pages_is_reported_and_synced_after_its_first_page(fixture: SchedulerFixture) -> None:
    repository = fixture.create_repository("empty", {"notes.docx": "no page"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: scheduler.get_counters().failing == 1)
    wiki = fixture.get_wiki_id("empty")
    assert isinstance(scheduler.get_sync_state(wiki).error, NoPages)
    syncs = scheduler.get_counters().syncs
    repository.commit({"A.md": "# A\n\nThe first page.\n"})
    wait_until(lambda: fixture.can_find("empty", "first page", "A"))
    wait_until(lambda: scheduler.get_counters().failing == 0)
    assert scheduler.get_counters().syncs == syncs + 1


def test_an_index_replaced_by_an_older_copy_is_brought_to_head(fixture: SchedulerFixture) -> None:
    repository = fixture.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    assert scheduler.stop(TIMEOUT_S)
    directory = fixture.store.get_directory(fixture.get_wiki_id("garden"))
    backup = fixture.data.parent / "backup"
    shutil.copytree(directory, backup)
    scheduler = fixture.make_scheduler()
    repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
    wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
    for attempt in count():  # the scheduler may recreate the directory immediately
        directory.rename(fixture.data.parent / f"before-{attempt}")
        try:
            backup.rename(directory)
            break
        except OSError:
            assert attempt < 100
    head = repository.get_head()
    wait_until(lambda: fixture.service.get_handle("garden").get_indexed_revision() == head)
    wait_until(lambda: scheduler.get_sync_state(fixture.get_wiki_id("garden")).synced_revision == head)
    assert fixture.service.get_handle("garden").check() == []


def is_synced(scheduler: Scheduler, wiki_id: str, commit: str) -> bool:
    return scheduler.get_sync_state(wiki_id).synced_revision == commit


def test_repositories_that_hang_leave_a_worker_for_other_wikis(
    fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_LONG_FAILURE_S", 0.0)
    monkeypatch.setattr(wiki_records, "_FIRST_RETRY_S", 0.01)
    healthy = fixture.create_repository("healthy", {"Beans.md": "# Beans\n\nClimbing.\n"})
    hanging = [fixture.create_repository(f"hangs{number}", {"A.md": "# A\n"}) for number in range(5)]
    for repository in hanging:
        (repository.path / ".git/config").write_text("[this is no configuration")
    scheduler = fixture.make_scheduler(workers=2)
    wait_until(lambda: scheduler.get_counters().failing == 5)
    wait_until(lambda: fixture.can_find("healthy", "climbing", "Beans"))
    with hang_git(hanging):
        wait_until(lambda: scheduler.get_counters().running == 1)
        for number in range(5):
            scheduler.notify_changed(fixture.get_wiki_id(f"hangs{number}"))
            commit = healthy.commit({f"P{number}.md": f"# P{number}\n\nwordnumber{number}\n"})
            wait_until(partial(is_synced, scheduler, fixture.get_wiki_id("healthy"), commit))
        wait_until(lambda: scheduler.get_counters().running == 1)
        assert scheduler.get_counters().waiting == 4, "four wait while one hangs"
    wait_until(lambda: scheduler.get_counters().failing == 0)
