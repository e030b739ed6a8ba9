"""Wikis in directories: scanned on schedule, and at once when a watcher reports a change."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import SchedulerFixture
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoPages
from wikiholt.folder.source import DirectorySource
from wikiholt.folder.watcher import DirectoryWatcher
from wikiholt.index.pipeline import TextPipeline
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.wikis.live_index import WikiConfig

_NEVER_S = 3600.0


class DirectorySchedulerFixture(SchedulerFixture):
    def make_config(self, wiki: Wiki) -> WikiConfig:
        source = DirectorySource(Path(wiki.source), self.store.get_directory(wiki.id))
        return WikiConfig(source, TextPipeline(), "{path}")

    def make_watching_scheduler(self, interval: float) -> Scheduler:
        config = SchedulerConfig(1, 10.0, 0.1, lambda _: interval)
        scheduler = Scheduler(self.service, config, watcher=DirectoryWatcher())
        self.schedulers.append(scheduler)
        scheduler.start()
        return scheduler

    def add_directory(self, slug: str, pages: dict[str, str]) -> tuple[Path, str]:
        path = self.wikis / slug
        path.mkdir()
        for name, text in pages.items():
            (path / name).write_text(text)
        return path, self.service.registry.add(slug, str(path), {"kind": "directory"}).id


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[DirectorySchedulerFixture]:
    created = DirectorySchedulerFixture(tmp_path)
    yield created
    created.close()


def test_a_directory_is_polled_and_fresh_waits_for_a_scan(fixture: DirectorySchedulerFixture) -> None:
    path, wiki = fixture.add_directory("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    assert not scheduler.get_sync_state(wiki).watched
    (path / "Peas.md").write_text("# Peas\n\nSow early.\n")
    wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
    (path / "Sage.md").write_text("# Sage\n\nDry soil.\n")
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    assert fixture.can_find("garden", "dry soil", "Sage")


def test_a_missing_directory_keeps_its_index_and_comes_back(fixture: DirectorySchedulerFixture) -> None:
    path, wiki = fixture.add_directory("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_scheduler()
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    away = path.with_name("away")
    path.rename(away)
    wait_until(lambda: scheduler.get_sync_state(wiki).missing)
    assert fixture.can_find("garden", "climbing", "Beans")
    began = time.monotonic()
    assert not scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    assert time.monotonic() - began < TIMEOUT_S, "one attempt is enough"
    (away / "Peas.md").write_text("# Peas\n\nSow early.\n")
    away.rename(path)
    wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
    assert not scheduler.get_sync_state(wiki).missing
    for name in ("Peas.md", "Beans.md"):  # a scan between the two may remove Peas from the index
        (path / name).unlink()
    wait_until(lambda: isinstance(scheduler.get_sync_state(wiki).error, NoPages))
    assert fixture.can_find("garden", "climbing", "Beans")


def test_a_watched_directory_is_synced_without_waiting_for_its_interval(fixture: DirectorySchedulerFixture) -> None:
    path, wiki = fixture.add_directory("garden", {"Beans.md": "# Beans\n\nClimbing.\n"})
    scheduler = fixture.make_watching_scheduler(_NEVER_S)
    wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
    wait_until(lambda: scheduler.get_sync_state(wiki).watched)
    (path / "Peas.md").write_text("# Peas\n\nSow early.\n")
    wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
    (path / "shed").mkdir()
    (path / "shed" / "Tools.md").write_text("# Tools\n\nA spade.\n")
    wait_until(lambda: fixture.can_find("garden", "spade", "shed/Tools"))
    shutil.rmtree(path / "shed")
    wait_until(lambda: not fixture.can_find("garden", "spade", "shed/Tools"))
    assert fixture.can_find("garden", "sow early", "Peas")
