"""Hits for people and scripts: files and lines, links, formats."""

import csv
import io
import json
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.interfaces.cli.house_wiki import HOUSE_FILES
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.hit_output import FilePlaces
from wikiholt.interfaces.cli.output import TerminalStyle


def find_line(text: str, words: str) -> int:
    return next(number for number, line in enumerate(re.split(r"\r\n|\n", text), 1) if words in line)


@pytest.mark.parametrize(("file", "words"), [("windows.md", "Glazing"), ("notes/Tea.md", "guests")])
def test_the_line_of_a_hit_counts_the_frontmatter(run: CommandRunner, file: str, words: str) -> None:
    (hit,) = [
        hit
        for hit in json.loads(run("search", "-w", "house", words, "--mode", "keyword", "--json").out)["results"]
        if hit["file"] == file
    ]
    first, last = hit["lines"]
    text = str(HOUSE_FILES[file])
    assert first <= find_line(text, words) <= last
    assert re.split(r"\r\n|\n", text)[first - 1] == hit["text"].split("\n")[0]


def test_hits_name_files_from_the_current_directory(
    run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("search", "-w", "house", "vinegar", "--mode", "keyword", "-n", "1")
    assert "\n   Kitchen/Coffee.md:11\n" in run(*arguments).out, "the line of the matching word"
    monkeypatch.chdir(prepared / "house" / "notes")
    assert run(*arguments, "--files").out == "../Kitchen/Coffee.md\n"
    monkeypatch.chdir(prepared)
    assert run(*arguments, "--files").out == "house/Kitchen/Coffee.md\n"


def test_files_that_are_not_on_disk_are_named_from_the_wiki(
    run: CommandRunner, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = prepared / "house" / "Home.md"
    page.rename(tmp_path / "aside")
    try:
        monkeypatch.chdir(tmp_path)
        assert run("search", "-w", "house", "step", "--mode", "keyword", "--files").out == "Home.md\n"
    finally:
        shutil.move(tmp_path / "aside", page)


def test_a_terminal_gets_links(run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    link = f"\x1b]8;;file://{socket.gethostname()}{prepared}/house/Home.md\x1b\\Home.md:5\x1b]8;;\x1b\\"
    arguments = ("search", "-w", "house", "step", "--mode", "keyword")
    assert link in run(*arguments).out
    assert "\x1b" not in run(*arguments, "--no-color").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run(*arguments).out


def test_no_color_works_before_and_after_the_command(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    arguments = ("search", "-w", "house", "step", "--mode", "keyword")
    assert "\x1b" in run(*arguments).out
    assert "\x1b" not in run(*arguments, "--no-color").out
    assert "\x1b" not in run("--no-color", *arguments).out


def test_full_shows_the_passage_with_matches_in_color(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("search", "-w", "house", "vinegar", "--mode", "keyword", "-n", "1", "--full")
    assert "   ### Vinegar\n\n   Never use vinegar.\n" in run(*arguments).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "Never use \x1b[1m\x1b[32mvinegar\x1b[0m." in run(*arguments).out


def test_formats_for_scripts(run: CommandRunner) -> None:
    arguments = ("search", "-w", "house", "boiler", "--mode", "keyword")
    files = run(*arguments, "--format", "paths").out.splitlines()
    assert sorted(files) == ["Home.md", "Kitchen/Coffee.md"]
    hits = [json.loads(line) for line in run(*arguments, "--format", "jsonl").out.splitlines()]
    assert [hit["file"] for hit in hits] == files
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").out)))
    assert [row["file"] for row in rows] == files
    lines = {"Home.md": "3", "Kitchen/Coffee.md": "9"}
    assert [row["line"] for row in rows] == [lines[file] for file in files]
    assert json.loads(run(*arguments, "--format", "json").out)["total"] == 2
    answer = run(*arguments, "--format", "csv", "--files")
    assert answer.code == 2
    assert "csv and paths" in answer.err


def test_a_minimum_score_removes_weaker_hits(run: CommandRunner) -> None:
    arguments = ("search", "-w", "house", "boiler", "--mode", "keyword")
    scores = sorted(hit["score"] for hit in json.loads(run(*arguments, "--json").out)["results"])
    kept = json.loads(run(*arguments, "--json", "--min-score", str(scores[-1])).out)
    assert kept["total"] == scores.count(scores[-1])
    answer = run(*arguments, "--files", "--min-score", "1")
    assert (answer.code, answer.out) == (1, "")
    assert run(*arguments, "--min-score", "7").code == 2


def test_a_relative_place_opens_from_any_directory(run: CommandRunner, prepared: Path) -> None:
    (file,) = run("search", "-w", "house", "frother", "--mode", "keyword", "-n", "1", "--files").out.splitlines()
    assert Path(file).samefile(prepared / "house" / "Kitchen" / "Coffee.md")


def test_names_of_files_cannot_control_the_terminal(tmp_path: Path) -> None:
    name = "a\x1b]0;owned\x07\n\u202eb.md"
    (tmp_path / name).write_text("x")
    shown = FilePlaces(tmp_path, tmp_path).format(name, 3, TerminalStyle(use_color=True))
    address, text = re.fullmatch("\x1b]8;;(.*?)\x1b\\\\(.*?)\x1b]8;;\x1b\\\\", shown, re.DOTALL).groups()  # type: ignore[union-attr]
    assert text.isprintable()
    assert text.endswith("b.md:3")
    assert address.isascii()
    assert address.isprintable()


def test_page_text_is_no_formula_in_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "sheet")
    repository.commit({"=1+1.md": '---\ntitle: "@SUM(A1)"\n---\n=HYPERLINK("x") for spreadsheets\n'})
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    monkeypatch.chdir(repository.path)
    run("add", "sheet", str(repository.path))
    run("sync", "sheet", "--quiet")
    out = run("search", "-w", "sheet", "spreadsheets", "--mode", "keyword", "--format", "csv").out
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["file"] == "'=1+1.md"
    assert row["title"] == "'@SUM(A1)"
    assert row["snippet"].startswith("'=HYPERLINK")
    assert row["line"] == "4"


@pytest.mark.parametrize("output_format", ["paths", "csv", "jsonl"])
def test_notes_go_to_standard_error_if_the_format_has_no_place_for_them(run: CommandRunner, output_format: str) -> None:
    code, out, err = run("search", "-w", "house", "vinegarr", "--mode", "keyword", "--format", output_format)
    assert code == 0
    assert "Coffee" in out
    assert "Showing" not in out
    assert err == "note: Showing results for “vinegar”; no page contains “vinegarr”.\n"
