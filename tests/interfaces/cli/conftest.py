"""A wiki that is indexed once, with commands in its directory, and a new data directory for tests that change it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner, use_fake_model
from tests.interfaces.cli.house_wiki import HOUSE_FILES
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main
from wikiholt.wikis.registry import Registry


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    repository = Repository(directory / "house")
    repository.commit({"Old.md": "# Old\n"}, "Start")
    repository.commit({**HOUSE_FILES, "Old.md": None}, "Write the house\n\nwith details")
    repository.commit({"Home.md": "# Home\n\nWelcome to the boiler room.\n\nMind the step.\n"}, "Warn")
    with pytest.MonkeyPatch.context() as patch:
        use_fake_model(patch)
        base = ["--data", str(directory / "data"), "--set", "model=fake"]
        assert main([*base, "add", "house", str(repository.path)]) == 0
        assert main([*base, "sync", "house", "--quiet"]) == 0
    return directory


@pytest.fixture
def run(prepared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    for name in ("VISUAL", "EDITOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(prepared / "house")
    return CommandRunner(prepared / "data", capsys, monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def garden(run: CommandRunner, tmp_path: Path) -> Repository:
    """A repository that `run` has added as the wiki garden."""
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond."})
    assert run("add", "garden", str(repository.path))[0] == 0
    return repository


@pytest.fixture
def registry(data: Path) -> Iterator[Registry]:
    with closing(Registry(data / "registry.sqlite")) as opened:
        yield opened
