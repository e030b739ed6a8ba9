"""`read`, `open`, `similar`, `links`, `recent` and the formats of hits."""

import csv
import io
import json
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner, use_fake_model
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.cli.open_command import build_editor_command

COFFEE = """---
title: Coffee machine
tags: [kitchen]
---
Ask before you buy another one.

## Descaling

Descale the boiler every month. See [[Kitchen/Tea]] and [nowhere](Missing.md).

### Vinegar

Never use vinegar.

## Milk

Rinse the frother.
"""
FILES: dict[str, str | bytes | None] = {
    "Kitchen/Coffee.md": COFFEE,
    "Kitchen/Tea.md": "# Tea\n\nBoil water. Back to [the machine](Coffee.md#milk).\n",
    "Home.md": "# Home\n\nWelcome to the boiler room.\n",
    "notes/Tea.md": "# Tea\n\nTea of the notes, for \x1b]0;owned\x07 guests.\n",
    "windows.md": "---\r\ntitle: Windows\r\n---\r\n\r\n# Windows\r\n\r\nGlazing of the greenhouse.\r\n",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    repository = Repository(directory / "house")
    repository.commit({"Old.md": "# Old\n"}, "Start")
    repository.commit({**FILES, "Old.md": None}, "Write the house\n\nwith details")
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


# ── which page ──


@pytest.mark.parametrize(
    "name",
    [
        "Kitchen/Coffee",
        "kitchen/coffee",
        "Kitchen/Coffee.md",
        "./Kitchen/Coffee.md",
        "coffee MACHINE",
        "Kitchen/../Kitchen/Coffee.md",
    ],
)
def test_a_page_is_named_by_path_file_or_title(run: CommandRunner, name: str) -> None:
    assert json.loads(run("read", name, "--json").out)["path"] == "Kitchen/Coffee"


def test_a_path_from_the_current_directory_wins(
    run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared / "house" / "notes")
    assert json.loads(run("read", "Tea.md", "--json").out)["path"] == "notes/Tea"
    assert json.loads(run("read", "../Kitchen/Tea.md", "--json").out)["path"] == "Kitchen/Tea"
    assert json.loads(run("read", "Kitchen/Tea", "--json").out)["path"] == "Kitchen/Tea"
    assert json.loads(run("read", str(prepared / "house" / "Home.md"), "--json").out)["path"] == "Home"


def test_an_unknown_page_suggests_near_names(run: CommandRunner) -> None:
    answer = run("read", "Kitchen/Cofee")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == (
        "error: There is no page 'Kitchen/Cofee' in house.\nhint: Did you mean Kitchen/Coffee or Kitchen/Tea?\n"
    )
    answer = run("read", "zzzzqqq\x1b[31m")
    assert answer.code == 3
    assert "hint: Find it with" in answer.err
    assert "\x1b" not in answer.err


def test_a_title_of_several_pages_is_not_guessed(run: CommandRunner) -> None:
    answer = run("links", "tea")
    assert answer.code == 3
    assert "2 pages have the title 'tea'" in answer.err
    assert "Kitchen/Tea, notes/Tea" in answer.err


def test_an_empty_name_and_an_unknown_wiki_are_errors(run: CommandRunner) -> None:
    assert run("read", " ").code == 2
    answer = run("read", "Home", "-w", "elsewhere")
    assert answer.code == 3
    assert "hint:" in answer.err


# ── read ──


def test_read_renders_the_page_with_its_title(run: CommandRunner) -> None:
    assert run("read", "Kitchen/Coffee").out.splitlines()[:6] == [
        "Coffee machine",
        "==============",
        "",
        "Ask before you buy another one.",
        "",
        "Descaling",
    ]


def test_a_heading_or_a_line_selects_its_section(run: CommandRunner) -> None:
    section = "Descaling\n---------\n\nDescale the boiler every month. See [[Kitchen/Tea]] and nowhere <Missing.md>.\n"
    section += "\n### Vinegar\n\nNever use vinegar.\n"
    assert run("read", "Kitchen/Coffee#descaling").out == section
    assert run("read", "Coffee machine#Descaling").out == section
    assert run("read", "Kitchen/Coffee.md:9").out == section
    assert run("read", "Kitchen/Coffee.md:13:4", "--raw").out == "### Vinegar\n\nNever use vinegar.\n\n"
    assert run("read", "Kitchen/Coffee.md:5").out.endswith("==\n\nAsk before you buy another one.\n")


def test_an_unknown_heading_or_line_is_an_error(run: CommandRunner) -> None:
    answer = run("read", "Kitchen/Coffee#Descalling")
    assert answer.code == 3
    assert "hint: Did you mean Descaling?" in answer.err
    answer = run("read", "Kitchen/Coffee.md:900")
    assert answer.code == 3
    assert "has 17 lines, not 900" in answer.err


def test_raw_text_is_exact_in_a_file_and_harmless_on_a_terminal(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("read", "windows", "--raw").out == FILES["windows.md"]
    assert "\x1b]0;owned\x07" in run("read", "notes/Tea", "--raw").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b" not in run("read", "notes/Tea", "--raw").out
    assert "\x1b]0" not in run("read", "notes/Tea").out


def test_no_colors_without_a_terminal(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("read", "Home").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m" in run("read", "Home").out
    assert "\x1b" not in run("read", "Home", "--no-color").out
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in run("read", "Home").out


# ── open ──


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An editor that writes its arguments to a file."""
    script = tmp_path / "nano"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/called"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", f"{script} --opt")
    return tmp_path / "called"


@pytest.mark.parametrize(
    ("name", "line"),
    [("Kitchen/Coffee.md:9", ["+9"]), ("Kitchen/Coffee#milk", ["+15"]), ("Kitchen/Coffee", [])],
)
def test_open_starts_the_editor_at_the_line(
    run: CommandRunner, prepared: Path, editor: Path, name: str, line: list[str]
) -> None:
    assert run("open", name) == (0, "", "")
    expected = ["--opt", *line, str(prepared / "house" / "Kitchen" / "Coffee.md")]
    assert editor.read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("editor", "expected"),
    [
        ("vim", ["vim", "+3", "/w/a.md"]),
        ("/usr/bin/code --wait", ["/usr/bin/code", "--wait", "--goto", "/w/a.md:3"]),
        ("subl", ["subl", "/w/a.md:3"]),
        ("kate", ["kate", "--line", "3", "/w/a.md"]),
        ("something-else", ["something-else", "/w/a.md"]),
    ],
)
def test_each_editor_gets_the_line_in_its_own_form(editor: str, expected: list[str]) -> None:
    assert build_editor_command(editor, Path("/w/a.md"), 3) == expected


@pytest.mark.parametrize("editor", ["no-such-editor-here", "'unbalanced", "false"])
def test_an_editor_that_fails_is_an_error(run: CommandRunner, monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    monkeypatch.setenv("VISUAL", editor)
    answer = run("open", "Home")
    assert answer.code == 2
    assert "hint:" in answer.err


def test_without_an_editor_the_browser_opens_the_address(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run("open", "Home")
    assert answer.code == 2
    assert "Set EDITOR" in answer.err
    assert "wikiholt set house url=" in answer.err
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("WIKIHOLT_URL", "https://wiki.example.org/{path}")
    assert run("open", "Coffee machine#Milk").out == "Opened https://wiki.example.org/Kitchen/Coffee#milk\n"
    assert opened == ["https://wiki.example.org/Kitchen/Coffee#milk"]
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    answer = run("open", "Home")
    assert answer.code == 2
    assert "https://wiki.example.org/Home" in answer.err


def test_the_browser_can_be_preferred_and_needs_an_address(
    run: CommandRunner, editor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = run("open", "Home", "--browser")
    assert answer.code == 2
    assert "Home has no address" in answer.err
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    monkeypatch.setenv("WIKIHOLT_URL", "https://wiki.example.org/{path}")
    assert "Opened https" in run("open", "Home", "--browser").out
    assert not editor.exists()


def test_a_file_that_leads_out_of_the_wiki_is_not_opened(
    run: CommandRunner, prepared: Path, editor: Path, tmp_path: Path
) -> None:
    page = prepared / "house" / "Home.md"
    saved = page.read_bytes()
    (tmp_path / "secret").write_text("x")
    page.unlink()
    page.symlink_to(tmp_path / "secret")
    try:
        answer = run("open", "Home")
    finally:
        page.unlink()
        page.write_bytes(saved)
    assert answer.code == 2
    assert "not a file on this disk" in answer.err
    assert not editor.exists()


# ── similar, links, recent ──


def test_similar_lists_other_pages(run: CommandRunner) -> None:
    document = json.loads(run("similar", "Kitchen/Tea.md", "--json", "-n", "3").out)
    assert document["results"]
    assert "Kitchen/Tea" not in [hit["path"] for hit in document["results"]]
    assert run("similar", "Kitchen/Tea", "-n", "0").code == 2


def test_links_show_both_directions_and_broken_targets(run: CommandRunner) -> None:
    assert run("links", "Kitchen/Coffee").out.splitlines() == [
        "Links (1)",
        "  Kitchen/Coffee.md:9 → Kitchen/Tea.md  Tea",
        "",
        "Linked from (1)",
        "  Kitchen/Tea.md:3  Tea",
        "",
        "Broken links (1)",
        "  Kitchen/Missing",
    ]
    assert "#milk  Coffee machine" in run("links", "Kitchen/Tea").out
    assert json.loads(run("links", "Home", "--json").out) == {
        "path": "Home",
        "links_to": [],
        "linked_from": [],
        "missing": [],
    }


def test_recent_lists_pages_newest_first_and_marks_deleted_ones(run: CommandRunner) -> None:
    lines = run("recent").out.splitlines()
    assert lines[0] == "2023-11-14 22:16  Home.md  Home  Ada · Warn"
    assert any(re.search(r"Old\.md  deleted  Old  Ada · Write the house$", line) for line in lines)
    assert len(lines) == 6
    assert run("recent", "-n", "1", "--files").out == "Home.md\n"
    assert "Old.md" not in run("recent", "--files").out
    newest = json.loads(run("recent", "-n", "1", "--json").out)["pages"][0]
    assert (newest["path"], newest["author"], newest["deleted"]) == ("Home", "Ada", False)
    assert run("recent", "-n", "0").code == 2


# ── hits ──


def find_line(text: str, words: str) -> int:
    return next(number for number, line in enumerate(re.split(r"\r\n|\n", text), 1) if words in line)


@pytest.mark.parametrize(("file", "words"), [("windows.md", "Glazing"), ("notes/Tea.md", "guests")])
def test_the_line_of_a_hit_counts_the_frontmatter(run: CommandRunner, file: str, words: str) -> None:
    (hit,) = [
        hit
        for hit in json.loads(run("search", "house", words, "--mode", "keyword", "--json").out)["results"]
        if hit["file"] == file
    ]
    first, last = hit["lines"]
    text = str(FILES[file])
    assert first <= find_line(text, words) <= last
    assert re.split(r"\r\n|\n", text)[first - 1] == hit["text"].split("\n")[0]


def test_hits_name_files_from_the_current_directory(
    run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("search", "house", "vinegar", "--mode", "keyword", "-n", "1")
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
        assert run("search", "house", "step", "--mode", "keyword", "--files").out == "Home.md\n"
    finally:
        shutil.move(tmp_path / "aside", page)


def test_a_terminal_gets_links(run: CommandRunner, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    link = f"\x1b]8;;file://{socket.gethostname()}{prepared}/house/Home.md\x1b\\Home.md:5\x1b]8;;\x1b\\"
    arguments = ("search", "house", "step", "--mode", "keyword")
    assert link in run(*arguments).out
    assert "\x1b" not in run(*arguments, "--no-color").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run(*arguments).out


def test_full_shows_the_passage_with_matches_in_color(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("search", "house", "vinegar", "--mode", "keyword", "-n", "1", "--full")
    assert "   ### Vinegar\n\n   Never use vinegar.\n" in run(*arguments).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "Never use \x1b[1m\x1b[32mvinegar\x1b[0m." in run(*arguments).out


def test_formats_for_scripts(run: CommandRunner) -> None:
    arguments = ("search", "house", "boiler", "--mode", "keyword")
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
    arguments = ("search", "house", "boiler", "--mode", "keyword")
    scores = sorted(hit["score"] for hit in json.loads(run(*arguments, "--json").out)["results"])
    kept = json.loads(run(*arguments, "--json", "--min-score", str(scores[-1])).out)
    assert kept["total"] == scores.count(scores[-1])
    answer = run(*arguments, "--files", "--min-score", "1")
    assert (answer.code, answer.out) == (1, "")
    assert run(*arguments, "--min-score", "7").code == 2


def test_a_relative_place_opens_from_any_directory(run: CommandRunner, prepared: Path) -> None:
    (file,) = run("search", "house", "frother", "--mode", "keyword", "-n", "1", "--files").out.splitlines()
    assert Path(file).samefile(prepared / "house" / "Kitchen" / "Coffee.md")
