"""The dialect and the skipped files of a wiki, on the command line."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository


@pytest.fixture
def run_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    repository = Repository(tmp_path / "vault")
    repository.commit(
        {
            ".obsidian/app.json": "{}",
            "Home.md": "# Home\n\nTo [[Soil|the soil]]. %%secret%%\n\n> [!tip]- Worms\n> They dig.\n",
            "garden/Soil.md": "Dark.\n",
            "pane.png": "x",
            "plan.dwg": "x",
        }
    )
    monkeypatch.chdir(repository.path)
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


def test_the_dialect_is_detected_shown_and_changed(run_here: CommandRunner) -> None:
    run_here("add", "vault", ".")
    assert "  2 files skipped: 1 .dwg, 1 .png" in run_here("sync", "vault").out.splitlines()
    assert "· obsidian ·" in run_here("status", "vault").out
    status = json.loads(run_here("status", "vault", "--json").out)
    assert (status["dialect"], status["skipped"]) == ("obsidian", {".dwg": 1, ".png": 1})
    page = run_here("read", "Home").out
    assert ("secret" in page, "[!tip]" in page, "Worms" in page) == (False, False, True)
    assert "%%secret%%" in run_here("read", "Home", "--raw").out
    assert run_here("set", "vault", "dialect=gollum").code == 0
    assert "(rebuilt)" in run_here("sync", "vault").out
    assert json.loads(run_here("status", "vault", "--json").out)["dialect"] == "gollum"


def test_an_unknown_dialect_is_refused_with_the_closest_name(run_here: CommandRunner) -> None:
    refused = run_here("add", "vault", ".", "--dialect", "obsidain")
    assert refused.code == 2
    assert "Did you mean 'obsidian'?" in refused.err
    assert json.loads(run_here("list", "--json").out) == {"wikis": []}
