import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import InvalidPage
from wikiholt.git.source import GitSource

ADA = Author("Ada", "ada@example.org")


def create_page(source: GitSource, file: str) -> str:
    return source.commit([FileEdit(file, b"x", None)], ADA, "Create")


@pytest.mark.parametrize(
    "file",
    [
        "",
        "/etc/passwd.md",
        "../up.md",
        "a/../../up.md",
        "a//b.md",
        "./a.md",
        "a/./b.md",
        "a/",
        "a.md/",
        ".git/hooks/x.md",
        "sub/.GIT/x.md",
        ".g\u200cit/x.md",
        "\uff0egit/x.md",
        "git~1/x.md",
        ".git /x.md",
        ".git::$INDEX_ALLOCATION/x.md",
        "a\0.md",
        "a\n.md",
        "a\x1b[31m.md",
        "a\u2028b.md",
        "\ud800.md",
        "a\\b.md",
        "dir /x.md",
        " x.md",
        "dir./x.md",
        "x" * 253 + ".md",
        "ü" * 127 + ".md",
        "d/" * 600 + "x.md",
        "picture.png",
        "noextension",
        ".md",
        ".obsidian/x.md",
        "drafts/x.md",
    ],
)
def test_an_invalid_page_name_is_refused_and_changes_nothing(repository: Repository, file: str) -> None:
    head = repository.commit({"a.md": "a"})
    source = GitSource(repository.path, ignore=["drafts/"])
    with pytest.raises(InvalidPage):
        create_page(source, file)
    assert source.get_head() == head
    assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize(
    "file",
    ["-rf.md", "--help.md", ":(top)x.md", "*.md", "a b/ c d.md".replace("/ ", "/"), "日本語/ページ.md", "é.markdown"],
)
def test_an_unusual_but_valid_name_is_written_and_read_back(
    repository: Repository, source: GitSource, file: str
) -> None:
    repository.commit({"a.md": "a"})
    revision = create_page(source, file)
    assert source.find_file(file, revision) is not None
    assert set(source.read_tree(revision)) == {"a.md", file}
    assert [commit.revision for commit in source.read_history(file)] == [revision]
    assert (repository.path / file).read_bytes() == b"x"
    assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize(
    ("there", "requested"),
    [
        ("Home.md", "home.md"),
        ("Guides/a.md", "guides/b.md"),
        ("caf\u00e9.md", "cafe\u0301.md"),
        ("straße.md", "STRASSE.md"),
        ("office.md", "o\ufb03ce.md"),
        ("Home.md", "Ho\u200bme.md"),
        ("Home.md", "\uff28ome.md"),
        ("\u0130x.md", "i\u0307x.md"),
        ("README", "Readme/x.md"),
    ],
)
def test_a_name_that_collides_on_many_file_systems_is_refused(
    repository: Repository, there: str, requested: str
) -> None:
    head = repository.commit({there: "a", "other.md": "b"})
    source = GitSource(repository.path)
    with pytest.raises(InvalidPage, match="only in case or spelling"):
        create_page(source, requested)
    assert source.get_head() == head


def test_existing_colliding_names_can_be_edited(repository: Repository, source: GitSource) -> None:
    blob = repository.write_blob(b"x")
    repository.commit_tree([f"100644 blob {blob}\tHome.md".encode(), f"100644 blob {blob}\thome.md".encode()])
    repository.run_git("reset", "--hard", "--quiet")
    revision = source.commit([FileEdit("home.md", b"y", blob)], ADA, "Edit")
    assert source.read_tree(revision)["Home.md"].blob == blob
    assert source.read_tree(revision)["home.md"].blob != blob


def test_a_page_can_be_renamed_to_another_case(repository: Repository, source: GitSource) -> None:
    repository.commit({"home.md": "a"})
    blob = source.read_tree(source.get_head())["home.md"].blob
    revision = source.commit([FileEdit("home.md", None, blob), FileEdit("Home.md", b"a", None)], ADA, "Rename")
    assert set(source.read_tree(revision)) == {"Home.md"}
    assert [file.name for file in repository.path.glob("*.md")] == ["Home.md"]


def test_two_colliding_names_in_one_commit_are_refused(source: GitSource) -> None:
    with pytest.raises(InvalidPage, match="only in case"):
        source.commit([FileEdit("a.md", b"x", None), FileEdit("A.md", b"x", None)], ADA, "Both")
    assert source.read_log(1) == []


def test_a_link_a_file_or_a_submodule_in_the_path_is_refused(repository: Repository, source: GitSource) -> None:
    (repository.path / "link").symlink_to("/tmp")
    (repository.path / "page.md").symlink_to("a.md")
    head = repository.commit({"a.md": "a", "plain": "x"})
    repository.run_git("update-index", "--add", "--cacheinfo", f"160000,{head},module")
    repository.run_git("commit", "--quiet", "-m", "Module")
    for file in ("link/x.md", "plain/x.md", "module/x.md", "a.md/x.md"):
        # A sentence that began with the name would get a capital letter.
        with pytest.raises(InvalidPage, match=f"The path {file[:-5]} exists but is not a directory"):
            create_page(source, file)
    with pytest.raises(InvalidPage, match="not a file"):
        create_page(source, "page.md")
    assert (repository.path / "page.md").is_symlink()


def test_a_page_cannot_take_the_place_of_a_directory(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md/b.md": "b"})
    with pytest.raises(InvalidPage, match="not a file"):
        create_page(source, "a.md")
