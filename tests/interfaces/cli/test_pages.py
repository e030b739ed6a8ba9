"""`read`, `open`, `similar`, `links` and `recent`."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.interfaces.cli.house_wiki import HOUSE_FILES
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.page_commands import build_editor_command

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


def test_a_page_is_named_by_its_alias(run: CommandRunner) -> None:
    assert json.loads(run("read", "pane", "--json").out)["path"] == "windows"


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
    assert "2 pages have the title, alias or file name 'tea'" in answer.err
    assert "Kitchen/Tea, notes/Tea" in answer.err


def test_the_end_of_a_path_names_a_page(run: CommandRunner) -> None:
    assert run("read", "coffee").out == run("read", "Kitchen/Coffee.md").out
    assert run("read", "kitchen/tea").code == 0


def test_an_empty_name_and_an_unknown_wiki_are_errors(run: CommandRunner) -> None:
    assert run("read", " ").code == 2
    answer = run("read", "Home", "-w", "elsewhere")
    assert answer.code == 3
    assert "hint:" in answer.err


# ── read ──


def test_read_renders_the_page_with_its_title(run: CommandRunner) -> None:
    assert run("read", "Kitchen/Coffee").out.splitlines()[:5] == [
        "# Coffee machine",
        "",
        "Ask before you buy another one.",
        "",
        "## Descaling",
    ]


def test_a_heading_or_a_line_selects_its_section(run: CommandRunner) -> None:
    section = "## Descaling\n\nDescale the boiler every month. See Kitchen/Tea and nowhere (Missing.md).\n"
    section += "\n### Vinegar\n\nNever use vinegar.\n"
    assert run("read", "Kitchen/Coffee#descaling").out == section
    assert run("read", "Coffee machine#Descaling").out == section
    assert run("read", "Coffee machine", "Descaling").out == section
    assert run("read", "Kitchen/Coffee.md:9").out == section
    assert run("read", "Kitchen/Coffee.md:13:4", "--raw").out == "### Vinegar\n\nNever use vinegar.\n\n"
    assert run("read", "Kitchen/Coffee.md:5").out.endswith("machine\n\nAsk before you buy another one.\n")


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
    assert run("read", "windows", "--raw").out == HOUSE_FILES["windows.md"]
    assert "\x1b]0;owned\x07" in run("read", "notes/Tea", "--raw").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b" not in run("read", "notes/Tea", "--raw").out
    assert "\x1b]0" not in run("read", "notes/Tea").out


def test_no_colors_without_a_terminal(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("read", "Home").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1" in run("read", "Home").out
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


def test_without_an_editor_and_an_address_the_opener_of_the_system_gets_the_file(
    run: CommandRunner, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("xdg-open", "open"):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/called"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = prepared / "house" / "Home.md"
    assert run("open", "Home") == (0, f"Opened {file}\n", "")
    assert (tmp_path / "called").read_text() == f"{file}\n"


def test_without_an_editor_the_browser_opens_the_address(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    answer = run("open", "Home")
    assert answer.code == 2
    assert "Set EDITOR" in answer.err
    assert f"{run.program} set house url=" in answer.err
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
        "  Kitchen/Coffee.md:9 → Kitchen/Missing",
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


def test_a_name_without_its_accents_is_found_if_it_is_the_only_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = Repository(tmp_path / "usine")
    text = "---\ntitle: Élimination des déchets\naliases: [Décharge]\n---\nText.\n"
    repository.commit({"Procédures/Élimination.md": text, "Résumé.md": "# A\n", "x/Résume.md": "# B\n", "Ote.md": "c"})
    repository.commit({"Ôté.md": "d"})
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    assert run("add", "usine", str(repository.path)).code == 0
    assert run("sync", "usine", "--quiet").code == 0
    for name in ("Elimination des dechets", "decharge", "procedures/elimination", "Elimination.md", "ELIMINATION"):
        assert run("read", name, "--json").parse()["path"] == "Procédures/Élimination", name
    assert "2 pages have" in run("read", "resume").err
    assert run("read", "ote", "--json").parse()["path"] == "Ote", "a name with its accents wins"


def test_a_rename_is_one_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = Repository(tmp_path / "pond")
    text = "# Heron\n\nThe heron stands still by the pond.\n"
    repository.commit({"Heron.md": text, "Gone.md": "# Gone\n"})
    repository.commit({"Heron.md": None, "Birds/Grey.md": text, "Gone.md": None}, "Move")
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    assert run("add", "pond", str(repository.path)).code == 0
    assert run("sync", "pond", "--quiet").code == 0
    assert sorted(line.partition("  ")[2] for line in run("recent").out.splitlines()) == [
        "Gone.md  deleted  Gone  Ada · Move",
        "pond/Birds/Grey.md  was Heron.md  Heron  Ada · Move",
    ]
    changes = {change["file"]: change for change in run("recent", "--json").parse()["pages"]}
    assert changes["Birds/Grey.md"]["former_file"] == "Heron.md"
    assert changes["Gone.md"]["former_file"] is None


def test_a_wiki_without_an_index_can_be_read_but_has_no_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository = Repository(tmp_path / "pond")
    repository.commit({"Home.md": "# Home\n\nWelcome.\n"})
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    assert run("add", "pond", str(repository.path)).code == 0
    assert run("read", "home").out == "# Home\n\nWelcome.\n"
    assert run("recent").out == "2023-11-14 22:14  pond/Home.md  Home  Ada · Write\n"
    answer = run("links", "Home")
    assert answer.code == 7
    assert "hint:" in answer.err
    assert run("read", "Welcome").code == 3


def test_a_bare_repository_has_no_files_to_open(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Repository(tmp_path / "bare.git", "--bare")
    bare.run_git("fetch", "--quiet", str(prepared / "house"), "main:main")
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    monkeypatch.setenv("EDITOR", "nano")
    assert run("add", "bare", str(bare.path)).code == 0
    answer = run("open", "Home")
    assert answer.code == 2
    assert "Home is not a file on this disk" in answer.err
    assert run("recent", "-n", "1", "--files").out == "Home.md\n"


def test_a_directory_of_pages_works_like_a_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for age, name in enumerate(("New", "Old")):
        (notes / f"{name}.md").write_text(f"# {name} page\n\nAbout [[Missing]] heron.\n")
        os.utime(notes / f"{name}.md", (1_700_000_000 - 60 * age,) * 2)
    run = CommandRunner(tmp_path / "data", capsys, monkeypatch)
    monkeypatch.chdir(notes)
    assert run("add", "notes", str(notes)).code == 0
    assert run("sync", "notes", "--quiet").code == 0
    assert run("recent").out.splitlines() == [
        "2023-11-14 22:13  New.md  New page",
        "2023-11-14 22:12  Old.md  Old page",
    ]
    assert run("read", "old page").out.startswith("# Old page\n")
    assert "  New.md:3 → Missing" in run("links", "New.md").out
    assert run("search", "-w", "notes", "heron", "--mode", "keyword", "--files").out.split() == ["New.md", "Old.md"]
