"""A wiki that `create` made and in which nobody has written a page yet."""

from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    run = CommandRunner(data, capsys, monkeypatch)
    assert run("create", "notes").code == 0
    return run


def test_a_sync_says_that_there_are_no_pages_yet_and_succeeds(run: CommandRunner, tmp_path: Path) -> None:
    Repository(tmp_path / "other").commit({"Home.md": "tea"})
    run("add", "other", str(tmp_path / "other"))
    assert run("sync", "notes") == (0, "notes: no pages yet\n", "")
    code, out, err = run("sync")
    assert (code, err) == (0, "")
    assert "notes: no pages yet\n" in out
    assert "✓ other: 1 added" in out
    assert run("sync", "notes", "--json").parse()["error"]["code"] == "no-pages-yet"


def test_status_and_doctor_say_that_there_are_no_pages_yet(run: CommandRunner) -> None:
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert "  no pages yet\n" in out
    assert f"{run.program} import-pages" in out
    assert "not indexed" not in out
    assert run("status", "notes", "--json").parse()["error"]["code"] == "no-pages-yet"
    assert "✓ wiki notes: no pages yet" in run("doctor").out


def test_a_search_is_still_an_error(run: CommandRunner) -> None:
    code, out, err = run("search", "-w", "notes", "tea")
    assert (code, out) == (6, "")
    assert "no pages yet" in err


def test_an_added_repository_without_pages_stays_an_error(run: CommandRunner, tmp_path: Path) -> None:
    Repository(tmp_path / "empty")
    run("add", "empty", str(tmp_path / "empty"))
    assert run("sync").code == 6
    assert "✗ wiki empty" in run("doctor").out


def test_a_relative_data_directory_may_have_several_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CommandRunner(Path("a/b"), capsys, monkeypatch)
    assert run("create", "notes").code == 0
    (tmp_path / "pages.jsonl").write_text('{"path": "Home", "content": "# Tea"}\n')
    assert run("import-pages", "notes", "pages.jsonl").code == 0
    assert "1 added" in run("sync", "notes").out


def test_an_import_that_wrote_no_page_proposes_no_sync(run: CommandRunner, tmp_path: Path) -> None:
    run("create", "notes")
    (tmp_path / "pages.jsonl").write_text('{"path": "../Home", "content": "# Tea"}\n[1]\n')
    done = run("import-pages", "notes", str(tmp_path / "pages.jsonl"))
    assert (done.code, done.out) == (2, "notes: 2 lines: 2 failed.\n")
    assert done.err.startswith("line 1 (../Home): invalid-page: ")
    (tmp_path / "pages.jsonl").write_text('{"path": "Home", "content": "# Tea"}\n')
    assert "sync notes" in run("import-pages", "notes", str(tmp_path / "pages.jsonl")).out


def test_a_directory_is_no_file_to_import(run: CommandRunner, tmp_path: Path) -> None:
    run("create", "notes")
    done = run("import-pages", "notes", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "is a directory\nhint: to search its pages: " in done.err
