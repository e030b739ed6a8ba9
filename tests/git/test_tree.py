import os
import unicodedata
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import EntryKind, TreeEntry
from wikiholt.errors import InvalidSource, SourceCorrupt, SourceError
from wikiholt.git.source import GitSource


def test_a_tree_holds_pages_by_extension_whatever_its_case(repository: Repository, source: GitSource) -> None:
    pages = ("Home.md", "B.MD", "c.markdown", "d/E.Md", "f.txt", "g.mdx", "h.RST", "i.adoc")
    commit = repository.commit(dict.fromkeys((*pages, "md", "j.md.bak", "k.docx"), "text"))
    assert set(source.read_tree(commit)) == set(pages)


def test_other_files_are_those_that_are_no_pages_and_not_ignored(repository: Repository) -> None:
    files = ("mkdocs.yml", "other/a.png", "docs/a.md", "docs/b.png", "docs/x/.obsidian/app.json", "docs/drafts/c.pdf")
    commit = repository.commit(dict.fromkeys(files, "text"))
    everything = GitSource(repository.path).list_other_files(commit)
    assert sorted(everything) == sorted(set(files) - {"docs/a.md"})
    docs = GitSource(repository.path, subdirectory="docs", ignore=["drafts/"]).list_other_files(commit)
    assert sorted(docs) == sorted(["b.png", "x/.obsidian/app.json", "../docs", "../mkdocs.yml", "../other"])
    with pytest.raises(SourceError):
        GitSource(repository.path).list_other_files("0" * 40)


def test_a_name_that_is_only_an_extension_is_not_a_page(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({".md": "a", "x/.markdown": "b", ".draft.md": "c"})
    assert set(source.read_tree(commit)) == {".draft.md"}


def test_hidden_directories_are_excluded_unless_included_by_a_pattern(repository: Repository) -> None:
    commit = repository.commit({"Home.md": "a", ".github/PULL.md": "b", "x/.obsidian/y.md": "c"})
    assert set(GitSource(repository.path).read_tree(commit)) == {"Home.md"}
    taken_back = GitSource(repository.path, ignore=["!.github/"])
    assert set(taken_back.read_tree(commit)) == {"Home.md", ".github/PULL.md"}


def test_names_are_relative_to_the_sub_directory(repository: Repository) -> None:
    commit = repository.commit({"docs/wiki/Home.md": "a", "docs/wiki/x/y.md": "b", "docs/other.md": "c", "top.md": "d"})
    for spelling in ("docs/wiki", "docs/wiki/", "./docs//wiki"):
        source = GitSource(repository.path, subdirectory=spelling)
        assert set(source.read_tree(commit)) == {"Home.md", "x/y.md"}


def test_a_missing_sub_directory_is_an_error_that_names_the_existing_ones(repository: Repository) -> None:
    commit = repository.commit({"docs/Home.md": "a", "notes/x.md": "b", "top.md": "c"})
    for wrong in ("doc", "top.md", "docs/Home.md"):
        with pytest.raises(InvalidSource, match="no directory") as caught:
            GitSource(repository.path, subdirectory=wrong).read_tree(commit)
        assert caught.value.hint.endswith("docs, notes.")


@pytest.mark.parametrize("outside", ["../other", "docs/../..", "/etc", "a\0b"])
def test_a_sub_directory_outside_the_repository_is_refused(tmp_path: Path, outside: str) -> None:
    with pytest.raises(InvalidSource, match="is not inside"):
        GitSource(tmp_path, subdirectory=outside)


def test_odd_file_names_keep_every_character(repository: Repository, source: GitSource) -> None:
    names = [
        "-rf.md",
        "--help.md",
        "quo\"te's.md",
        "new\nline.md",
        "tab\tand space.md",
        "back\\slash.md",
        ":(top)magic.md",
        "*.md",
        unicodedata.normalize("NFC", "Café.md"),
        unicodedata.normalize("NFD", "Café.md"),
        "日本語/ページ.md",
        "e" * 200 + ".md",
    ]
    blob = repository.write_blob(b"text")
    folder = repository.run_git("mktree", "-z", stdin=f"100644 blob {blob}\tページ.md\0".encode()).decode()
    lines = [f"100644 blob {blob}\t{name}".encode() for name in names if "/" not in name]
    commit = repository.commit_tree([*lines, f"040000 tree {folder}\t日本語".encode()])
    assert dict(source.read_tree(commit)) == dict.fromkeys(names, TreeEntry(blob))
    assert set(source.get_change_dates(names, commit, None)) == set(names)
    for name in names:
        assert [found.revision for found in source.read_history(name)] == [commit]


def test_names_that_are_not_utf8_stay_readable(repository: Repository, source: GitSource) -> None:
    first, second = repository.write_blob(b"one"), repository.write_blob(b"two")
    commit = repository.commit_tree(
        [f"100644 blob {first}\tcaf".encode() + b"\xe9.md", f"100644 blob {second}\tb.md".encode()]
    )
    tree = source.read_tree(commit)
    assert dict(tree) == {"caf\\xe9.md": TreeEntry(first), "b.md": TreeEntry(second)}
    assert [blob.data for blob in source.read_blobs([tree["caf\\xe9.md"].blob], 10)] == [b"one"]
    dates = source.get_change_dates(list(tree), commit, None)
    assert {moment.timestamp() for moment in dates.values()} == {repository.get_commit_time(1)}


def test_two_names_that_read_the_same_do_not_hide_one_another(repository: Repository, source: GitSource) -> None:
    raw, shown = repository.write_blob(b"raw"), repository.write_blob(b"shown")
    commit = repository.commit_tree(
        [f"100644 blob {raw}\t".encode() + b"\xff.md", f"100644 blob {shown}\t\\xff.md".encode()]
    )
    assert {entry.blob for entry in source.read_tree(commit).values()} == {raw, shown}


def test_links_and_submodules_come_with_their_kind(repository: Repository, source: GitSource) -> None:
    blob = repository.write_blob(b"text")
    target = repository.write_blob(b"Home.md")
    commit = repository.commit_tree(
        [
            f"100644 blob {blob}\tHome.md".encode(),
            f"100755 blob {blob}\tRun.md".encode(),
            f"120000 blob {target}\tLink.md".encode(),
            f"160000 commit {'1' * 40}\tmodule.md".encode(),
            f"160000 commit {'1' * 40}\tmodule".encode(),
        ]
    )
    assert dict(source.read_tree(commit)) == {
        "Home.md": TreeEntry(blob),
        "Run.md": TreeEntry(blob),
        "Link.md": TreeEntry(target, EntryKind.SYMLINK),
        "module.md": TreeEntry("1" * 40, EntryKind.SUBMODULE),
    }


def test_a_tree_is_that_of_its_revision_and_not_of_the_work_tree(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"Home.md": "one", "Old.md": "old"})
    second = repository.commit({"Home.md": "two", "Old.md": None})
    (repository.path / "Uncommitted.md").write_text("new")
    assert set(source.read_tree(first)) == {"Home.md", "Old.md"}
    assert set(source.read_tree(second)) == {"Home.md"}
    assert source.read_tree(first)["Home.md"] != source.read_tree(second)["Home.md"]


def test_an_empty_tree_has_no_pages(repository: Repository, source: GitSource) -> None:
    assert dict(source.read_tree(repository.commit({}))) == {}


def test_a_missing_commit_is_an_error(repository: Repository, source: GitSource) -> None:
    repository.commit({"Home.md": "one"})
    with pytest.raises(SourceCorrupt, match="does not contain commit"):
        source.read_tree("1" * 40)


@pytest.mark.parametrize("revision", ["HEAD", "--help", "", "main:docs", "1234567", "G" * 40])
def test_only_full_commit_ids_name_a_revision(repository: Repository, source: GitSource, revision: str) -> None:
    repository.commit({"Home.md": "one"})
    with pytest.raises(InvalidSource, match="not a commit id"):
        source.read_tree(revision)


def test_a_damaged_directory_is_an_error_and_not_a_smaller_wiki(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one", "docs/x.md": "two"})
    repository.get_loose_object_file(repository.run_git("rev-parse", "HEAD:docs").decode()).unlink()
    with pytest.raises(SourceCorrupt, match="list the files"):
        source.read_tree(commit)


def test_rewritten_history_is_read_like_any_other(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"Home.md": "one"})
    repository.commit({"Home.md": "two"})
    repository.run_git("reset", "--quiet", "--hard", first)
    rewritten = repository.commit({"Home.md": "three"})
    assert source.get_head() == rewritten
    assert list(source.read_tree(rewritten)) == ["Home.md"]


def test_replaced_objects_do_not_change_what_an_id_means(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    blob = source.read_tree(commit)["Home.md"].blob
    repository.run_git("replace", blob, repository.write_blob(b"something else"))
    assert [found.data for found in source.read_blobs([blob], 100)] == [b"one"]


def test_reading_writes_nothing_into_the_repository(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    before = _read_timestamps(repository.path)
    blobs = [entry.blob for entry in source.read_tree(commit).values()]
    assert len(list(source.read_blobs(blobs, 10))) == 1
    source.get_change_dates(["Home.md"], source.get_head(), None)
    source.read_history("Home.md")
    assert _read_timestamps(repository.path) == before


def _read_timestamps(path: Path) -> dict[str, tuple[int, int]]:
    return {os.fspath(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in path.rglob("*")}
