"""Former names of pages, from the renames in git history."""

from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.git.source import GitSource

TEXT = "# Ferries\n\nThey cross the fjord at night, and in the morning they return.\n"


def rename(repository: Repository, old: str, new: str, **edits: str) -> str:
    (repository.path / new).parent.mkdir(parents=True, exist_ok=True)
    repository.run_git("mv", old, new)
    return repository.commit({f"{name}.md": text for name, text in edits.items()})


def test_renames_are_followed_also_over_small_edits(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": TEXT, "other.md": "x"})
    rename(repository, "a.md", "b.md")
    repository.commit({"b.md": TEXT + "They have a cafe.\n"})
    head = rename(repository, "b.md", "d/c.md", other="y")
    assert source.get_former_files(["d/c.md", "other.md"], head) == {"d/c.md": ["b.md", "a.md"]}
    assert source.get_former_files([], head) == {}


def test_a_name_belongs_to_the_page_that_had_it(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": TEXT})
    rename(repository, "a.md", "b.md")
    repository.commit({"b.md": None})
    head = repository.commit({"b.md": "# Another page\n\nAbout clouds.\n"})
    assert source.get_former_files(["b.md"], head) == {}


def test_two_pages_that_swap_names_have_each_others(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": TEXT, "b.md": "# Clouds\n\nThey are white and float above the hills.\n"})
    repository.run_git("mv", "a.md", "t.md")
    repository.run_git("mv", "b.md", "a.md")
    head = rename(repository, "t.md", "b.md")
    # Git sees two edits, not two renames: nothing is invented.
    assert source.get_former_files(["a.md", "b.md"], head) == {}


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_later_commit_continues_what_is_known(repository: Repository, source: GitSource, is_rewritten: bool) -> None:
    first = repository.commit({"a.md": TEXT})
    head = rename(repository, "a.md", "b.md")
    assert source.get_former_files(["b.md"], head) == {"b.md": ["a.md"]}
    if is_rewritten:
        repository.run_git("reset", "--hard", "--quiet", first)
        head = rename(repository, "a.md", "c.md")
        assert source.get_former_files(["c.md"], head) == {"c.md": ["a.md"]}
    else:
        head = rename(repository, "b.md", "c.md")
        assert source.get_former_files(["c.md"], head) == {"c.md": ["b.md", "a.md"]}


def test_names_are_relative_to_the_subdirectory(repository: Repository) -> None:
    repository.commit({"docs/a.md": TEXT, "e.md": "# Elsewhere\n\nAbout the mountains behind the town.\n"})
    rename(repository, "docs/a.md", "docs/b.md")
    head = rename(repository, "e.md", "docs/e.md")
    source = GitSource(Path(repository.path), subdirectory="docs")
    assert source.get_former_files(["b.md", "e.md"], head) == {"b.md": ["a.md"]}
