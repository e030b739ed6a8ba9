"""A wiki that is indexed once, and commands in its directory."""

from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner, use_fake_model
from tests.interfaces.cli.house_wiki import HOUSE_FILES
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main


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
