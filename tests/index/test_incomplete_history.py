"""A repository whose HEAD is complete is indexed, even if its history is not; a warning says what is missing."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.index.sync_fixtures import WIKI_ID, SyncFixture
from tests.support.git_repository import Repository
from wikiholt.domain.search import PageFilter
from wikiholt.git.source import GitSource
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.index.sync import Syncer

TEXT = "# Ferries\n\nThey cross the fjord at night, and in the morning they return.\n"


@pytest.fixture
def wiki(tmp_path: Path) -> SyncFixture:
    """A wiki with an unedited rename, an edited rename of another page, and an old picture."""
    wiki = SyncFixture(tmp_path)
    repository = wiki.repository
    repository.commit({"a.md": TEXT, "c.md": TEXT.replace("Ferries", "Trains"), "old.png": b"\x89PNG" + b"x" * 999})
    repository.run_git("mv", "a.md", "b.md")
    repository.commit({"old.png": None, "new.png": b"\x89PNG" + b"y" * 999})
    repository.run_git("mv", "c.md", "d.md")
    repository.commit({"d.md": TEXT.replace("Ferries", "Trains") + "They are late.\n"})
    repository.commit({"e.md": "# Buses\n"})
    repository.run_git("config", "uploadpack.allowFilter", "true")
    return wiki


def clone(wiki: SyncFixture, directory: Path, *options: str) -> Repository:
    """Let the wiki be a clone with these options. Its remote is in reach, but a sync must not use it."""
    original = wiki.repository
    original.run_git("clone", "--quiet", *options, f"file://{original.path}", str(directory))
    wiki.repository, wiki.source = Repository(directory), GitSource(directory)
    return original


def read_dates(wiki: SyncFixture) -> dict[str, datetime | None]:
    index = wiki.store.open(WIKI_ID)
    dates = {page.path: page.last_updated for page in index.list_pages(PageFilter(), None)[1]}
    index.close()
    return dates


def get_dates(repository: Repository, **commits: int) -> dict[str, datetime]:
    return {path: datetime.fromtimestamp(repository.get_commit_time(number), UTC) for path, number in commits.items()}


def test_a_complete_history_has_no_warning(wiki: SyncFixture) -> None:
    assert wiki.sync().history_warning == ""
    assert wiki.get_aliases() == {"b": ("a",), "d": ("c",)}
    assert read_dates(wiki) == get_dates(wiki.repository, b=2, d=3, e=4)
    assert wiki.store.get_note(WIKI_ID, "history") is None


def test_a_partial_clone_is_indexed_and_completed_later(wiki: SyncFixture, tmp_path: Path) -> None:
    original = clone(wiki, tmp_path / "partial", "--filter=blob:none")
    report = wiki.sync()
    assert report.added == 3
    assert "partial" in report.history_warning
    assert wiki.get_aliases() == {"b": ("a",)}, "a page that was renamed without an edit is found by its hash"
    assert read_dates(wiki) == get_dates(original, b=2, d=3, e=4), "dates need no old content"
    wiki.repository.run_git("fetch", "--quiet", "--refetch", "--no-filter")
    report = wiki.sync()
    assert (report.history_warning, report.chunks_embedded) == ("", 0)
    assert wiki.get_aliases() == {"b": ("a",), "d": ("c",)}
    assert wiki.sync().changed == 0, "nothing is left to complete"


def test_a_shallow_clone_is_indexed_and_completed_later(wiki: SyncFixture, tmp_path: Path) -> None:
    original = clone(wiki, tmp_path / "shallow", "--depth=1")
    assert "--unshallow" in wiki.sync().history_warning
    assert read_dates(wiki) == get_dates(original, b=4, d=4, e=4)
    wiki.repository.commit({"f.md": "# Trams\n"})
    assert "--unshallow" in wiki.sync().history_warning
    wiki.repository.run_git("fetch", "--quiet", "--unshallow")
    report = wiki.sync()
    assert (report.history_warning, report.chunks_embedded) == ("", 0)
    assert read_dates(wiki).items() >= get_dates(original, b=2, d=3, e=4).items()
    assert wiki.get_aliases() == {"b": ("a",), "d": ("c",)}


def test_pages_indexed_by_a_sync_that_was_paused_are_completed_too(
    wiki: SyncFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.index.batch._MAX_BATCH_TEXTS", 1)
    original = clone(wiki, tmp_path / "shallow", "--depth=1")
    syncer = Syncer(WIKI_ID, wiki.store, wiki.source, wiki.embedder, wiki.pipeline, 0.05)
    with pytest.raises(SyncPaused):
        syncer.sync(pause=lambda: Pause.AFTER_BATCH)
    assert read_dates(wiki) == get_dates(original, b=4, d=4, e=4)
    wiki.repository.run_git("fetch", "--quiet", "--unshallow")
    assert wiki.sync().history_warning == ""
    assert read_dates(wiki) == get_dates(original, b=2, d=3, e=4)


@pytest.mark.parametrize("lost", ["old.png", "a commit", "a tree"])
def test_a_gap_in_the_history_does_not_stop_the_wiki(wiki: SyncFixture, lost: str) -> None:
    name = {"old.png": "HEAD~3:old.png", "a commit": "HEAD~3", "a tree": "HEAD~3^{tree}"}[lost]
    file = wiki.repository.get_loose_object_file(wiki.repository.run_git("rev-parse", name).decode())
    content = file.read_bytes()
    file.unlink()
    report = wiki.sync()
    assert report.added == 3
    assert "git fsck" in report.history_warning
    assert wiki.get_aliases()["d"] == ("c",), "renames after the gap are found"
    file.write_bytes(content)
    assert wiki.sync().history_warning == ""
    assert wiki.get_aliases() == {"b": ("a",), "d": ("c",)}
    assert read_dates(wiki) == get_dates(wiki.repository, b=2, d=3, e=4)


def test_a_hostile_gitmodules_file_does_not_stop_the_wiki(tmp_path: Path) -> None:
    wiki = SyncFixture(tmp_path)
    repository = wiki.repository
    repository.commit({"a.md": TEXT, ".gitmodules": '[submodule "x"]\n\tpath = x\n\tupdate = !true\n'})
    for commit in ("1" * 40, "2" * 40):
        repository.run_git("update-index", "--add", "--cacheinfo", f"160000,{commit},x")
        repository.run_git("commit", "--quiet", "-m", "Change a submodule")
    report = wiki.sync()
    assert (report.added, report.history_warning) == (1, "")
    assert read_dates(wiki) == get_dates(repository, a=1)
    assert [commit.message for commit in wiki.source.read_history("a.md")] == ["Write"]
    assert [entry.files for entry in wiki.source.read_log(9)] == [("a.md",)]
