import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from git_repository import Repository

from wikiholt.errors import SourceBroken
from wikiholt.model import Commit
from wikiholt.sources.git import GitSource


def changed(source: GitSource, files: list[str], revision: str, since: str | None = None) -> dict[str, float]:
    return {file: moment.timestamp() for file, moment in source.last_changed(files, revision, since).items()}


def test_each_file_has_the_date_of_its_last_change(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1", "b.md": "1", "d/c.md": "1"})
    repository.commit({"b.md": "2"})
    head = repository.commit({"d/c.md": "2"})
    expected = {"a.md": repository.minute(1), "b.md": repository.minute(2), "d/c.md": repository.minute(3)}
    assert changed(source, list(expected), head) == expected


def test_dates_are_aware_and_in_utc(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "1"})
    assert source.last_changed(["a.md"], head, None) == {"a.md": datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)}
    assert source.last_changed(["a.md"], head, None)["a.md"].tzinfo is UTC


def test_no_files_have_no_dates(repository: Repository, source: GitSource) -> None:
    assert source.last_changed([], repository.commit({"a.md": "1"}), None) == {}


def test_many_files_are_found_in_one_walk(repository: Repository, source: GitSource) -> None:
    repository.commit({f"{number}.md": "1" for number in range(300)})
    head = repository.commit({f"{number}.md": "2" for number in range(0, 300, 2)})
    found = changed(source, [f"{number}.md" for number in range(300)], head)
    assert found == {f"{number}.md": repository.minute(1 if number % 2 else 2) for number in range(300)}


def test_since_does_not_change_the_answer(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1", "b.md": "1"})
    second = repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    files = ["a.md", "b.md", "c.md"]
    expected = {"a.md": repository.minute(1), "b.md": repository.minute(2), "c.md": repository.minute(3)}
    for since in (None, first, second, head, "1" * 40):
        assert changed(source, files, head, since) == expected


def test_since_on_rewritten_history_is_no_bound(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1"})
    lost = repository.commit({"a.md": "2"})
    repository.git("reset", "--quiet", "--hard", first)
    head = repository.commit({"b.md": "3"})
    assert changed(source, ["a.md", "b.md"], head, lost) == {"a.md": repository.minute(1), "b.md": repository.minute(3)}


def test_a_merge_does_not_make_pages_look_new(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"side.md": "written on a branch"})
    repository.git("checkout", "--quiet", "main")
    repository.commit({"a.md": "2"})
    repository.commit({})
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge", "side")
    found = changed(source, ["a.md", "side.md"], repository.head())
    assert found == {"a.md": repository.minute(3), "side.md": repository.minute(2)}
    assert [commit.message for commit in source.history("side.md")] == ["Write"]


def test_a_page_edited_in_a_merge_was_changed_by_the_merge(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"a.md": "side"})
    repository.git("checkout", "--quiet", "main")
    repository.commit({"a.md": "main"})
    repository.git("merge", "--quiet", "side", check=False)
    head = repository.commit({"a.md": "both"}, "Settle")
    assert changed(source, ["a.md"], head) == {"a.md": repository.minute(4)}
    assert changed(source, ["a.md", *(f"{n}.md" for n in range(60))], head)["a.md"] == repository.minute(4)
    assert source.history("a.md")[0].message == "Settle"


def test_an_unknown_file_gets_the_date_of_the_revision(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    head = repository.commit({"b.md": "1"})
    assert changed(source, ["never.md"], head) == {"never.md": repository.minute(2)}


def test_the_newest_commit_date_does_not_fool_an_older_revision(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1"})
    repository.commit({"a.md": "2"})
    assert changed(source, ["a.md"], first) == {"a.md": repository.minute(1)}


def test_a_shallow_clone_dates_what_it_knows(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"old.md": "1"})
    repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    repository.git("clone", "--quiet", "--depth=2", f"file://{repository.path}", str(tmp_path / "shallow"))
    source = GitSource(tmp_path / "shallow")
    assert source.head() == head
    found = changed(source, ["old.md", "b.md", "c.md"], head)
    assert found == {"old.md": repository.minute(2), "b.md": repository.minute(2), "c.md": repository.minute(3)}


def test_files_are_dated_by_their_names_below_the_sub_directory(repository: Repository) -> None:
    repository.commit({"docs/a.md": "1", "a.md": "1"})
    head = repository.commit({"a.md": "2"})
    source = GitSource(repository.path, subdirectory="docs")
    assert changed(source, ["a.md"], head) == {"a.md": repository.minute(1)}
    assert [commit.date.timestamp() for commit in source.history("a.md")] == [repository.minute(1)]


def test_a_hole_in_the_history_costs_dates_but_not_the_wiki(
    repository: Repository, source: GitSource, caplog: pytest.LogCaptureFixture
) -> None:
    repository.commit({"a.md": "1"})
    lost = repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    repository.loose(lost).unlink()
    with caplog.at_level(logging.WARNING):
        found = changed(source, ["a.md", "c.md"], head)
    assert found == {"a.md": repository.minute(3), "c.md": repository.minute(3)}
    assert "could not read the whole history" in caplog.text


def test_a_commit_with_an_impossible_date_is_dated_at_the_beginning(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"a.md": "1"})
    body = repository.git("cat-file", "commit", commit).decode()
    stamp = str(int(repository.minute(1)))
    odd = body.replace(f"> {stamp} +0000", "> 99999999999999 +0000") + "\n"
    broken = repository.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=odd.encode()).decode()
    repository.git("update-ref", "refs/heads/main", broken)
    assert changed(source, ["a.md"], broken) == {"a.md": 0}


def test_history_lists_commits_newest_first_and_follows_renames(repository: Repository, source: GitSource) -> None:
    text = "A page with enough text to be known again.\n" * 5
    first = repository.commit({"Old name.md": text}, "Begin\n\nWith a body — and a dash.")
    second = repository.commit({"Old name.md": None, "New name.md": text}, "Rename")
    repository.commit({"other.md": "x"}, "Other")
    third = repository.commit({"New name.md": text + "more\n"}, "Edit")
    history = source.history("New name.md")
    assert [commit.revision for commit in history] == [third, second, first]
    assert history[-1] == Commit(
        revision=first,
        author="Ada",
        email="ada@example.org",
        date=datetime.fromtimestamp(repository.minute(1), UTC),
        message="Begin\n\nWith a body — and a dash.",
    )
    assert source.history("New name.md", limit=1) == history[:1]
    assert source.history("New name.md", revision=second) == history[1:]


def test_an_unknown_file_has_no_history(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    assert source.history("never.md") == []


def test_merges_do_not_use_up_the_limit(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"}, "Begin")
    for number in range(3):
        repository.git("checkout", "--quiet", "-b", f"side{number}")
        repository.commit({"a.md": f"side {number}"}, f"Side {number}")
        repository.git("checkout", "--quiet", "main")
        repository.git("merge", "--quiet", "--no-ff", "-m", "Merge", f"side{number}")
    assert [commit.message for commit in source.history("a.md", limit=3)] == ["Side 2", "Side 1", "Side 0"]


def test_history_with_a_hole_is_an_error(repository: Repository, source: GitSource) -> None:
    lost = repository.commit({"a.md": "1"})
    repository.commit({"a.md": "2"})
    repository.loose(lost).unlink()
    with pytest.raises(SourceBroken, match="could not read the history"):
        source.history("a.md")
