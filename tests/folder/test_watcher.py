"""Changes in watched directories are reported at once, and a directory that cannot be watched is polled."""

import errno
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.folder.conftest import Vault
from tests.support.wait import wait_until
from wikiholt.domain.wiki import Wiki
from wikiholt.folder import watcher as watcher_module
from wikiholt.folder.watcher import DirectoryWatcher

pytestmark = pytest.mark.skipif(watcher_module._INOTIFY is None, reason="this platform has no inotify")


def make_wiki(wiki_id: str, path: Path, **settings: str) -> Wiki:
    return Wiki(wiki_id, wiki_id, str(path), datetime.now(UTC), {"kind": "directory", **settings})


class Reports:
    """The reported wikis."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def take(self, wiki_id: str) -> None:
        """Wait until this wiki is reported, and forget all reports."""
        wait_until(lambda: wiki_id in self.ids)
        self.ids.clear()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def watcher(reports: Reports) -> Iterator[DirectoryWatcher]:
    started = DirectoryWatcher()
    started.start(reports.ids.append)
    yield started
    started.close()
    started.close()


def test_every_kind_of_change_is_reported(vault: Vault, watcher: DirectoryWatcher, reports: Reports) -> None:
    vault.write("deep/Home.md", "text")
    watcher.update([make_wiki("notes", vault.path)])
    assert watcher.is_watching("notes")
    reports.take("notes")  # it may have changed before
    vault.write("deep/Home.md", "more")
    reports.take("notes")
    (vault.path / "deep/Home.md").rename(vault.path / "Start.md")
    reports.take("notes")
    (vault.path / "Start.md").unlink()
    reports.take("notes")
    vault.write("new/er/Page.md", "text")
    reports.take("notes")
    vault.write("new/er/Page.md", "in a directory that did not exist before")
    reports.take("notes")


def test_only_wikis_that_are_wanted_are_watched(
    vault: Vault, tmp_path: Path, watcher: DirectoryWatcher, reports: Reports
) -> None:
    (tmp_path / "other").mkdir()
    (vault.path / "docs").mkdir()
    wikis = [
        make_wiki("notes", vault.path),
        make_wiki("docs", vault.path, subdirectory="docs"),
        make_wiki("other", tmp_path / "other"),
    ]
    repository = Wiki("git", "git", str(tmp_path), datetime.now(UTC))
    watcher.update([*wikis, repository])
    assert [watcher.is_watching(wiki.id) for wiki in (*wikis, repository)] == [True, True, True, False]
    wait_until(lambda: {"notes", "docs", "other"} <= set(reports.ids))
    reports.ids.clear()
    vault.write("docs/Page.md", "text")
    wait_until(lambda: {"notes", "docs"} <= set(reports.ids))
    assert "other" not in reports.ids
    watcher.update(wikis[2:])
    assert [watcher.is_watching(wiki.id) for wiki in wikis] == [False, False, True]
    (tmp_path / "other" / "Home.md").write_text("after it, no earlier report is on its way")
    reports.take("other")
    vault.write("docs/Page.md", "again")
    (tmp_path / "other" / "Home.md").write_text("text")
    reports.take("other")
    assert "notes" not in reports.ids


def test_hidden_directories_are_not_watched(vault: Vault, watcher: DirectoryWatcher, reports: Reports) -> None:
    vault.write(".obsidian/a.md", "text")
    vault.write("Home.md", "text")
    watcher.update([make_wiki("notes", vault.path)])
    reports.take("notes")
    vault.write(".obsidian/a.md", "changed")
    time.sleep(0.6)
    assert reports.ids == []


def test_a_directory_that_vanishes_is_watched_again_when_it_is_back(
    vault: Vault, watcher: DirectoryWatcher, reports: Reports
) -> None:
    wiki = make_wiki("notes", vault.path)
    watcher.update([wiki])
    reports.take("notes")
    vault.path.rmdir()
    reports.take("notes")
    wait_until(lambda: not watcher.is_watching("notes"))
    watcher.update([wiki])
    assert not watcher.is_watching("notes")
    vault.path.mkdir()
    watcher.update([wiki])
    assert watcher.is_watching("notes")


def test_a_directory_with_more_directories_than_watches_is_polled(
    vault: Vault,
    watcher: DirectoryWatcher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vault.write("deep/Home.md", "text")
    wiki = make_wiki("notes", vault.path)

    class NoWatches:
        inotify_init1 = watcher_module._INOTIFY.inotify_init1  # type: ignore[union-attr]

        def inotify_add_watch(self, *_: object) -> int:
            watcher_module.ctypes.set_errno(errno.ENOSPC)
            return -1

    monkeypatch.setattr(watcher_module, "_INOTIFY", NoWatches())
    watcher.update([wiki])
    watcher.update([wiki])
    assert not watcher.is_watching("notes")
    assert caplog.text.count("fs.inotify.max_user_watches") == 1


def test_without_inotify_nothing_is_watched(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_INOTIFY", None)
    idle = DirectoryWatcher()
    idle.start(lambda _: None)
    idle.update([make_wiki("notes", vault.path)])
    assert not idle.is_watching("notes")
    idle.close()
