import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import InputTooLarge, InvalidPage, NotWritable, RevisionMismatch
from wikiholt.git.source import GitSource

ADA = Author("Ada", "ada@example.org")
REPOSITORY_OPTIONS = [(), ("--bare",), ("--object-format=sha256",), ("--bare", "--object-format=sha256")]


def put_file(source: GitSource, file: str, content: str | bytes, message: str = "Write") -> str:
    """Write one page, whatever its current content."""
    data = content.encode() if isinstance(content, str) else content
    return source.commit([FileEdit(file, data, get_blob(source, file))], ADA, message)


def get_blob(source: GitSource, file: str) -> str | None:
    log = source.read_log(1)
    entry = source.find_file(file, source.get_head()) if log else None
    return entry.blob if entry else None


def read_content(source: GitSource, file: str) -> bytes | None:
    blob = get_blob(source, file)
    return next(iter(source.read_blobs([blob], 1 << 20))).data if blob else None


@pytest.mark.parametrize("options", REPOSITORY_OPTIONS)
def test_the_first_page_makes_the_first_commit(make_repository: Callable[..., Repository], options: list[str]) -> None:
    repository = make_repository("wiki", *options)
    source = GitSource(repository.path)
    revision = source.commit(
        [FileEdit("guides/Setup.md", b"# Setup\n", None)], Author("Bo", "bo@x.org"), "Begin\n\nWhy"
    )
    assert source.get_head() == revision
    assert read_content(source, "guides/Setup.md") == b"# Setup\n"
    shown = repository.run_git("log", "-1", "--format=%an|%ae|%cn|%B").decode()
    assert shown == "Bo|bo@x.org|Wikiholt|Begin\n\nWhy"
    assert repository.run_git("fsck", "--full", "--strict") == b""


@pytest.mark.parametrize("options", REPOSITORY_OPTIONS)
def test_an_edit_changes_its_file_and_no_other(make_repository: Callable[..., Repository], options: list[str]) -> None:
    repository = make_repository("wiki", *options)
    source = GitSource(repository.path)
    put_file(source, "a.md", "one")
    put_file(source, "deep/er/b.md", "two")
    before = source.get_head()
    put_file(source, "deep/er/b.md", "three")
    assert {file: read_content(source, file) for file in source.read_tree(source.get_head())} == {
        "a.md": b"one",
        "deep/er/b.md": b"three",
    }
    assert [change.file for change in source.get_changes(before, source.get_head()) or ()] == ["deep/er/b.md"]
    assert repository.run_git("fsck", "--full", "--strict") == b""


def test_several_edits_are_one_commit(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a", "b.md": "b", "d/c.md": "c"})
    edits = [
        FileEdit("a.md", None, get_blob(source, "a.md")),
        FileEdit("d/new.md", b"a", None),
        FileEdit("b.md", b"B", get_blob(source, "b.md")),
        FileEdit("d/c.md", None, get_blob(source, "d/c.md")),
    ]
    revision = source.commit(edits, ADA, "All at once")
    assert set(source.read_tree(revision)) == {"b.md", "d/new.md"}
    assert len(source.read_log(10)) == 2
    assert repository.run_git("status", "--porcelain") == b""
    assert sorted(file.name for file in repository.path.rglob("*.md")) == ["b.md", "new.md"]


def test_a_directory_without_pages_is_removed(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a", "x/y/z.md": "z"})
    source.commit([FileEdit("x/y/z.md", None, get_blob(source, "x/y/z.md"))], ADA, "Delete")
    assert repository.run_git("ls-tree", "--name-only", "HEAD") == b"a.md"
    assert not (repository.path / "x").exists()


def test_the_last_page_may_be_deleted(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    revision = source.commit([FileEdit("a.md", None, get_blob(source, "a.md"))], ADA, "Delete")
    assert source.read_tree(revision) == {}


def test_files_that_are_not_pages_keep_content_mode_and_kind(repository: Repository, source: GitSource) -> None:
    (repository.path / "link").symlink_to("a.md")
    (repository.path / "run").write_text("#!/bin/sh\n")
    (repository.path / "run").chmod(0o755)
    repository.commit({"a.md": "a", "odd\nname": "x"})
    before = repository.run_git("ls-tree", "-z", "HEAD", "link", "run", "odd\nname")
    put_file(source, "a.md", "b")
    assert repository.run_git("ls-tree", "-z", "HEAD", "link", "run", "odd\nname") == before


def test_an_executable_page_stays_executable(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    (repository.path / "a.md").chmod(0o755)
    repository.commit({})
    put_file(source, "a.md", "b")
    assert repository.run_git("ls-tree", "HEAD").startswith(b"100755")
    assert os.access(repository.path / "a.md", os.X_OK)


def test_the_same_content_again_makes_no_commit(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "a"})
    assert put_file(source, "a.md", "a") == head
    assert source.get_head() == head


def test_pages_below_a_sub_directory_are_written_there(repository: Repository) -> None:
    repository.commit({"README.md": "top", "docs/wiki/a.md": "a"})
    source = GitSource(repository.path, subdirectory="docs/wiki")
    put_file(source, "b/c.md", "c")
    put_file(source, "a.md", "A")
    assert set(source.read_tree(source.get_head())) == {"a.md", "b/c.md"}
    assert (repository.path / "docs/wiki/b/c.md").read_text() == "c"
    assert repository.run_git("show", "HEAD:README.md") == b"top"


def test_a_missing_sub_directory_is_created(repository: Repository) -> None:
    repository.commit({"README.md": "top"})
    put_file(GitSource(repository.path, subdirectory="wiki"), "Home.md", "x")
    assert repository.run_git("show", "HEAD:wiki/Home.md") == b"x"


def test_a_page_that_changed_since_is_not_overwritten(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "one"})
    read = get_blob(source, "a.md")
    theirs = repository.commit({"a.md": "theirs"})
    repository.commit({"b.md": "later"})
    with pytest.raises(RevisionMismatch) as caught:
        source.commit([FileEdit("a.md", b"mine", read)], ADA, "Edit")
    assert caught.value.current == theirs
    assert read_content(source, "a.md") == b"theirs"


def test_an_existing_page_is_not_created_again(repository: Repository, source: GitSource) -> None:
    revision = repository.commit({"a.md": "one"})
    with pytest.raises(RevisionMismatch) as caught:
        source.commit([FileEdit("a.md", b"mine", None)], ADA, "Create")
    assert caught.value.current == revision
    with pytest.raises(RevisionMismatch) as caught:
        source.commit([FileEdit("gone.md", b"mine", get_blob(source, "a.md"))], ADA, "Edit")
    assert caught.value.current is None


def test_one_invalid_edit_stops_the_commit(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "one"})
    with pytest.raises(RevisionMismatch):
        source.commit([FileEdit("b.md", b"b", None), FileEdit("a.md", b"mine", None)], ADA, "Both")
    assert source.get_head() == head
    assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_no_hook_of_the_repository_is_run(make_repository: Callable[..., Repository], options: list[str]) -> None:
    repository = make_repository("wiki", *options)
    git_dir = repository.path if options else repository.path / ".git"
    trace = repository.path.parent / "trace"
    hooks = git_dir / "hooks"
    hooks.mkdir(exist_ok=True)
    names = ["pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change", "pre-auto-gc"]
    for name in [*names, "update", "post-update", "post-checkout"]:
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {trace}\n")
        (hooks / name).chmod(0o755)
    repository.run_git("config", "core.fsmonitor", str(hooks / "update"))
    repository.run_git("config", "filter.x.clean", f"sh -c 'echo filter >> {trace}; cat'")
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* filter=x\n")
    source = GitSource(repository.path)
    put_file(source, "a.md", "one")
    put_file(source, "a.md", "two")
    assert not trace.exists()
    repository.run_git("update-ref", "refs/heads/probe", source.get_head())
    assert "reference-transaction" in trace.read_text(), "the hook runs in a plain git command"


def test_a_signing_key_an_encoding_or_a_template_in_its_config_changes_nothing(repository: Repository) -> None:
    repository.run_git("config", "commit.gpgSign", "true")
    repository.run_git("config", "i18n.commitEncoding", "latin1")
    repository.run_git("config", "user.name", "Nobody")
    source = GitSource(repository.path)
    source.commit([FileEdit("a.md", b"x", None)], Author("Zoë", "z@x"), "Grüße ☃")
    assert source.read_log(1)[0].commit.author == "Zoë"
    assert source.read_log(1)[0].commit.message == "Grüße ☃"
    assert b"encoding" not in repository.run_git("cat-file", "commit", "HEAD")


@pytest.mark.parametrize("name", ["", " ", "...", "<>", "A\nB", "A\0", "A <b>", "A\x1b[2J", "\ud800", "x" * 2000])
def test_an_invalid_author_name_is_refused(repository: Repository, source: GitSource, name: str) -> None:
    head = repository.commit({"a.md": "a"})
    with pytest.raises(InvalidPage):
        source.commit([FileEdit("b.md", b"x", None)], Author(name, "a@b"), "Write")
    assert source.get_head() == head


@pytest.mark.parametrize("email", ["a@b>\ncommitter Eve <e@v> 1 +0000", "<x>", "a\0b", "\udfff"])
def test_an_invalid_author_address_is_refused(repository: Repository, source: GitSource, email: str) -> None:
    head = repository.commit({"a.md": "a"})
    with pytest.raises(InvalidPage):
        source.commit([FileEdit("b.md", b"x", None)], Author("Ada", email), "Write")
    assert source.get_head() == head


def test_an_author_without_an_address_is_accepted(source: GitSource) -> None:
    source.commit([FileEdit("b.md", b"x", None)], Author("Ada", ""), "Write")
    assert (source.read_log(1)[0].commit.author, source.read_log(1)[0].commit.email) == ("Ada", "")


@pytest.mark.parametrize("message", ["", " \n ", "a\0b", "\ud800"])
def test_an_empty_or_invalid_message_is_refused(source: GitSource, message: str) -> None:
    with pytest.raises(InvalidPage):
        source.commit([FileEdit("b.md", b"x", None)], ADA, message)
    assert source.read_log(1) == []


def test_a_message_of_a_megabyte_is_refused(source: GitSource) -> None:
    with pytest.raises(InputTooLarge):
        source.commit([FileEdit("b.md", b"x", None)], ADA, "x" * 1_000_000)
    assert source.read_log(1) == []


def test_a_message_is_kept_as_it_is(source: GitSource) -> None:
    message = "Subject\n\n# not a comment\n:100644 000000 nor a change\nCo-authored-by: Eve <e@v>\n\n\nEnd"
    source.commit([FileEdit("b.md", b"x", None)], ADA, message)
    assert source.read_log(1)[0].commit.message == message
    assert source.read_log(1)[0].files == ("b.md",)


def test_no_edits_or_one_file_twice_are_refused(source: GitSource) -> None:
    for edits in ([], [FileEdit("a.md", b"x", None), FileEdit("a.md", b"y", None)]):
        with pytest.raises(InvalidPage):
            source.commit(edits, ADA, "Write")


def test_bytes_are_stored_as_they_are(source: GitSource, repository: Repository) -> None:
    repository.run_git("config", "core.autocrlf", "true")
    content = b"one\r\ntwo\r\0\xff\n" + bytes(range(256))
    put_file(source, "a.md", content)
    assert read_content(source, "a.md") == content


def test_a_repository_without_a_branch_is_not_written(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "a"})
    repository.run_git("checkout", "--quiet", "--detach")
    with pytest.raises(NotWritable, match="HEAD is detached"):
        put_file(source, "a.md", "b")
    assert source.get_head() == head


def test_an_unborn_branch_beside_others_is_not_created(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    repository.run_git("symbolic-ref", "HEAD", "refs/heads/typo")
    with pytest.raises(NotWritable, match="other branches do"):
        source.commit([FileEdit("b.md", b"x", None)], ADA, "Write")
    assert repository.run_git("for-each-ref", "--format=%(refname)") == b"refs/heads/main"


def test_a_linked_work_tree_is_written_on_its_own_branch(repository: Repository, tmp_path: Path) -> None:
    main = repository.commit({"a.md": "a"})
    repository.run_git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    source = GitSource(tmp_path / "side")
    put_file(source, "a.md", "side")
    assert (tmp_path / "side" / "a.md").read_text() == "side"
    assert (repository.path / "a.md").read_text() == "a"
    assert repository.get_head() == main
    assert repository.run_git("-C", str(tmp_path / "side"), "status", "--porcelain") == b""


def test_a_repository_with_packed_refs_and_objects_is_written(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a", "d/b.md": "b"})
    repository.run_git("gc", "--quiet")
    put_file(source, "d/b.md", "c")
    assert read_content(source, "d/b.md") == b"c"
    assert repository.run_git("status", "--porcelain") == b""


def test_threads_that_write_different_pages_lose_nothing(repository: Repository) -> None:
    repository.commit({"a.md": "a"})
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            mine = GitSource(repository.path)
            for turn in range(4):
                put_file(mine, f"t{number}.md", f"{turn}")
        except BaseException as error:  # noqa: BLE001 - the test reports whatever happened
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source = GitSource(repository.path)
    assert failures == []
    assert len(source.read_log(100)) == 25
    assert {read_content(source, f"t{number}.md") for number in range(6)} == {b"3"}
    assert repository.run_git("status", "--porcelain") == b""
