"""`wikiholt check` as a command: commits, exit codes, its temporary files and its errors."""

import fcntl
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from tests.support.services import read_all_files

PAGES: dict[str, str | bytes | None] = {
    "Home.md": "# Home\n\nSee [the rules](rules.md).\n",
    "rules.md": "# Rules\n\nYou may light a fire from October.\n",
}
TABLE = "| Question | Page |\n|---|---|\n"


@pytest.fixture
def wiki(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    repository = Repository(tmp_path / "wiki")
    repository.commit(PAGES)
    return repository


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    return CommandRunner(tmp_path / "data", capsys, monkeypatch)


def test_a_clean_change_is_0_and_an_error_is_10(run: CommandRunner, wiki: Repository) -> None:
    wiki.commit({"rules.md": "# Rules\n\nYou may light a fire from November.\n"})
    done = run("check", str(wiki.path), "--base", "HEAD~1")
    assert (done.code, done.err) == (0, "")
    assert "no findings (2 pages, 1 link" in done.out
    wiki.commit({"rules.md": None})
    done = run("check", str(wiki.path), "--base", "HEAD~1")
    assert (done.code, done.out.splitlines()[0]) == (
        10,
        "Home.md:3: error: the link to rules leads nowhere: the page was deleted [broken-link]",
    )


@pytest.mark.parametrize(("level", "code"), [("note", 10), ("warning", 0), ("error", 0), ("never", 0)])
def test_the_exit_code_depends_on_the_severity(run: CommandRunner, wiki: Repository, level: str, code: int) -> None:
    wiki.commit({"alone.md": "# Alone\n\nNobody links here.\n"})
    done = run("check", str(wiki.path), "--fail-on", level)
    assert done.code == code
    assert "alone.md:1: note: no page links to this page [orphaned-page]" in done.out


def test_a_directory_of_a_repository_is_a_wiki_of_its_own(run: CommandRunner, wiki: Repository) -> None:
    wiki.commit({"docs/index.md": "# Docs\n\n[Gone](gone.md)\n", "docs/ignored/x.md": "[Gone](gone.md)\n"})
    document = json.loads(run("check", str(wiki.path / "docs"), "--ignore", "ignored/", "--json").out)
    assert [(each["file"], each["rule"]) for each in document["findings"]] == [("docs/index.md", "missing-page")]
    assert document["checked"]["pages"] == 1
    assert json.loads(run("check", str(wiki.path / "docs"), "--format", "json").out)["base"] is None


def test_staged_files_are_compared_with_head(run: CommandRunner, wiki: Repository) -> None:
    wiki.run_git("rm", "--quiet", "rules.md")
    assert run("check", str(wiki.path), "--staged").code == 10
    wiki.run_git("reset", "--quiet", "--hard")
    (wiki.path / "rules.md").unlink()  # not staged
    assert run("check", str(wiki.path), "--staged").code == 0


def test_a_base_that_is_no_ancestor_is_noted(run: CommandRunner, wiki: Repository) -> None:
    wiki.run_git("checkout", "--quiet", "-b", "side")
    wiki.commit({"side.md": "# Side\n"})
    wiki.run_git("checkout", "--quiet", "main")
    done = run("check", str(wiki.path), "--base", "side")
    assert done.code == 0
    assert "note: side is no ancestor of HEAD: what exists only in side counts as removed" in done.out


def test_a_base_without_pages_is_noted(run: CommandRunner, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "new")
    repository.commit({"LICENSE": "x"})
    repository.commit(PAGES)
    done = run("check", str(repository.path), "--base", "HEAD~1")
    assert done.code == 0
    assert "there are no pages at the base" in done.out


def test_a_check_leaves_nothing_behind(run: CommandRunner, wiki: Repository, tmp_path: Path) -> None:
    assert run("add", "registered", str(wiki.path)).code == 0
    assert run("sync", "--quiet").code == 0
    before = read_all_files(tmp_path / "data"), read_all_files(wiki.path)
    assert run("check", str(wiki.path)).code == 0
    assert (read_all_files(tmp_path / "data"), read_all_files(wiki.path)) == before
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_check_without_registered_wikis_creates_no_data_directory(
    run: CommandRunner, wiki: Repository, tmp_path: Path
) -> None:
    assert run("check", str(wiki.path)).code == 0
    assert not (tmp_path / "data").exists()


def test_files_of_a_killed_check_are_deleted_by_the_next(run: CommandRunner, wiki: Repository, tmp_path: Path) -> None:
    for name in ("wikiholt-check-dead", "wikiholt-check-running", "wikiholt-check-foreign"):
        (tmp_path / "temporary" / name / "data").mkdir(parents=True)
    (tmp_path / "temporary/wikiholt-check-dead/lock").touch()
    with (tmp_path / "temporary/wikiholt-check-running/lock").open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        assert run("check", str(wiki.path)).code == 0
    left = sorted(path.name for path in (tmp_path / "temporary").iterdir())
    assert left == ["wikiholt-check-foreign", "wikiholt-check-running"]


def test_an_interrupted_check_leaves_nothing_behind(
    run: CommandRunner, wiki: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wikiholt.wikis.handle.WikiHandle.sync", interrupt)
    assert run("check", str(wiki.path)).code == 130
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_cache_is_used_again_by_one_check_at_a_time(run: CommandRunner, wiki: Repository, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run("check", str(wiki.path), "--cache", str(cache)).code == 0
    wiki.commit({"more.md": "# More\n"})
    assert "3 pages" in run("check", str(wiki.path), "--cache", str(cache), "--base", "HEAD~1").out
    assert "1 page" in run("check", str(wiki.path), "--cache", str(cache), "--ignore", "m*.md", "--ignore", "r*").out
    (of_wiki,) = cache.iterdir()
    with (of_wiki / "lock").open("a") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        done = run("check", str(wiki.path), "--cache", str(cache))
    assert (done.code, done.err.splitlines()[0]) == (4, f"error: another check uses {of_wiki}")
    done = run("check", str(wiki.path), "--cache", str(wiki.path / "Home.md" / "x"))
    assert (done.code, "cannot be written" in done.err) == (7, True)


def test_a_cache_that_was_moved_is_of_the_new_place(run: CommandRunner, wiki: Repository, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert run("check", str(wiki.path), "--cache", str(old)).code == 0
    shutil.copytree(old, new)
    wiki.commit({"rules.md": None})
    assert run("check", str(wiki.path), "--cache", str(new), "--base", "HEAD~1").code == 10


def test_the_settings_and_searches_of_a_registered_wiki_count(run: CommandRunner, wiki: Repository) -> None:
    wiki.commit({"drafts/new.md": "# New\n\n[Gone](gone.md)\n"})
    assert "drafts/new.md" in run("check", str(wiki.path)).out
    assert run("add", "house", str(wiki.path), "--ignore", "drafts/").code == 0
    assert run("set", "house", "log_queries=true").code == 0
    for _ in range(2):
        assert run("search", "-w", "house", "light a fire").code == 0
    document = json.loads(run("check", str(wiki.path), "--base", "HEAD", "--json").out)
    assert document["findings"] == []
    assert document["checked"]["pages"] == 2
    assert document["checked"]["mined_questions"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--base", "nowhere"), 2, "There is no commit 'nowhere' in "),
        (("--base", ""), 2, "There is no commit '' in "),
        (("--head", ""), 2, "There is no commit '' in "),
        (("--head", "0" * 40), 2, "There is no commit '0000"),
        (("--questions", "asked.md"), 2, "there is no file asked.md at "),
        (("--staged", "--head", "HEAD"), 2, "not allowed with argument"),
        (("--fail-on", "bad"), 2, "invalid choice"),
    ],
)
def test_invalid_input_has_a_message_and_a_hint(
    run: CommandRunner, wiki: Repository, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run("check", str(wiki.path), *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "hint: " in done.err


def test_an_invalid_row_of_questions_is_named(run: CommandRunner, wiki: Repository) -> None:
    wiki.commit({"questions.md": f"# Questions\n\n{TABLE}| Who? | |\n"})
    done = run("check", str(wiki.path))
    assert (done.code, done.err.splitlines()[0]) == (2, "error: questions.md:5: this row names no page")


def test_a_folder_outside_of_git_cannot_be_checked(run: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = run("check", str(tmp_path / "folder"))
    assert (done.code, "is not a git repository" in done.err) == (6, True)
    assert run("check", str(tmp_path / "nowhere")).code == 6
