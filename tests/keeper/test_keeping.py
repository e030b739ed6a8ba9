"""Wikis that come, change, break, go and come back while a keeper runs."""

import shutil
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest
from git_repository import Repository
from keeper_ground import Ground, WatchedEmbedder, many, until

from wikiholt.errors import NoPages, SourceBroken, WikiNotFound
from wikiholt.keeper import Finding
from wikiholt.keeper.entries import Entry
from wikiholt.model import Wiki


def test_a_repository_that_appears_becomes_searchable(ground: Ground) -> None:
    keeper = ground.keeper()
    assert keeper.counters().wikis == 0
    ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing beans like warmth.\n"})
    until(lambda: ground.finds("garden", "climbing beans", "Beans"))
    assert keeper.counters().wikis == 1


def test_a_commit_is_noticed_without_being_told(ground: Ground) -> None:
    repository = ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.keeper()
    until(lambda: ground.finds("garden", "climbing", "Beans"))
    commit = repository.commit({"Peas.md": "# Peas\n\nSow them early.\n"})
    until(lambda: keeper.standing(ground.id("garden")).synced_revision == commit)
    assert ground.finds("garden", "sow early", "Peas")


def test_a_repository_that_disappears_keeps_its_wiki_and_is_told_missing_until_it_is_back(ground: Ground) -> None:
    repository = ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.keeper()
    until(lambda: ground.finds("garden", "climbing", "Beans"))
    wiki = ground.id("garden")
    away = repository.path.rename(ground.wikis.parent / "unmounted")
    until(lambda: keeper.standing(wiki).missing)
    assert keeper.counters().missing == 1
    assert keeper.standing(wiki).failures == 0
    assert ground.finds("garden", "climbing", "Beans")
    Repository.commit(Repository(away), {"Peas.md": "# Peas\n\nSow early.\n"})
    away.rename(repository.path)
    until(lambda: ground.finds("garden", "sow early", "Peas"))
    assert not keeper.standing(wiki).missing
    assert ground.id("garden") == wiki


def test_a_wiki_removed_while_it_syncs_is_gone_and_is_not_found_again(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    gate = embedder.hold("garden text 100")
    ground.repository("garden", many(400, "garden"))
    keeper = ground.keeper()
    assert embedder.reached.wait(60)
    wiki = ground.id("garden")
    assert keeper.activity(wiki) is not None
    gate.set()
    assert "CURRENT" in ground.service.remove("garden").files
    assert not ground.store.directory(wiki).exists()
    ground.repository("later", {"A.md": "# A\n\nAnother wiki.\n"})
    until(lambda: ground.finds("later", "another", "A"))
    assert not ground.store.directory(wiki).exists()
    assert [found.slug for found in ground.service.registry.list()] == ["later"]
    with pytest.raises(WikiNotFound):
        keeper.standing(wiki)
    keeper.asked(wiki)
    with pytest.raises(WikiNotFound):
        keeper.wake(wiki)


def test_a_wiki_registered_elsewhere_is_taken_up_and_its_repository_not_registered_twice(ground: Ground) -> None:
    repository = ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    ground.keeper()
    until(lambda: ground.finds("garden", "climbing", "Beans"))
    ground.service.remove("garden")
    ground.service.add("plot", str(repository.path), {})
    until(lambda: ground.finds("plot", "climbing", "Beans"))
    ground.repository("later", {"A.md": "# A\n\nAnother.\n"})
    until(lambda: ground.finds("later", "another", "A"))
    assert [wiki.slug for wiki in ground.service.registry.list()] == ["later", "plot"]


def test_what_cannot_be_taken_up_is_told_and_keeps_nothing_from_being_taken_up(ground: Ground) -> None:
    there = ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    elsewhere = Repository(ground.data.parent / "elsewhere")
    elsewhere.commit({"A.md": "# A\n\nAnother.\n"})
    ground.service.add("plot", str(elsewhere.path), {})
    odd = Finding("Bad Name", there.path.with_name("Bad Name"), "it has a space")
    taken = Finding("plot", ground.wikis / "plot")
    found = ground.find
    ground.find = lambda: [odd, taken, *found()]  # type: ignore[method-assign]
    keeper = ground.keeper()
    until(lambda: ground.finds("garden", "climbing", "Beans"))
    assert [finding.slug for finding in keeper.skipped] == ["Bad Name", "plot"]
    assert all(finding.reason for finding in keeper.skipped)


def test_a_broken_repository_backs_off_and_harms_no_other(ground: Ground) -> None:
    broken = ground.repository("broken", {"A.md": "# A\n\nOnce whole.\n"})
    (broken.path / ".git" / "refs" / "heads" / "main").write_text("not a commit\n")
    keeper = ground.keeper(interval=0.05)
    until(lambda: broken.path and keeper.counters().failing == 1)
    for number in range(3):
        slug = f"well-{number}"
        ground.repository(slug, {"A.md": "# A\n\nWell and good.\n"})
        until(lambda slug=slug: ground.finds(slug, "well and good", "A"))
    standing = keeper.standing(ground.id("broken"))
    assert isinstance(standing.error, SourceBroken)
    # Tries are ever farther apart, however long all this takes here, and looks are not.
    assert 1 <= standing.failures <= 5
    looks = keeper.counters().looks
    until(lambda: keeper.counters().looks > looks + 20)
    assert keeper.standing(ground.id("broken")).failures <= standing.failures + 1
    (broken.path / ".git" / "refs" / "heads" / "main").unlink()
    broken.git("reset", "--hard", "HEAD@{0}", check=False)
    broken.commit({"A.md": "# A\n\nWhole again.\n"})
    keeper.wake(ground.id("broken"))
    until(lambda: ground.finds("broken", "whole again", "A"))
    assert keeper.standing(ground.id("broken")).failures == 0


def test_delays_between_tries_double_up_to_an_hour_with_jitter() -> None:
    entry = Entry(Wiki("a" * 20, "a", "/nowhere", datetime.now(UTC)), 60.0, 0.0)
    delays = []
    for _ in range(16):
        entry.failed(SourceBroken("broken"), None, now=0.0)
        delays.append(entry.retry_at)
    for before, after in pairwise(delays[:8]):
        assert 1.1 < after / before < 3.5
    assert all(timedelta(minutes=44) < timedelta(seconds=delay) < timedelta(minutes=76) for delay in delays[11:])
    entry.forgiven()
    assert (entry.failures, entry.error, entry.retry_at) == (0, None, 0.0)


def test_a_wiki_without_pages_is_told_and_synced_when_its_first_page_comes(ground: Ground) -> None:
    repository = ground.repository("empty", {"notes.txt": "no page"})
    keeper = ground.keeper()
    until(lambda: keeper.counters().failing == 1)
    wiki = ground.id("empty")
    assert isinstance(keeper.standing(wiki).error, NoPages)
    syncs = keeper.counters().syncs
    repository.commit({"A.md": "# A\n\nThe first page.\n"})
    until(lambda: ground.finds("empty", "first page", "A"))
    until(lambda: keeper.counters().failing == 0)
    assert keeper.counters().syncs == syncs + 1


def test_an_index_that_is_lost_or_put_back_from_a_backup_is_brought_to_head(ground: Ground) -> None:
    repository = ground.repository("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    keeper = ground.keeper()
    until(lambda: ground.finds("garden", "climbing", "Beans"))
    keeper.stop()
    directory = ground.store.directory(ground.id("garden"))
    backup = ground.data.parent / "backup"
    shutil.copytree(directory, backup)
    keeper = ground.keeper()
    repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
    until(lambda: ground.finds("garden", "sow early", "Peas"))
    for attempt in count():  # the keeper may make the directory again at once
        directory.rename(ground.data.parent / f"before-{attempt}")
        try:
            backup.rename(directory)
            break
        except OSError:
            assert attempt < 100
    head = repository.head()
    until(lambda: ground.service.wiki("garden").settled_at() == head)
    until(lambda: keeper.standing(ground.id("garden")).synced_revision == head)
    assert ground.service.wiki("garden").check() == []
