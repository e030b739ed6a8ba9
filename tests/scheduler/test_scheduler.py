"""Wikis that come, change, break, go and come back while a keeper runs."""

import shutil
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages, wait_until
from tests.support.git_repository import Repository
from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoPages, SourceCorrupt, WikiNotFound
from wikiholt.scheduler.wiki_records import WikiEntry


def test_a_repository_that_appears_becomes_searchable(ground: SchedulerFixture) -> None:
    keeper = ground.make_scheduler()
    assert keeper.get_counters().wikis == 0
    ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing beans like warmth.\n"})
    wait_until(lambda: ground.can_find("garden", "climbing beans", "Beans"))
    assert keeper.get_counters().wikis == 1


def test_a_commit_is_noticed_without_being_told(ground: SchedulerFixture) -> None:
    repository = ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.make_scheduler()
    wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
    commit = repository.commit({"Peas.md": "# Peas\n\nSow them early.\n"})
    wait_until(lambda: keeper.get_sync_state(ground.get_wiki_id("garden")).synced_revision == commit)
    assert ground.can_find("garden", "sow early", "Peas")


def test_a_repository_that_disappears_keeps_its_wiki_and_is_told_missing_until_it_is_back(
    ground: SchedulerFixture,
) -> None:
    repository = ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.make_scheduler()
    wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
    wiki = ground.get_wiki_id("garden")
    away = repository.path.rename(ground.wikis.parent / "unmounted")
    wait_until(lambda: keeper.get_sync_state(wiki).missing)
    assert keeper.get_counters().missing == 1
    assert keeper.get_sync_state(wiki).failures == 0
    assert ground.can_find("garden", "climbing", "Beans")
    Repository.commit(Repository(away), {"Peas.md": "# Peas\n\nSow early.\n"})
    away.rename(repository.path)
    wait_until(lambda: ground.can_find("garden", "sow early", "Peas"))
    assert not keeper.get_sync_state(wiki).missing
    assert ground.get_wiki_id("garden") == wiki


def test_a_wiki_removed_while_it_syncs_is_gone_and_is_not_found_again(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    gate = embedder.block("garden text 100")
    ground.create_repository("garden", make_pages(400, "garden"))
    keeper = ground.make_scheduler()
    assert embedder.reached.wait(60)
    wiki = ground.get_wiki_id("garden")
    assert keeper.get_activity(wiki) is not None
    gate.set()
    assert "CURRENT" in ground.service.remove("garden").files
    assert not ground.store.get_directory(wiki).exists()
    ground.create_repository("later", {"A.md": "# A\n\nAnother wiki.\n"})
    wait_until(lambda: ground.can_find("later", "another", "A"))
    assert not ground.store.get_directory(wiki).exists()
    assert [found.slug for found in ground.service.registry.list_wikis()] == ["later"]
    with pytest.raises(WikiNotFound):
        keeper.get_sync_state(wiki)
    keeper.touch(wiki)
    with pytest.raises(WikiNotFound):
        keeper.notify_changed(wiki)


def test_a_wiki_registered_elsewhere_is_taken_up_and_its_repository_not_registered_twice(
    ground: SchedulerFixture,
) -> None:
    repository = ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    ground.make_scheduler()
    wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
    ground.service.remove("garden")
    ground.service.add("plot", str(repository.path), {})
    wait_until(lambda: ground.can_find("plot", "climbing", "Beans"))
    ground.create_repository("later", {"A.md": "# A\n\nAnother.\n"})
    wait_until(lambda: ground.can_find("later", "another", "A"))
    assert [wiki.slug for wiki in ground.service.registry.list_wikis()] == ["later", "plot"]


def test_what_cannot_be_taken_up_is_told_and_keeps_nothing_from_being_taken_up(ground: SchedulerFixture) -> None:
    there = ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    elsewhere = Repository(ground.data.parent / "elsewhere")
    elsewhere.commit({"A.md": "# A\n\nAnother.\n"})
    ground.service.add("plot", str(elsewhere.path), {})
    odd = DiscoveredRepository("Bad Name", there.path.with_name("Bad Name"), "it has a space")
    taken = DiscoveredRepository("plot", ground.wikis / "plot")
    found = ground.find_repositories
    ground.find_repositories = lambda: [odd, taken, *found()]  # type: ignore[method-assign]
    keeper = ground.make_scheduler()
    wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
    assert [finding.slug for finding in keeper.skipped] == ["Bad Name", "plot"]
    assert all(finding.reason for finding in keeper.skipped)


def test_a_broken_repository_backs_off_and_harms_no_other(ground: SchedulerFixture) -> None:
    broken = ground.create_repository("broken", {"A.md": "# A\n\nOnce whole.\n"})
    (broken.path / ".git" / "refs" / "heads" / "main").write_text("not a commit\n")
    keeper = ground.make_scheduler(interval=0.05)
    wait_until(lambda: broken.path and keeper.get_counters().failing == 1)
    for number in range(3):
        slug = f"well-{number}"
        ground.create_repository(slug, {"A.md": "# A\n\nWell and good.\n"})
        wait_until(lambda slug=slug: ground.can_find(slug, "well and good", "A"))
    standing = keeper.get_sync_state(ground.get_wiki_id("broken"))
    assert isinstance(standing.error, SourceCorrupt)
    # Tries are ever farther apart, however long all this takes here, and looks are not.
    assert 1 <= standing.failures <= 5
    looks = keeper.get_counters().looks
    wait_until(lambda: keeper.get_counters().looks > looks + 20)
    assert keeper.get_sync_state(ground.get_wiki_id("broken")).failures <= standing.failures + 1
    (broken.path / ".git" / "refs" / "heads" / "main").unlink()
    broken.run_git("reset", "--hard", "HEAD@{0}", check=False)
    broken.commit({"A.md": "# A\n\nWhole again.\n"})
    keeper.notify_changed(ground.get_wiki_id("broken"))
    wait_until(lambda: ground.can_find("broken", "whole again", "A"))
    assert keeper.get_sync_state(ground.get_wiki_id("broken")).failures == 0


def test_delays_between_tries_double_up_to_an_hour_with_jitter() -> None:
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


def test_a_wiki_without_pages_is_told_and_synced_when_its_first_page_comes(ground: SchedulerFixture) -> None:
    repository = ground.create_repository("empty", {"notes.txt": "no page"})
    keeper = ground.make_scheduler()
    wait_until(lambda: keeper.get_counters().failing == 1)
    wiki = ground.get_wiki_id("empty")
    assert isinstance(keeper.get_sync_state(wiki).error, NoPages)
    syncs = keeper.get_counters().syncs
    repository.commit({"A.md": "# A\n\nThe first page.\n"})
    wait_until(lambda: ground.can_find("empty", "first page", "A"))
    wait_until(lambda: keeper.get_counters().failing == 0)
    assert keeper.get_counters().syncs == syncs + 1


def test_an_index_that_is_lost_or_put_back_from_a_backup_is_brought_to_head(ground: SchedulerFixture) -> None:
    repository = ground.create_repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.make_scheduler()
    wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
    keeper.stop()
    directory = ground.store.get_directory(ground.get_wiki_id("garden"))
    backup = ground.data.parent / "backup"
    shutil.copytree(directory, backup)
    keeper = ground.make_scheduler()
    repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
    wait_until(lambda: ground.can_find("garden", "sow early", "Peas"))
    for attempt in count():  # the keeper may make the directory again at once
        directory.rename(ground.data.parent / f"before-{attempt}")
        try:
            backup.rename(directory)
            break
        except OSError:
            assert attempt < 100
    head = repository.get_head()
    wait_until(lambda: ground.service.get_handle("garden").get_indexed_revision() == head)
    wait_until(lambda: keeper.get_sync_state(ground.get_wiki_id("garden")).synced_revision == head)
    assert ground.service.get_handle("garden").check() == []
