"""Attachments: listed, read, attached and deleted as commits. No other file can be reached."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from wikiholt.errors import AttachmentNotFound, InputTooLarge, InvalidPage, PageExists, PageNotFound
from wikiholt.index.pipeline import TextPipeline
from wikiholt.wikis.pages.page_attachments import guess_media_type

PNG = b"\x89PNG\r\n\x1a\n\x00\xff not really"


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[IndexedWiki]:
    pages: PageFiles = {
        "home.md": "# Home\n",
        "guides/spade.md": "# Spade\n",
        "guides/spade/handle.md": "# Handle\n",
        "guides/spade/photo.png": PNG,
        "guides/spade/.hidden": b"secret",
        "guides/spade/deep/inside.txt": b"not of this page",
        "guides/other.txt": b"of guides",
    }
    made = IndexedWiki(tmp_path, pages, pipeline=TextPipeline(max_bytes=2000))
    yield made
    made.close()


def list_names(notes: IndexedWiki, path: str) -> list[str]:
    return [attachment.filename for attachment in notes.pages.list_attachments(path).files]


def test_attachments_are_the_files_in_the_pages_directory_that_are_not_pages(notes: IndexedWiki) -> None:
    found = notes.pages.list_attachments("guides/Spade")
    assert found.path == "guides/spade"
    (photo,) = found.files
    assert (photo.filename, photo.size, photo.mime_type) == ("photo.png", len(PNG), "image/png")
    assert photo.last_modified is not None
    assert list_names(notes, "home") == []


def test_an_attachment_is_read_unchanged(notes: IndexedWiki) -> None:
    assert notes.pages.read_attachment("guides/spade", "photo.png").data == PNG


def test_attaching_makes_a_commit_and_the_file_is_in_the_work_tree(notes: IndexedWiki) -> None:
    made = notes.pages.add_attachment("home", "naïve plan 1.bin", PNG, ADA, "Plan")
    assert made.created
    assert made.revision == notes.repository.get_head()
    assert notes.pages.read_attachment("home", "naïve plan 1.bin").data == PNG
    assert (notes.repository.path / "home" / "naïve plan 1.bin").read_bytes() == PNG
    assert notes.repository.run_git("status", "--porcelain") == b""
    assert notes.repository.run_git("log", "-1", "--format=%an %s").decode().strip() == "Ada Plan"


def test_attaching_again_replaces_unless_only_new_files_are_allowed(notes: IndexedWiki) -> None:
    again = notes.pages.add_attachment("guides/spade", "photo.png", b"other", ADA)
    assert not again.created
    assert notes.pages.read_attachment("guides/spade", "photo.png").data == b"other"
    with pytest.raises(PageExists):
        notes.pages.add_attachment("guides/spade", "photo.png", b"third", ADA, create_only=True)
    assert notes.pages.read_attachment("guides/spade", "photo.png").data == b"other"


def test_a_deleted_attachment_is_gone_and_its_page_stays(notes: IndexedWiki) -> None:
    notes.pages.remove_attachment("guides/spade", "photo.png", ADA)
    assert list_names(notes, "guides/spade") == []
    assert not (notes.repository.path / "guides/spade/photo.png").exists()
    assert notes.pages.read("guides/spade/handle").name == "Handle"
    with pytest.raises(AttachmentNotFound):
        notes.pages.remove_attachment("guides/spade", "photo.png", ADA)


OUTSIDE_PATHS = (
    "../home.md",
    "..",
    ".",
    "",
    "../../.git/config",
    ".git",
    ".gitattributes",
    "handle.md",
    "evil.MARKDOWN",
    "deep/inside.txt",
    "a\\b.txt",
    "a\0.txt",
    "a\n.txt",
    " a.txt",
    "a.",
    "x" * 300,
    "txt\u202egpj.exe",
    "PHOTO.png",
    "\ud800.txt",
)


def test_names_outside_the_directory_are_refused_and_nothing_is_written(notes: IndexedWiki) -> None:
    head = notes.repository.get_head()
    for filename in OUTSIDE_PATHS:
        with pytest.raises(InvalidPage):
            notes.pages.add_attachment("guides/spade", filename, b"x", ADA)
        with pytest.raises((InvalidPage, AttachmentNotFound)):
            notes.pages.read_attachment("guides/spade", filename)
        with pytest.raises((InvalidPage, AttachmentNotFound)):
            notes.pages.remove_attachment("guides/spade", filename, ADA)
    assert notes.repository.get_head() == head
    assert notes.repository.run_git("status", "--porcelain") == b""


def test_only_pages_have_attachments(notes: IndexedWiki) -> None:
    for path in ("guides", "../guides/spade", "nowhere", "guides/spade/deep", ""):
        with pytest.raises((PageNotFound, InvalidPage)):
            notes.pages.list_attachments(path)
        with pytest.raises((PageNotFound, InvalidPage)):
            notes.pages.add_attachment(path, "file.txt", b"x", ADA)


def test_a_file_over_the_limit_is_neither_stored_nor_read(notes: IndexedWiki) -> None:
    with pytest.raises(InputTooLarge):
        notes.pages.add_attachment("home", "large.bin", b"x" * 2001, ADA)
    notes.repository.commit({"home/large.bin": b"x" * 2001})
    assert [attachment.size for attachment in notes.pages.list_attachments("home").files] == [2001]
    with pytest.raises(InputTooLarge):
        notes.pages.read_attachment("home", "large.bin")


def test_a_symbolic_link_in_the_repository_is_not_an_attachment(notes: IndexedWiki) -> None:
    folder = notes.repository.path / "home"
    folder.mkdir()
    (folder / "passwd").symlink_to("/etc/passwd")
    notes.repository.run_git("add", "-A")
    notes.repository.run_git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "link")
    assert list_names(notes, "home") == []
    with pytest.raises(AttachmentNotFound):
        notes.pages.read_attachment("home", "passwd")
    with pytest.raises(InvalidPage):
        notes.pages.add_attachment("home", "passwd", b"x", ADA)
    assert (folder / "passwd").is_symlink()


@pytest.mark.parametrize(
    ("filename", "kind"),
    [
        ("a.pdf", "application/pdf"),
        ("a.JPG", "image/jpeg"),
        ("a", "application/octet-stream"),
        ("a.tar.gz", "application/octet-stream"),
        ("a.strange", "application/octet-stream"),
    ],
)
def test_the_content_type_follows_the_file_name(filename: str, kind: str) -> None:
    assert guess_media_type(filename) == kind
