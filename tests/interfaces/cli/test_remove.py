"""`remove` asks first, leaves nothing of the wiki behind, and keeps the pages unless they are to be deleted."""

import io
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.wiki_commands import format_files
from wikiholt.wikis.registry import Registry


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(data, capsys)


def read_all_files(directory: Path) -> bytes:
    """All file names and contents below a directory."""
    files = sorted(directory.rglob("*"))
    return b"\n".join(str(file).encode() + b"\n" + (file.read_bytes() if file.is_file() else b"") for file in files)


@pytest.mark.model
def test_nothing_of_a_removed_wiki_is_left_on_disk(run: CommandRunner, data: Path, tmp_path: Path) -> None:
    canaries = {"one": "zanzibarquagga", "two": "ouagadougouibis"}
    for slug, canary in canaries.items():
        repository = Repository(tmp_path / f"{slug}-{canary}")
        repository.commit(
            {f"{canary} page.md": f"# {canary}\n\nOnly here: {canary}.", "b.md": "---\ntitle: x\n---\nBeta."}
        )
        run(
            "add", f"wiki-{slug}", str(repository.path), "--host", f"{slug}.example.org", "--url", f"/{canary}/{{path}}"
        )
        assert run("sync", f"wiki-{slug}")[0] == 0
        assert json.loads(run("search", "-w", f"wiki-{slug}", canary, "--json")[1])
    keys = {
        slug: run("key", "create", f"wiki-{slug}", "--label", f"of {canaries[slug]}")[1].split("_")[1]
        for slug in canaries
    }
    with closing(Registry(data / "registry.sqlite")) as registry:
        ids = {slug: registry.get(f"wiki-{slug}").id for slug in canaries}
    traces = {slug: ("wiki-" + slug, canaries[slug], f"{slug}.example.org", keys[slug], ids[slug]) for slug in canaries}
    before = read_all_files(data)
    assert all(trace.encode() in before for found in traces.values() for trace in found)

    removed = run("remove", "wiki-one", "--yes", "--json").parse()
    assert removed["keys"] == [keys["one"]]
    assert removed["hosts"] == ["one.example.org"]
    assert any(name.endswith(".sqlite") for name in removed["removed"])
    left = read_all_files(data)
    assert [trace for trace in traces["one"] if trace.encode() in left] == []
    assert [trace for trace in traces["two"] if trace.encode() not in left] == []
    assert run("search", "-w", "wiki-two", canaries["two"])[0] == 0


def test_remove_lists_the_revoked_keys(run: CommandRunner, garden: Repository) -> None:
    key_id = run("key", "create", "garden")[1].split("_")[1]
    code, out, _ = run("remove", "garden", "--yes")
    assert code == 0
    assert f"key {key_id}" in out
    assert garden.path.exists()


# ── confirmation ──


class Terminal(io.StringIO):
    """Standard input or error that is a terminal."""

    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> Terminal:
    """Make standard input a terminal that gives this answer, and return the one of standard error."""
    errors = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", errors)
    return errors


@pytest.mark.parametrize(
    ("answer", "removed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_remove_asks_on_a_terminal(
    run: CommandRunner,
    garden: Repository,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    removed: bool,
) -> None:
    run("key", "create", "garden")
    errors = use_terminal(monkeypatch, answer)
    code = run("remove", "garden")[0]
    assert (
        "Delete the index, the settings and 1 key of garden? The repository is not touched. [y/N]" in errors.getvalue()
    )
    assert code == (0 if removed else 130)
    assert ("Nothing was removed." in errors.getvalue()) == (not removed)
    assert [wiki.slug for wiki in registry.list_wikis()] == ([] if removed else ["garden"])


def test_remove_needs_yes_without_a_terminal_and_does_not_ask_then(
    run: CommandRunner, garden: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, out, err = run("remove", "garden")
    assert (code, out) == (130, "")
    assert "write --yes" in err
    assert run("list", "--slugs").out == "garden\n"
    assert run("remove", "garden", "--yes")[0] == 0
    run("add", "garden", str(garden.path))
    errors = use_terminal(monkeypatch, "")
    assert run("remove", "garden", "--yes")[0] == 0
    assert errors.getvalue() == ""


def test_remove_of_an_unknown_wiki_asks_nothing(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = use_terminal(monkeypatch, "y\n")
    assert run("remove", "nothing")[0] == 3
    assert "[y/N]" not in errors.getvalue()


# ── a wiki whose only copy Wikiholt stores ──


@pytest.fixture
def managed(run: CommandRunner, data: Path) -> Path:
    """The stored pages of a wiki that `create` made."""
    assert run("create", "notes")[0] == 0
    (head,) = data.rglob("HEAD")
    return head.parent


@pytest.mark.parametrize("options", [[], ["--yes"], ["--json"]])
def test_remove_without_a_terminal_keeps_the_only_copy_of_pages(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run("remove", "notes", *options)
    assert (code, out) == (130, "")
    assert "error: This would delete the only copy of the pages of notes.\nhint: " in err
    assert "--delete-pages" in err
    assert managed.exists()
    assert "notes" in run("list", "--slugs")[1].split()


def test_remove_deletes_pages_with_delete_pages(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run("remove", "notes", "--delete-pages")
    assert (code, err) == (0, "")
    assert "Its pages were deleted." in out
    assert not managed.exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 130)])
def test_remove_of_the_only_copy_asks_on_a_terminal(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    errors = use_terminal(monkeypatch, answer)
    assert run("remove", "notes")[0] == code
    assert "Delete all pages, the index, the settings and 0 keys of notes? There is no other copy." in errors.getvalue()
    assert managed.exists() == (code != 0)


def test_another_wiki_of_the_same_name_is_not_removed(
    run: CommandRunner, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowUser(Terminal):
        def readline(self, *_: int) -> str:  # type: ignore[override]
            assert run("remove", "notes", "--delete-pages")[0] == 0
            assert run("create", "notes")[0] == 0
            return "y\n"

    monkeypatch.setattr("sys.stdin", SlowUser())
    monkeypatch.setattr("sys.stderr", Terminal())
    assert run("remove", "notes")[0] == 3
    assert not managed.exists()
    assert "notes" in run("list", "--slugs")[1].split()


def test_removed_folders_show_how_many_files_they_had() -> None:
    files = ["a.sqlite", "a/chunks", "a/vectors", "b/only", "c\x1b.lock"]
    assert format_files(files) == ["  a.sqlite", "  a/ (2 files)", "  b/ (1 file)", "  c\ufffd.lock"]


def test_the_removal_of_a_folder_calls_it_a_folder(run: CommandRunner, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Home.md").write_text("# Home\n")
    assert run("add", "notes", str(folder)).code == 0
    assert f"The folder {folder} was not touched" in run("remove", "notes", "--yes").out


def test_delete_pages_does_not_touch_the_repository_of_the_user(run: CommandRunner, garden: Repository) -> None:
    code, out, _ = run("remove", "garden", "--delete-pages", "--yes")
    assert code == 0
    assert f"The repository {garden.path} was not touched" in out
    assert garden.path.exists()
