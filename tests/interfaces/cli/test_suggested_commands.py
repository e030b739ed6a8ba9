"""A command that a message suggests works as printed: it has the options that select the installation."""

import logging
import re
import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import use_fake_model
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.command import complete_commands
from wikiholt.interfaces.cli.log_output import SafeFormatter
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.cli.parser import COMMANDS

SUGGESTION_PATTERN = re.compile(rf"wikiholt (?:--\S+ \S+ )*(?:{'|'.join(COMMANDS)})\b")


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of an installation that a command cannot find without them."""
    use_fake_model(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    Repository(tmp_path / "garden").commit({"Home.md": "# Home\n\nTea and apples.\n"})
    return ["--data", str(tmp_path / "my data")]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    main([*arguments])
    captured = capsys.readouterr()
    return captured.out + captured.err


def find_next_command(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("Next: "))
    program, *arguments = shlex.split(line.removeprefix("Next: "))
    assert program == "wikiholt"
    return arguments


def test_the_next_command_works_as_printed(location: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = find_next_command(run(capsys, *location, "add", "garden"))
    assert command == [*location, "sync", "garden"]
    assert main(["--set", "model=fake", *command]) == 0


def test_a_settings_file_is_named_too(location: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "our settings.toml"
    file.write_text(f"data = {str(tmp_path / 'elsewhere')!r}\nmodel = 'fake'\n")
    command = find_next_command(run(capsys, "--config", str(file), "add", "garden"))
    assert command == ["--config", str(file), "sync", "garden"]
    assert main(command) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["create", "notes"],
        ["restore", "garden"],
        ["rebind", "garden"],
        ["key", "list"],
        ["key", "create", "garden"],
        ["status"],
        ["status", "--json"],
        ["status", "absent"],
        ["sync", "absent"],
        ["doctor"],
        ["doctor", "--json"],
        ["report", "garden"],
        ["search", "--no-sync", "-w", "new", "tea"],
        ["search", "garden", "tea"],
        ["read", "-w", "garden", "Absent"],
    ],
)
def test_every_suggested_command_selects_the_installation(
    location: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    options = [*location, "--set", "model=fake"]
    if arguments != ["list"]:
        run(capsys, *options, "add", "garden")
        run(capsys, *options, "sync")
        run(capsys, *options, "backup")
        Repository(tmp_path / "new").commit({"Home.md": "tea"})
        run(capsys, *options, "add", "new")
        Repository(tmp_path / "garden").commit({"New.md": "tea"})
    text = run(capsys, *options, *arguments).replace(str(tmp_path), "").replace("'/my data'", "DATA")
    suggested = SUGGESTION_PATTERN.findall(text)
    assert suggested, text
    assert all(command.startswith("wikiholt --data DATA ") for command in suggested)


def test_the_text_of_a_page_is_not_changed(
    location: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [*location, "--set", "model=fake"]
    Repository(tmp_path / "garden").commit({"Home.md": "# Home\n\nRun `wikiholt sync garden` after an edit.\n"})
    run(capsys, *options, "add", "garden")
    run(capsys, *options, "sync")
    assert "Run wikiholt sync garden after" in run(capsys, *options, "read", "-w", "garden", "Home")
    assert "wikiholt sync garden" in run(capsys, *options, "search", "-w", "garden", "edit")


def test_a_password_is_not_shown() -> None:
    arguments = Namespace(data=None, config=None, set=["threads=1", "store=postgresql://ada:secret@host/wikis"])
    assert complete_commands("run `wikiholt sync`", arguments) == "run `wikiholt --set 'store=…' sync`"


def test_without_options_a_suggestion_stays_as_it_is() -> None:
    arguments = Namespace(data=None, config=None, set=[])
    assert complete_commands("Next: wikiholt sync garden", arguments) == "Next: wikiholt sync garden"


def test_a_log_line_names_the_installation_too() -> None:
    formatter = SafeFormatter("%(message)s")
    formatter.arguments = Namespace(data=Path("d"), config=None, set=[])
    record = logging.makeLogRecord({"msg": "no wikis yet; add one with `wikiholt add SLUG PATH`"})
    assert formatter.format(record) == "no wikis yet; add one with `wikiholt --data d add SLUG PATH`"
