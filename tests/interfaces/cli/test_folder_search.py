"""`wikiholt search` in a folder: what it registers, when it syncs, which wikis it searches, and what it refuses."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.definitions import Settings
from wikiholt.errors import SourceCorrupt
from wikiholt.git.source import GitSource
from wikiholt.interfaces.cli import selection
from wikiholt.interfaces.cli.main import main
from wikiholt.testing.fakes import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command with a fake model, and the data in a directory of the user."""
    embedder = FakeEmbedder()

    def open_service(settings: Settings) -> WikiService:
        service = build_service(settings)
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return service

    monkeypatch.setattr("wikiholt.interfaces.cli.command.open_service", open_service)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository, in which the command runs."""
    repository = Repository(tmp_path / "My Notes")
    repository.commit({"Keys.md": "# Keys\n\nRotate the signing key.", "docs/Soup.md": "# Soup\n\nBoil water."})
    monkeypatch.chdir(repository.path)
    return repository


def get_paths(output: str) -> list[str]:
    return [hit["path"] for hit in json.loads(output)["results"]]


def test_the_first_search_registers_indexes_and_answers(run: Run, notes: Repository, tmp_path: Path) -> None:
    code, out, err = run("search", "rotate", "the", "key", "--json")
    assert code == 0
    assert get_paths(out)[0] == "Keys"
    assert err == f"Added my-notes: 2 pages at HEAD in {notes.path}\n"
    assert (tmp_path / "share" / "wikiholt" / "registry.sqlite").exists()
    assert run("list")[1] == f"my-notes  {notes.path}\n"


def test_a_later_search_syncs_what_changed_and_says_nothing(
    run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("search", "key")
    monkeypatch.chdir(notes.path / "docs")
    notes.commit({"docs/Tea.md": "# Tea\n\nSteep the leaves."})
    code, out, err = run("search", "steep", "leaves", "--json")
    assert (code, err) == (0, "")
    assert get_paths(out)[0] == "docs/Tea"

    def fail(*_: object) -> None:
        raise AssertionError("nothing changed")

    monkeypatch.setattr(WikiHandle, "sync", fail)
    assert run("search", "steep", "leaves")[0] == 0


def test_the_registry_is_backed_up_before_a_first_indexing_that_may_be_killed(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_and_end(self: WikiHandle, *_: object, **__: object) -> None:
        assert list((tmp_path / "share" / "wikiholt" / "backups" / "registry").glob("*.sqlite"))
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(WikiHandle, "sync", check_and_end)
        code, _, error = run("search", "key")
    assert code == 130, error


def test_no_sync_searches_the_index_as_it_is(run: Run, notes: Repository) -> None:
    run("search", "key")
    notes.commit({"Tea.md": "# Tea\n\nSteep the leaves."})
    out = run("search", "steep", "leaves", "--no-sync", "--mode", "keyword")[1]
    assert "hint: run `wikiholt sync my-notes`" in out


def test_a_folder_outside_of_git_is_a_wiki_too(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "Beans.md").write_text("# Beans\n\nRunner beans need poles.")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)
    assert get_paths(run("search", "beans", "--json")[1]) == ["Beans"]
    (folder / "Peas.md").write_text("# Peas\n\nPeas need a net.")
    assert "Peas" in get_paths(run("search", "peas", "--json")[1])


def test_a_folder_of_registered_wikis_is_not_registered_again(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("search", "key")
    other = Repository(tmp_path / "other")
    other.commit({"Tea.md": "# Tea\n\nSteep the leaves."})
    run("add", str(other.path))
    run("sync")
    monkeypatch.chdir(tmp_path)
    assert get_paths(run("search", "steep", "leaves", "--json")[1])[0] == "Tea"
    assert len(run("list")[1].splitlines()) == 2, notes.path


def test_a_repository_without_a_commit_is_searched_as_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "new")
    (repository.path / "Draft.md").write_text("# Draft\n\nNot committed yet.")
    monkeypatch.chdir(repository.path)
    assert get_paths(run("search", "committed", "--json")[1]) == ["Draft"]


def test_one_registered_wiki_is_searched_from_anywhere(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("search", "key")
    for folder in (tmp_path / "home", tmp_path / "empty", Path("/")):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        document = json.loads(run("search", "key", "--json")[1])
        assert document["results"][0]["path"] == "Keys"
        assert document["wikis"] == []
    assert len(run("list")[1].splitlines()) == 1


def test_several_wikis_are_searched_together_and_each_hit_is_labelled(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("search", "key")
    other = Repository(tmp_path / "other")
    other.commit({"Locks.md": "# Locks\n\nEvery lock has a key."})
    monkeypatch.chdir(other.path)
    run("search", "key")
    unindexed = Repository(tmp_path / "unindexed")
    unindexed.commit({"Later.md": "# Later"})
    run("add", str(unindexed.path))
    monkeypatch.chdir(tmp_path / "home")
    code, out, _ = run("search", "key", "--json", "-n", "100")
    document = json.loads(out)
    assert code == 0
    assert {hit["wiki"] for hit in document["results"]} == {"my-notes", "other"}
    assert any(note.startswith("unindexed was not searched: ") for note in document["notes"])
    text = run("search", "key")[1]
    assert "other: ../other/Locks.md:3" in text
    assert "my-notes: ../My Notes/Keys.md:3" in text
    named = json.loads(run("search", "-w", "other", "-w", "unindexed", "key", "--json")[1])
    assert {hit["wiki"] for hit in named["results"]} == {"other", "unindexed"}, "a named wiki is indexed first"


def test_home_and_root_are_never_indexed_automatically(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "Note.md").write_text("# Note")
    for folder in (tmp_path / "home", tmp_path, Path("/")):
        monkeypatch.chdir(folder)
        code, out, err = run("search", "note")
        assert (code, out) == (2, "")
        relation = "is" if folder == tmp_path / "home" else "contains"
        assert f"{folder} {relation} your home directory: a search does not index it automatically" in err
        assert "wikiholt add PATH" in err
    assert run("list")[1].startswith("No wikis yet")
    monkeypatch.chdir(tmp_path / "home")
    assert run("add", ".")[0] == 0
    assert get_paths(run("search", "note", "--json")[1]) == ["Note"]


@pytest.mark.parametrize("limit", ["MAX_AUTOMATIC_PAGES", "MAX_AUTOMATIC_FILES"])
def test_a_folder_with_very_many_files_is_not_indexed_automatically(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.md").write_text("# Page")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(selection, limit, 3)
    code, _, err = run("search", "page")
    assert code == 2
    assert f"wikiholt add big {folder}" in err
    monkeypatch.setattr(selection, limit, 4)
    assert run("search", "page")[0] == 0


def test_without_pages_and_wikis_the_error_names_the_data_directory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, _, err = run("search", "x")
    assert code == 3
    assert str(tmp_path / "share" / "wikiholt") in err
    assert "hint: " in err


def test_files_to_which_pages_can_link_are_not_counted_as_pages(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.mkd").write_text("hello")
    monkeypatch.chdir(tmp_path / "other")
    code, _, err = run("search", "hello")
    assert code == 3
    assert "Added" not in err
    assert run("list")[1].startswith("No wikis yet")


def test_an_unknown_wiki_names_the_data_directory_and_similar_slugs(
    run: Run, notes: Repository, tmp_path: Path
) -> None:
    run("search", "key")
    for arguments in (["search", "-w", "my-ntoes", "x"], ["status", "my-ntoes"], ["sync", "my-ntoes"]):
        code, out, err = run(*arguments)
        assert (code, out) == (3, "")
        assert f"There is no wiki 'my-ntoes' in {tmp_path / 'share' / 'wikiholt'}." in err
        assert "Did you mean my-notes?" in err


def test_a_slug_as_the_first_word_gets_a_hint(run: Run, notes: Repository) -> None:
    run("search", "key")
    assert "search -w my-notes" in run("search", "my-notes", "key")[2]
    assert run("search", "my-notes")[2] == ""


def test_a_slug_as_the_first_word_registers_no_other_folder(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("search", "key")
    Repository(tmp_path / "other").commit({"a.md": "# A key"})
    monkeypatch.chdir(tmp_path / "other")
    code, _, err = run("search", "my-notes", "key")
    assert code == 0
    assert "Added" not in err
    assert "search -w my-notes" in err
    assert run("list", "--slugs")[1].split() == ["my-notes"]
    assert "Added other" in run("search", "key")[2]


def test_add_makes_a_free_slug_from_the_folder(run: Run, notes: Repository, tmp_path: Path) -> None:
    names = ["My Notes", "api", "東京"]
    for name in (*names[1:], "other/My Notes"):
        Repository(tmp_path / name).commit({"a.md": "# A"})
    for name in (*names, "other/My Notes"):
        assert run("add", str(tmp_path / name))[0] == 0
    slugs = [line.split()[0] for line in run("list")[1].splitlines()]
    assert slugs == ["api-pages", "my-notes", "my-notes-2", "my-wiki"]


def test_add_of_a_registered_folder_needs_another_name(run: Run, notes: Repository, tmp_path: Path) -> None:
    assert run("add", str(notes.path))[0] == 0
    code, out, err = run("add", "--worktree", ".")
    assert (code, out) == (4, "")
    assert f"error: {notes.path} is already registered as my-notes.\n" in err
    assert "wikiholt search -w my-notes" in err
    assert "wikiholt add SLUG" in err
    assert run("add", "again", str(notes.path))[0] == 0
    assert run("add", str(notes.path), "--subdirectory", "docs")[0] == 0, "other pages"
    assert run("list", "--slugs")[1].split() == ["again", "my-notes", "my-notes-2"]


def test_a_search_tells_how_many_files_could_not_be_indexed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)
    (folder / "Beans.md").write_text("# Beans\n\nRunner beans need poles.")
    (folder / "Link.md").symlink_to("/etc/hostname")
    (folder / "Other.md").symlink_to("/etc/passwd")
    note = "could not be indexed; see `wikiholt status bad`\n"
    assert f"note: 2 files {note}" in run("search", "beans")[2]
    assert "problem" in run("status", "bad")[1]
    (folder / "Peas.md").write_text("# Peas\n\nPeas need a net.")
    assert run("search", "peas")[2] == "", "the number is the same"
    (folder / "Other.md").unlink()
    assert f"note: 1 file {note}" in run("search", "peas")[2]
    (folder / "Link.md").unlink()
    assert run("search", "peas")[2] == ""


def test_sync_status_and_read_show_the_warnings_of_pages(run: Run, notes: Repository) -> None:
    notes.commit({"Bad.md": "---\ntags: [a, b\n---\n# Bad\n\nText.", "Open.md": "---\ntitle: Open\n\nText."})
    assert run("add", str(notes.path))[0] == 0
    reports = run("sync", "my-notes")[1], run("status", "my-notes")[1]
    for report in reports:
        assert "  warning: Bad.md: the frontmatter could not be read in full" in report
        assert "  warning: Open.md: the frontmatter is not closed" in report
    status = json.loads(run("status", "my-notes", "--json")[1])
    assert (status["pages_with_warnings"], [page["file"] for page in status["warnings"]]) == (2, ["Bad.md", "Open.md"])
    assert "pages with warnings (see `wikiholt status`): 2" in run("doctor")[1]
    _, text, err = run("read", "Bad")
    assert "could not be read" not in text
    assert err.startswith("warning: the frontmatter could not be read in full")
    notes.commit({"Bad.md": "---\ntags: [a, b]\n---\n# Bad\n\nText."})
    assert "warning" not in run("sync", "my-notes")[1], "it indexed no page with a warning"
    assert json.loads(run("status", "my-notes", "--json")[1])["pages_with_warnings"] == 1
    assert run("read", "Bad")[2] == ""


def test_many_warnings_are_counted(run: Run, notes: Repository) -> None:
    notes.commit({f"Page {n:03}.md": f"---\ndate: soon\n---\n# Page {n}\n" for n in range(103)})
    assert run("add", str(notes.path))[0] == 0
    lines = run("sync", "my-notes")[1].splitlines()
    assert sum(line.startswith("  warning: ") for line in lines) == 20
    assert "  … and 83 more pages with warnings; see `wikiholt status my-notes --json`" in lines
    status = json.loads(run("status", "my-notes", "--json")[1])
    assert (status["pages_with_warnings"], len(status["warnings"])) == (103, 100)


def test_a_search_says_that_the_folder_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    (folder / "Beans.md").write_text("# Beans\n\nRunner beans need poles.")
    monkeypatch.chdir(folder)
    run("search", "beans")
    monkeypatch.chdir(tmp_path / "home")
    folder.rename(tmp_path / "elsewhere")
    code, out, _ = run("search", "-w", "gone", "beans")
    assert code == 0
    assert ", its source cannot be read\n" in out
    assert "note: the folder or repository of this wiki is missing (source-missing); recent changes are unknown" in out


def test_scripts_can_tell_the_wikis_of_merged_hits_apart(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    for repository in (notes, other):
        repository.commit({"Locks.md": "# Locks\n\nEvery lock has a key."})
        monkeypatch.chdir(repository.path)
        run("search", "key")
        (repository.path / "Locks.md").unlink()
    search = ("search", "lock", "--mode", "keyword", "--format")
    assert run(*search, "csv")[1].startswith("score,"), "one wiki"
    assert run(*search, "paths")[1] == "Locks.md\n"
    monkeypatch.chdir(tmp_path / "home")
    rows = list(csv.DictReader(io.StringIO(run(*search, "csv")[1])))
    assert {(row["wiki"], row["file"]) for row in rows} == {("my-notes", "Locks.md"), ("other", "Locks.md")}
    assert set(run(*search, "paths")[1].splitlines()) == {"my-notes:Locks.md", "other:Locks.md"}
    (notes.path / "Locks.md").write_text("# Locks\n\nEvery lock has a key.")
    assert set(run(*search, "paths")[1].splitlines()) == {"../My Notes/Locks.md", "other:Locks.md"}


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_data_directory_that_is_a_file_gets_a_hint(run: Run, tmp_path: Path, below: str) -> None:
    (tmp_path / "file.txt").write_text("x")
    code, _, err = run("--data", str(tmp_path / "file.txt" / below), "list")
    assert code == 7
    assert "is not a directory" in err
    assert "hint: Name a directory with --data" in err


def test_list_names_the_data_directory_without_wikis(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--data", str(tmp_path / "nope" / "a"), "list")
    assert code == 0
    assert out.startswith(f"No wikis yet in {tmp_path / 'nope' / 'a'}.\n")
    assert not (tmp_path / "nope").exists()


def test_the_hint_of_a_report_names_the_wiki(run: Run, notes: Repository) -> None:
    run("add", "pond", str(notes.path))
    code, _, err = run("report", "pond")
    assert code == 3
    assert "`wikiholt set pond log_queries=true`" in err


def test_eval_takes_the_wiki_of_the_folder(
    run: Run, notes: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "q1", "text": "signing key"}\n')
    (tmp_path / "q.tsv").write_text("q1\tKeys\t1\n")
    options = ("--queries", str(tmp_path / "q.jsonl"), "--qrels", str(tmp_path / "q.tsv"), "--mode", "keyword")
    run("search", "key")
    other = Repository(tmp_path / "other")
    other.commit({"Tea.md": "# Tea"})
    run("add", str(other.path))
    assert json.loads(run("eval", *options, "--json")[1])["wiki"] == "my-notes"
    monkeypatch.chdir(tmp_path / "home")
    code, _, err = run("eval", *options)
    assert code == 3
    assert "Write `wikiholt eval SLUG` with one of these: my-notes, other" in err


def test_an_index_answers_when_its_sync_fails(run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    run("search", "key")
    notes.commit({"Tea.md": "# Tea"})

    def fail(*_: object) -> None:
        raise SourceCorrupt("a broken object", hint="run git fsck")

    monkeypatch.setattr(GitSource, "read_all_files", fail)
    monkeypatch.setattr(GitSource, "get_changes", fail)
    code, out, err = run("search", "key", "--json")
    assert (code, get_paths(out)[0]) == (0, "Keys")
    assert "note: my-notes could not be synced: a broken object" in err


def test_in_a_folder_of_a_repository_only_that_folder_is_registered(
    run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(notes.path / "docs")
    _, out, err = run("search", "rotate the key", "--json")
    assert get_paths(out) == ["Soup"]
    assert f"Added my-notes-docs: 1 page at HEAD in {notes.path / 'docs'}\n" in err
    assert f"wikiholt add '{notes.path}'" in err


def test_another_folder_of_the_repository_is_registered_too(
    run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.commit({"guides/Key.md": "# A key guide", "src/main.c": "int main;"})
    monkeypatch.chdir(notes.path / "docs")
    run("search", "soup")
    monkeypatch.chdir(notes.path / "guides")
    _, out, err = run("search", "key", "--json")
    assert get_paths(out) == ["Key"]
    assert "Added my-notes-guides: 1 page" in err
    monkeypatch.chdir(notes.path / "src")
    code, out, err = run("search", "key", "--json")
    assert (code, err) == (0, ""), "a folder without pages has the wikis of its repository"
    assert {hit["wiki"] for hit in json.loads(out)["results"]} == {"my-notes-docs", "my-notes-guides"}


def test_a_repository_root_still_means_all_of_it(run: Run, notes: Repository) -> None:
    notes.commit({"mkdocs.yml": "site_name: Notes\n"})
    assert sorted(get_paths(run("search", "water key", "--json")[1])) == ["Keys", "docs/Soup"]


def test_a_folder_of_code_is_searched_with_its_repository(
    run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.commit({"src/main.c": "int main;"})
    monkeypatch.chdir(notes.path / "src")
    code, _, err = run("search", "key")
    assert (code, err) == (0, f"Added my-notes: 2 pages at HEAD in {notes.path}\n")


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"mkdocs.yml": "site_name: x\n"}, "docs"),
        ({"mkdocs.yml": "nav: !ENV [a]\ndocs_dir: 'docs/guides'  # here\n"}, "docs/guides"),
        ({"mkdocs.yml": "docs_dir: ../elsewhere\n"}, "docs/guides/deep"),
        ({"docs/.obsidian/app.json": "{}"}, "docs"),
    ],
)
def test_the_documents_or_the_vault_that_contain_the_folder_are_registered(
    run: Run, notes: Repository, monkeypatch: pytest.MonkeyPatch, files: dict[str, str | bytes | None], place: str
) -> None:
    notes.commit({"docs/guides/deep/Page.md": "# Page", **files})
    monkeypatch.chdir(notes.path / "docs/guides/deep")
    err = run("search", "page")[2]
    assert f" at HEAD in {notes.path / place}\n" in err
    assert ("It contains this folder" in err) == (place != "docs/guides/deep")


def test_a_vault_without_git_is_registered_from_a_folder_in_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "deep").mkdir()
    (vault / "Beans.md").write_text("# Beans")
    monkeypatch.chdir(vault / "deep")
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)
    _, out, err = run("search", "beans", "--json")
    assert f"Added vault: 1 page in {vault}\n" in err
    assert get_paths(out) == ["Beans"]


def test_an_option_of_another_program_in_a_query_is_a_word(run: Run, notes: Repository) -> None:
    notes.commit({"Disks.md": "# Disks\n\nCheck with badblocks -wsv.", "Other.md": "# Other\n\nThe badblocks list."})
    code, out, err = run("search", "badblocks", "-wsv", "--json")
    assert code == 0
    assert get_paths(out)[0] == "Disks"
    assert "note: there is no wiki 'sv', so -wsv is searched as a word\n" in err
    code, out, err = run("search", "badblocks", "-wmy-notes", "--json")
    assert (code, err) == (0, "")
    assert run("search", "badblocks", "-w", "sv")[0] == 3


@pytest.mark.parametrize("when", ["yesterday", "2 weeks ago", "1 day", "3 months ago"])
def test_pages_since_a_day_in_words(run: Run, notes: Repository, when: str) -> None:
    code, out, _ = run("search", "key", "--since", when, "--json")
    assert (code, get_paths(out)) == (1, []), "the commits of the test are older"
    notes.commit({"New.md": f"---\nupdated: {datetime.now(UTC):%Y-%m-%d}\n---\n# New key"})
    assert get_paths(run("search", "key", "--since", when, "--json")[1]) == ["New"]


def test_a_day_that_is_no_day_is_refused_with_examples(run: Run, notes: Repository) -> None:
    for when in ("someday", "99999 years ago"):
        code, _, err = run("search", "key", "--since", when)
        assert code == 2
        assert "2 weeks ago" in err


def test_sync_and_status_say_that_the_history_is_incomplete(run: Run, notes: Repository, tmp_path: Path) -> None:
    notes.commit({"Tea.md": "# Tea"})
    notes.run_git("clone", "--quiet", "--depth=1", f"file://{notes.path}", str(tmp_path / "shallow"))
    assert run("add", str(tmp_path / "shallow"))[0] == 0
    warning = "  warning: dates and former names of pages are incomplete: this clone is shallow"
    for command in ("sync", "status"):
        code, out, _ = run(command, "shallow")
        assert code == 0
        assert warning in out
        assert "git fetch --unshallow" in json.loads(run(command, "shallow", "--json")[1])["history_warning"]
    Repository(tmp_path / "shallow").run_git("fetch", "--quiet", "--unshallow")
    assert warning not in run("sync", "shallow")[1]
    assert json.loads(run("status", "shallow", "--json")[1])["history_warning"] is None


CODE = {
    "package.json": "{}",
    "Parser.approved.md": "# Expected key\n",
    "vendor/lib/Readme.md": "# A key of others\n",
    "docs/vendor/List.md": "# Vendors with a key\n",
}


def test_fixtures_and_generated_files_of_code_are_ignored_and_counted(run: Run, notes: Repository) -> None:
    notes.commit(CODE)
    _, out, err = run("search", "key", "--json")
    assert sorted(get_paths(out)) == ["Keys", "docs/Soup", "docs/vendor/List"]
    assert "Added my-notes: 3 pages at HEAD" in err
    assert "wikiholt set my-notes ignore=" in err
    assert json.loads(run("status", "my-notes", "--json")[1])["ignored"] == {"*.approved.md": 1, "/vendor/": 1}
    assert "  2 pages ignored: 1 *.approved.md, 1 /vendor/\n" in run("status", "my-notes")[1]
    assert run("set", "my-notes", "ignore=")[0] == 0
    assert run("sync", "my-notes")[0] == 0
    assert len(get_paths(run("search", "key", "--json")[1])) == 5
    assert json.loads(run("status", "my-notes", "--json")[1])["ignored"] == {}


def test_nothing_of_code_is_ignored_in_a_wiki_that_is_added(run: Run, notes: Repository) -> None:
    notes.commit(CODE)
    assert run("add", str(notes.path))[0] == 0
    assert len(get_paths(run("search", "key", "--json")[1])) == 5


def test_fixtures_of_code_without_git_are_ignored_and_counted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tool"
    (folder / "_site").mkdir(parents=True)
    for file in ("Cargo.toml", "Guide.md", "Out.approved.md", "_site/Guide.md"):
        (folder / file).write_text("# Key")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)
    _, out, err = run("search", "key", "--json")
    assert get_paths(out) == ["Guide"]
    assert f"Added tool: 1 page in {folder}\n" in err
    assert json.loads(run("status", "tool", "--json")[1])["ignored"] == {"*.approved.md": 1, "_site/": 1}
