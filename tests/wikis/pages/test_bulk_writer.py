"""Many pages in one commit, and lines that affect no other line."""

import gc
from collections.abc import Sequence

import pytest

from tests.support.indexed_wiki import ADA, HOME, IndexedWiki
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import NotWritable
from wikiholt.git.source import GitSource
from wikiholt.wikis.pages.bulk_writer import BulkLine, _PageTree, iter_batches

LINE_COUNT = 40
"""Enough for one pack instead of loose objects."""


def write(notes: IndexedWiki, *lines: tuple[str, str | None]) -> list[tuple[str, str]]:
    """Write the lines and return the result and path of each."""
    results = notes.pages.write_many([BulkLine(n, *line) for n, line in enumerate(lines, 1)], ADA)
    assert [result.number for result in results] == list(range(1, len(lines) + 1))
    return [(str(result.outcome), result.path) for result in results]


def count_commits(notes: IndexedWiki) -> int:
    return int(notes.repository.run_git("rev-list", "--count", "HEAD"))


def test_a_batch_is_one_commit_and_repeating_it_is_none(notes: IndexedWiki) -> None:
    before = count_commits(notes)
    lines = [(f"many/{n}", f"# Page {n}\n\nÄ line\r\nand an\0ther".replace("\0", "o")) for n in range(LINE_COUNT)]
    assert write(notes, *lines) == [("created", f"many/{n}") for n in range(LINE_COUNT)]
    assert count_commits(notes) == before + 1
    assert notes.repository.run_git("log", "-1", "--format=%an %s") == b"Ada Import 40 pages"
    assert notes.pages.read("many/7").content == lines[7][1]
    assert write(notes, *lines) == [("unchanged", f"many/{n}") for n in range(LINE_COUNT)]
    assert count_commits(notes) == before + 1
    notes.repository.run_git("fsck", "--strict")


def test_pages_are_found_by_path_in_any_case_and_deleted_once(notes: IndexedWiki) -> None:
    assert write(notes, ("HOME.md", "new"), ("Tools/Spade", None), ("Nowhere", None), ("/compost/", HOME)) == [
        ("updated", "home"),
        ("deleted", "tools/spade"),
        ("absent", "Nowhere"),
        ("updated", "compost"),
    ]
    assert write(notes, ("tools/spade", None)) == [("absent", "tools/spade")]


@pytest.mark.parametrize(
    "bad",
    [
        ("a/../b", "x"),
        ("con\ttrol", "x"),
        (".git/config", "x"),
        ("", "x"),
        ("home.md/below", "x"),
        ("NUL", "a\0b"),
        ("lone", "\ud800"),
        ("large", "x" * 11_000_000),
    ],
    ids=lambda line: repr(line[0]),
)
def test_a_bad_line_affects_no_other(notes: IndexedWiki, bad: tuple[str, str]) -> None:
    results = write(notes, ("one", "1"), bad, ("two", "2"), ("three", "3"))
    assert [outcome for outcome, _ in results] == ["created", "failed", "created", "created"]
    assert notes.pages.read("three").content == "3"


def test_names_that_some_file_system_confuses_are_refused_alone(notes: IndexedWiki) -> None:
    results = write(notes, ("straße", "1"), ("STRASSE", "2"), ("ｗide", "3"), ("wide", "4"))
    assert sorted(outcome for outcome, _ in results) == ["created", "created", "failed", "updated"]


def test_the_last_line_of_a_page_wins(notes: IndexedWiki) -> None:
    assert write(notes, ("twice", "1"), ("other", "x"), ("Twice", "2")) == [
        ("created", "twice"),
        ("created", "other"),
        ("updated", "twice"),
    ]
    assert notes.pages.read("twice").content == "2"


def test_a_commit_in_between_is_kept(notes: IndexedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = GitSource.commit

    def commit_after_another(self: GitSource, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        monkeypatch.setattr(GitSource, "commit", commit)
        notes.repository.commit({"home.md": "from another writer"})
        return commit(self, edits, author, message)

    monkeypatch.setattr(GitSource, "commit", commit_after_another)
    assert write(notes, ("home", "bulk"), ("new", "n")) == [("updated", "home"), ("created", "new")]
    assert count_commits(notes) == 3


def test_an_error_of_the_repository_is_not_the_fault_of_a_line(notes: IndexedWiki) -> None:
    notes.repository.run_git("checkout", "--quiet", "--detach")
    with pytest.raises(NotWritable):
        write(notes, ("one", "1"))


def test_batches_are_limited_by_lines_and_bytes() -> None:
    assert [len(batch) for batch in iter_batches(range(1001), lambda _: 1)] == [500, 500, 1]
    assert [len(batch) for batch in iter_batches(range(3), lambda _: 9 << 20)] == [1, 1, 1]


def test_failed_lines_do_not_keep_the_tree_of_the_wiki_in_memory(notes: IndexedWiki) -> None:
    write(notes, *((f"place{n}", "x") for n in range(8)))
    lines = [BulkLine(n, f"place{n}.md/child", "x") for n in range(8)]
    results = notes.pages.write_many(lines, ADA)
    assert ["is not a directory" in str(result.error) for result in results] == [True] * 8
    gc.collect()
    assert not [kept for kept in gc.get_objects() if isinstance(kept, _PageTree)]
