"""`completion` and `man`: written from the argument parser, and the installed manual page is current."""

import shutil
import subprocess
import tomllib
from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.paths import ROOT
from wikiholt.interfaces.cli.parser import build_parser
from wikiholt.interfaces.cli.shell_commands import read_commands

MAN_PAGE = "docs/wikiholt.1"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


def test_every_command_is_in_the_tree() -> None:
    commands = {command.name: command for command in read_commands(build_parser())}
    assert {"", "search", "key", "key create", "move"} <= set(commands)
    options = {name for option in commands["search"].options for name in option.names}
    assert {"--mode", "-n", "--json", "--rerank", "--no-rerank"} <= options
    (slug,) = commands["sync"].arguments
    assert (slug.kind, slug.optional) == ("slugs", True)


def test_help_texts_are_complete_and_hidden_options_stay_hidden() -> None:
    parser = ArgumentParser(description="d")
    parser.add_argument("--size", default=5, help="size (default: %(default)s)")
    parser.add_argument("--secret", help="==SUPPRESS==")
    (command,) = read_commands(parser)
    assert [(option.names, option.value, option.help) for option in command.options[1:]] == [
        (("--size",), "SIZE", "size (default: 5)")
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_commands_options_and_values(run: CommandRunner, shell: str) -> None:
    code, script, err = run("completion", shell)
    assert (code, err) == (0, "")
    for word in ("search", "min-score", "hybrid semantic keyword", "list --slugs"):
        assert word in script
    assert "@" not in script.replace("[@]", "").replace('"$@"', "").replace("(@", "").replace("@}", "")


def test_bash_accepts_the_script(run: CommandRunner) -> None:
    assert shutil.which("bash")
    script = run("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""


def test_an_unknown_shell_is_an_error(run: CommandRunner) -> None:
    code, out, err = run("completion", "tcsh")
    assert (code, out) == (2, "")
    assert "bash" in err


def test_the_installed_manual_page_is_current(run: CommandRunner) -> None:
    assert run("man").out == (ROOT / MAN_PAGE).read_text(), f"write it again: wikiholt man > {MAN_PAGE}"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {MAN_PAGE: "share/man/man1/wikiholt.1"}


def test_list_can_print_only_names(run: CommandRunner) -> None:
    assert run("list", "--slugs") == (0, "", "")
