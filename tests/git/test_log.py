import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import EntryKind, TreeEntry
from wikiholt.errors import InvalidPage, PageNotFound, SourceCorrupt
from wikiholt.git.source import GitSource


def test_the_log_lists_commits_that_touched_pages_newest_first(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "a", "b/c.md": "c", "x.png": "x"}, "Begin")
    repository.commit({"x.png": "y"}, "No page")
    second = repository.commit({"a.md": None, "x.png": None}, "Drop")
    log = source.read_log(10)
    assert [(entry.commit.revision, entry.files) for entry in log] == [
        (second, ("a.md",)),
        (first, ("a.md", "b/c.md")),
    ]
    assert (log[0].commit.author, log[0].commit.message) == ("Ada", "Drop")
    assert log[0].commit.date.timestamp() == repository.get_commit_time(3)


def test_the_log_can_be_read_in_parts(repository: Repository, source: GitSource) -> None:
    for number in range(7):
        repository.commit({"a.md": str(number), f"{number}.png": "x"}, f"n{number}")
    complete = [entry.commit.message for entry in source.read_log(100)]
    assert complete == [f"n{number}" for number in reversed(range(7))]
    parts = [entry.commit.message for skip in (0, 3, 6, 9) for entry in source.read_log(3, skip)]
    assert parts == complete
    assert source.read_log(0) == source.read_log(-1) == source.read_log(5, 100) == []


def test_the_log_of_a_sub_directory_leaves_out_the_rest(repository: Repository) -> None:
    inside = repository.commit({"docs/a.md": "a", "README.md": "r"})
    repository.commit({"README.md": "s", "docs2/b.md": "b"})
    log = GitSource(repository.path, subdirectory="docs").read_log(10)
    assert [(entry.commit.revision, entry.files) for entry in log] == [(inside, ("a.md",))]


def test_pages_left_out_are_not_in_the_log(repository: Repository) -> None:
    repository.commit({"drafts/secret.md": "s"}, "Secret")
    repository.commit({"drafts/secret.md": "t", "a.md": "a"}, "Both")
    log = GitSource(repository.path, ignore=["drafts/"]).read_log(10)
    assert [entry.files for entry in log] == [("a.md",)]


def test_a_merge_without_own_changes_is_not_in_the_log(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    repository.run_git("checkout", "--quiet", "-b", "side")
    side = repository.commit({"b.md": "b"})
    repository.run_git("checkout", "--quiet", "main")
    main = repository.commit({"a.md": "c"})
    repository.run_git("merge", "--quiet", "--no-edit", "side")
    revisions = [entry.commit.revision for entry in source.read_log(10)]
    assert set(revisions[:2]) == {side, main}
    assert len(revisions) == 3


def test_a_repository_without_commits_has_an_empty_log(source: GitSource) -> None:
    assert source.read_log(10) == []


def test_a_revision_is_found_by_seven_digits_or_all(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "a"})
    repository.commit({"a.md": "b"})
    for digits in (first[:7], first[:12].upper(), first):
        assert source.resolve_revision(digits) == first


@pytest.mark.parametrize(
    "text", ["", "abc", "HEAD", "main", "HEAD~1", "--all", "abcdef1\n", "0" * 65, "gggggggg", "^x"]
)
def test_an_invalid_revision_is_refused(repository: Repository, source: GitSource, text: str) -> None:
    repository.commit({"a.md": "a"})
    with pytest.raises(InvalidPage):
        source.resolve_revision(text)


def test_only_commits_that_head_descends_from_are_found(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    repository.run_git("checkout", "--quiet", "-b", "secret")
    secret = repository.commit({"s.md": "s"})
    repository.run_git("tag", "-a", "-m", "t", "v1", "main")
    tag = repository.run_git("rev-parse", "v1").decode()
    repository.run_git("checkout", "--quiet", "main")
    blob = repository.run_git("rev-parse", "HEAD:a.md").decode()
    for digits in (secret, secret[:7], tag, blob, "0123456789"):
        with pytest.raises(PageNotFound):
            source.resolve_revision(digits)


def test_a_page_is_found_at_the_revision_asked_for(repository: Repository, source: GitSource) -> None:
    old = repository.commit({"d/a.md": "old"})
    new = repository.commit({"d/a.md": "new", "d/b.md": "b"})
    assert source.find_file("d/a.md", old) == source.read_tree(old)["d/a.md"]
    assert source.find_file("d/a.md", new) == source.read_tree(new)["d/a.md"]
    assert source.find_file("d/b.md", old) is None


@pytest.mark.parametrize(
    "file", ["", "d", "d/", "/d/a.md", "d//a.md", "d/../d/a.md", "./d/a.md", "D/a.md", "x.png", "a\0.md", "\ud800.md"]
)
def test_a_file_that_is_not_a_page_is_not_found(repository: Repository, source: GitSource, file: str) -> None:
    revision = repository.commit({"d/a.md": "a", "x.png": "x"})
    assert source.find_file(file, revision) is None


def test_a_page_left_out_is_not_found(repository: Repository) -> None:
    revision = repository.commit({"drafts/a.md": "a"})
    assert GitSource(repository.path, ignore=["drafts/"]).find_file("drafts/a.md", revision) is None


def test_a_directory_with_the_name_of_a_page_is_not_found(repository: Repository, source: GitSource) -> None:
    revision = repository.commit({"a.md/x.md": "x"})
    assert source.find_file("a.md", revision) is None


def test_links_and_names_that_are_not_utf8_are_found_as_the_tree_gives_them(
    repository: Repository, source: GitSource
) -> None:
    blob = repository.write_blob(b"x")
    revision = repository.commit_tree(
        [f"120000 blob {blob}\tlink.md".encode(), f"100644 blob {blob}\t".encode() + b"\xff.md"]
    )
    assert source.find_file("link.md", revision) == TreeEntry(blob, EntryKind.SYMLINK)
    assert source.find_file("\\xff.md", revision) == TreeEntry(blob)


def test_a_page_at_a_commit_that_is_not_there_is_an_error(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    with pytest.raises(SourceCorrupt):
        source.find_file("a.md", "1" * 40)
