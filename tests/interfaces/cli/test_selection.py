"""Which wiki a command means when it names none."""

import os
from argparse import Namespace
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.services import make_cached_service
from wikiholt.api.settings.definitions import Settings
from wikiholt.errors import WikiNotFound
from wikiholt.interfaces.cli.command import CommandContext
from wikiholt.interfaces.cli.selection import resolve_wiki


def resolve(data: Path, slug: str | None = None) -> str:
    with closing(make_cached_service(data)) as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr("wikiholt.interfaces.cli.command.open_service", lambda _: service)
        return resolve_wiki(CommandContext(Namespace(wiki=slug), Settings())).slug


def add(data: Path, slug: str, source: Path, **settings: str) -> None:
    with closing(make_cached_service(data)) as service:
        service.add(slug, str(source), settings)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def garden(tmp_path: Path, data: Path) -> Path:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "home", "docs/de/Start.md": "start", "notes/x.md": "x"})
    add(data, "garden", repository.path)
    return repository.path


@pytest.fixture
def other(tmp_path: Path, data: Path, garden: Path) -> Path:
    repository = Repository(tmp_path / "other")
    repository.commit({"Home.md": "home"})
    add(data, "other", repository.path)
    return repository.path


def test_the_only_wiki_needs_no_name(data: Path, garden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(data) == "garden"


def test_the_current_directory_selects_its_wiki(data: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(other)
    assert resolve(data) == "other"
    monkeypatch.chdir(other.parent / "garden" / "docs")
    assert resolve(data) == "garden"
    assert resolve(data, "other") == "other", "a named wiki wins"


def test_the_directory_may_be_reached_by_a_link(
    data: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "garden" / "docs")
    monkeypatch.chdir(tmp_path / "link")
    assert resolve(data) == "garden"


def test_the_deepest_directory_wins(data: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = other.parent / "garden"
    add(data, "german", garden, subdirectory="docs/de/")
    monkeypatch.chdir(garden / "docs" / "de")
    assert resolve(data) == "german"
    monkeypatch.chdir(garden / "docs")
    assert resolve(data) == "garden"


def test_a_repository_selects_the_wiki_in_its_subdirectory(
    tmp_path: Path, data: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "manual")
    repository.commit({"docs/Start.md": "start", "src/a.txt": "a"})
    add(data, "manual", repository.path, subdirectory="docs")
    monkeypatch.chdir(repository.path / "src")
    assert resolve(data) == "manual"


def test_no_wiki_is_guessed(data: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WikiNotFound) as error:
        resolve(data)
    assert error.value.hint == "Name one with --wiki: garden, other"
    add(data, "second", other)
    monkeypatch.chdir(other)
    with pytest.raises(WikiNotFound) as error:
        resolve(data)
    assert error.value.hint == "Name one with --wiki: other, second"


def test_without_wikis_the_hint_says_how_to_add_one(data: Path) -> None:
    with pytest.raises(WikiNotFound) as error:
        resolve(data)
    assert "wikiholt add" in error.value.hint


def test_a_deleted_current_directory_selects_nothing(
    data: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(WikiNotFound):
        resolve(data)
    os.chdir(tmp_path)
