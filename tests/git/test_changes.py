"""The difference of two revisions is the difference of their trees."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.git_repository import Repository
from wikiholt.git.source import GitSource

FILES = st.sampled_from(["a.md", "b.md", "docs/a.md", "docs/x/ü b.md", "docs/draft.md", "docs/pic.png", ".hid/a.md"])
EDITS = st.dictionaries(FILES, st.sampled_from(["one", "two", None]), max_size=5)


@pytest.mark.parametrize("subdirectory", ["", "docs"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=EDITS, second=EDITS)
def test_changes_turn_one_tree_into_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    subdirectory: str,
    first: dict[str, str | None],
    second: dict[str, str | None],
) -> None:
    repository = Repository(tmp_path_factory.mktemp("wiki"))
    source = GitSource(repository.path, subdirectory=subdirectory, ignore=["draft.md"])
    present = {"docs/keep.md": "kept", **{file: text for file, text in first.items() if text is not None}}
    old = repository.commit(dict(present))
    new = repository.commit({file: text for file, text in second.items() if text is not None or file in present})
    changes = source.get_changes(old, new)
    assert changes is not None
    tree = dict(source.read_tree(old))
    for change in changes:
        assert tree.pop(change.file, None) == change.old
        if change.new is not None:
            tree[change.file] = change.new
    assert tree == source.read_tree(new)


def test_changes_from_a_missing_commit_are_unknown(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "alpha"})
    assert source.get_changes("0123456789" * 4, head) is None


def test_changes_with_ambiguous_file_names_are_unknown(
    repository: Repository, source: GitSource, tmp_path: Path
) -> None:
    first = repository.commit({"a.md": "alpha"})
    blob = repository.write_blob(b"odd")
    odd = repository.commit_tree([f"100644 blob {blob}\t".encode() + b"\xff.md"])
    assert source.get_changes(first, odd) is None
    assert source.get_changes(odd, odd) == []
