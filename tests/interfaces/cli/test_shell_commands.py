"""`completion` and `man`: written from the argument parser, and the installed manual page is current."""

import tomllib
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.paths import ROOT

MAN_PAGE = "docs/wikiholt.1"


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("se", {"search", "set", "serve", "settings"}),
        ("key ", {"create", "list", "revoke"}),
        ("--no-color key r", {"revoke"}),
        ("--da", {"--data"}),
        ("search --m", {"--mode", "--min-score"}),
        ("search x --mode ", {"hybrid", "semantic", "keyword"}),
        ("search --mode=k", {"--mode=keyword"}),
        ("search --mode = k", {"keyword"}),
        ("key create x --scope w", {"write"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("help op", {"open", "options", "operation"}),
        ("sync ", {"house"}),
        ("read Home --wiki ", {"house"}),
        ("import chroma ", set()),
        ("sync house ", set()),
    ],
)
def test_what_fits_at_the_cursor_is_offered(
    run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch, line: str, offers: set[str]
) -> None:
    monkeypatch.setenv("WIKIHOLT_DATA", str(prepared / "data"))
    code, out, err = run("completion", "bash", "--", *line.split(" "))
    assert (code, err) == (0, "")
    assert {offer.partition("\t")[0] for offer in out.splitlines()} == offers


def test_wikis_are_those_of_the_data_directory_on_the_line(run: CommandRunner, tmp_path: Path) -> None:
    assert run("completion", "bash", "--", "--data", str(tmp_path), "sync", "").out == ""


def test_an_unknown_shell_is_an_error(run: CommandRunner) -> None:
    code, out, err = run("completion", "tcsh")
    assert (code, out) == (2, "")
    assert "bash" in err


def test_the_installed_manual_page_is_current(run: CommandRunner) -> None:
    assert run("man").out == (ROOT / MAN_PAGE).read_text(), f"write it again: wikiholt man > {MAN_PAGE}"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {MAN_PAGE: "share/man/man1/wikiholt.1"}


def test_list_can_print_only_names(run: CommandRunner) -> None:
    assert run("list", "--slugs") == (0, "house\n", "")
