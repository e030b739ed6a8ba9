"""Writing to a directory: each file is replaced atomically, several files all or nothing, and no edit is lost."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.folder.conftest import OLD_TIME_S, Vault, read_all
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import InputTooLarge, InvalidPage, NotWritable, RevisionMismatch, WikiholtError
from wikiholt.folder.directory_scanner import DirectoryScanner
from wikiholt.folder.directory_writer import DirectoryWriter
from wikiholt.folder.source import DirectorySource

ADA = Author("Ada", "ada@example.org")


def get_blob(source: DirectorySource, file: str) -> str:
    return source.read_tree(source.get_head())[file].blob


def list_vault(vault: Vault) -> dict[str, bytes]:
    return {str(file.relative_to(vault.path)): file.read_bytes() for file in vault.path.rglob("*") if file.is_file()}


def test_a_write_changes_the_file_and_the_revision(vault: Vault) -> None:
    vault.write("Home.md", "old")
    source = vault.open()
    revision = source.commit([FileEdit("Home.md", b"new", get_blob(source, "Home.md"))], ADA, "Say it better")
    assert list_vault(vault) == {"Home.md": b"new"}
    assert read_all(source) == {"Home.md": b"new"}
    assert source.read_history("Home.md", 1)[0].revision == revision
    assert source.fetch() is False


def test_pages_are_created_in_new_directories_and_deleted(vault: Vault) -> None:
    source = vault.open()
    source.commit([FileEdit("guides/Setup.md", b"text", None)], ADA, "Create")
    assert list_vault(vault) == {"guides/Setup.md": b"text"}
    source.commit([FileEdit("Home.md", b"home", None)], ADA, "Create")
    source.commit([FileEdit("guides/Setup.md", None, get_blob(source, "guides/Setup.md"))], ADA, "Delete")
    assert read_all(source) == list_vault(vault) == {"Home.md": b"home"}
    assert (vault.path / "guides").is_dir(), "directories belong to the user"


def test_the_file_keeps_its_permissions(vault: Vault) -> None:
    file = vault.write("Home.md", "old")
    file.chmod(0o640)
    source = vault.open()
    source.commit([FileEdit("Home.md", b"new", get_blob(source, "Home.md"))], ADA, "Edit")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_an_edit_on_disk_that_no_scan_has_seen_is_never_overwritten(vault: Vault) -> None:
    vault.write("Home.md", "old")
    source = vault.open()
    blob = get_blob(source, "Home.md")
    vault.write("Home.md", "edited in another program")
    with pytest.raises(RevisionMismatch, match="has changed") as error:
        source.commit([FileEdit("Home.md", b"new", blob)], ADA, "Edit")
    assert error.value.hint
    assert list_vault(vault) == {"Home.md": b"edited in another program"}
    # The snapshot has the edit now, so the next attempt works on it.
    source.commit([FileEdit("Home.md", b"both", get_blob(source, "Home.md"))], ADA, "Edit")
    assert list_vault(vault) == {"Home.md": b"both"}


def test_files_that_appeared_or_vanished_are_mismatches(vault: Vault) -> None:
    vault.write("Home.md", "old")
    source = vault.open()
    blob = get_blob(source, "Home.md")
    vault.write("New.md", "there")
    with pytest.raises(RevisionMismatch, match="already exists"):
        source.commit([FileEdit("New.md", b"new", None)], ADA, "Create")
    vault.write("Other.md", "text")
    (vault.path / "Home.md").unlink()
    with pytest.raises(RevisionMismatch, match="is gone"):
        source.commit([FileEdit("Home.md", b"new", blob)], ADA, "Edit")
    assert set(read_all(source)) == {"New.md"}, "only the edited files are read"


@pytest.mark.parametrize(
    "file",
    [
        "../out.md",
        "a/../b.md",
        ".git/x.md",
        "Home.docx",
        "folder",
        ".hidden/x.md",
        "HOME.md",
        "Home.md/x.md",
        "link/x.md",
    ],
)
def test_invalid_names_are_refused_and_nothing_is_written(vault: Vault, tmp_path: Path, file: str) -> None:
    vault.write("Home.md", "text")
    (tmp_path / "outside").mkdir()
    (vault.path / "link").symlink_to(tmp_path / "outside")
    before = list_vault(vault)
    source = vault.open()
    source.fetch()
    with pytest.raises((InvalidPage, NotWritable)) as error:
        source.commit([FileEdit(file, b"text", None)], ADA, "Create")
    assert error.value.hint
    assert list_vault(vault) == before
    assert not list((tmp_path / "outside").iterdir())


def test_a_name_that_a_link_or_directory_has_is_refused(vault: Vault, tmp_path: Path) -> None:
    vault.write("Home.md", "text")
    (vault.path / "Link.md").symlink_to(tmp_path / "target")
    (vault.path / "Folder.md").mkdir()
    for file in ("Link.md", "Folder.md"):
        with pytest.raises(InvalidPage, match="is not a file"):
            vault.open().commit([FileEdit(file, b"text", None)], ADA, "Create")
    assert not (tmp_path / "target").exists()


def test_a_read_only_directory_can_be_read_but_not_written(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.write("Home.md", "old")
    source = vault.open()
    blob = get_blob(source, "Home.md")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(NotWritable, match="cannot be written") as error:
        source.commit([FileEdit("Home.md", b"new", blob)], ADA, "Edit")
    assert "may write" in error.value.hint
    assert read_all(source) == list_vault(vault) == {"Home.md": b"old"}


def test_a_full_disk_leaves_the_old_file(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.write("Home.md", "old")
    source = vault.open()
    blob = get_blob(source, "Home.md")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(NotWritable, match="The directory cannot be written: No space left"):
        source.commit([FileEdit("Home.md", b"new", blob)], ADA, "Edit")
    monkeypatch.undo()
    assert list_vault(vault) == {"Home.md": b"old"}


def test_too_long_messages_are_refused(vault: Vault) -> None:
    with pytest.raises(InputTooLarge):
        vault.open().commit([FileEdit("Home.md", b"text", None)], ADA, "x" * 70_000)


class KilledError(BaseException):
    """The process ends here."""


@contextmanager
def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    """End the process before or after the n-th change of a file or of the table."""
    remaining = [step]

    def wrap(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def run(*arguments: object, **options: object) -> object:
            count_down()
            result = real(*arguments, **options)
            count_down()
            return result

        patch.setattr(owner, name, run)

    def count_down() -> None:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise KilledError

    with monkeypatch.context() as patch:
        wrap(DirectoryWriter, "_update_file")
        wrap(DirectoryWriter, "_move_file")
        wrap(DirectoryScanner, "rescan")
        yield


@pytest.mark.parametrize("step", range(1, 10))
def test_a_killed_write_of_several_files_is_finished_by_the_next_scan(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    vault.write("Old.md", "page")
    vault.write("Links.md", "see [[Old]]")
    source = vault.open()
    edits = [
        FileEdit("Old.md", None, get_blob(source, "Old.md")),
        FileEdit("New.md", b"page", None),
        FileEdit("Links.md", b"see [[New]]", get_blob(source, "Links.md")),
    ]
    with kill_at(monkeypatch, step):
        try:
            source.commit(edits, ADA, "Rename")
        except KilledError:
            pass
        else:
            assert step == 9, "every step of the write was tried"
    pages = vault.read()
    assert pages == list_vault(vault) == {"New.md": b"page", "Links.md": b"see [[New]]"}


@pytest.mark.parametrize("step", range(1, 14))
def test_a_killed_move_of_a_folder_is_finished_by_the_next_scan(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    for file, text in {"A.md": "[c](A/C.md)", "A/C.md": "page", "A/p.png": "png"}.items():
        vault.write(file, text)
    source = vault.open()
    attached = source.list_attached_files("A", source.get_head())["p.png"].blob
    edits = [
        FileEdit("A.md", None, get_blob(source, "A.md")),
        FileEdit("B.md", b"[c](B/C.md)", None, moved_from="A.md"),
        FileEdit("A/C.md", None, get_blob(source, "A/C.md")),
        FileEdit("B/C.md", None, None, moved_from="A/C.md"),
        FileEdit("A/p.png", None, attached, is_attachment=True),
        FileEdit("B/p.png", None, None, is_attachment=True, moved_from="A/p.png"),
    ]
    with kill_at(monkeypatch, step):
        try:
            source.commit(edits, ADA, "Rename")
        except KilledError:
            pass
        else:
            assert step > 10, "every step of the write was tried"
    assert vault.read() == {"B.md": b"[c](B/C.md)", "B/C.md": b"page"}
    assert list_vault(vault) == {"B.md": b"[c](B/C.md)", "B/C.md": b"page", "B/p.png": b"png"}
    assert not (vault.path / "A").exists()


def test_an_interrupted_move_overwrites_nothing(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.write("A/C.md", "page")
    vault.write("A/D.md", "other")
    source = vault.open()
    edits = [
        edit
        for name in ("C.md", "D.md")
        for edit in (
            FileEdit(f"A/{name}", None, get_blob(source, f"A/{name}")),
            FileEdit(f"B/{name}", None, None, moved_from=f"A/{name}"),
        )
    ]
    with kill_at(monkeypatch, 3), pytest.raises(KilledError):
        source.commit(edits, ADA, "Rename")
    vault.write("B/D.md", "saved by somebody else")
    assert vault.read() == {"A/D.md": b"other", "B/C.md": b"page", "B/D.md": b"saved by somebody else"}


def test_a_move_to_another_file_system_copies(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.write("A/C.md", "page")
    vault.write("Home.md", "home")
    source = vault.open()
    real = os.rename

    def refuse_moves(old: str, new: str, **options: int) -> None:
        if old == "C.md":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(old, new, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse_moves)
        moved = FileEdit("B/C.md", None, None, moved_from="A/C.md")
        source.commit([FileEdit("A/C.md", None, get_blob(source, "A/C.md")), moved], ADA, "Rename")
    assert vault.read() == list_vault(vault) == {"B/C.md": b"page", "Home.md": b"home"}


def test_an_interrupted_write_does_not_overwrite_what_somebody_saved_since(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.write("A.md", "a")
    vault.write("B.md", "b")
    source = vault.open()
    edits = [FileEdit(file, b"new", get_blob(source, file)) for file in ("A.md", "B.md")]
    with kill_at(monkeypatch, 3), pytest.raises(KilledError):
        source.commit(edits, ADA, "Edit")
    vault.write("B.md", "saved by somebody else")
    assert vault.read() == {"A.md": b"new", "B.md": b"saved by somebody else"}


def test_temporary_files_of_a_killed_writer_are_removed_later(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.write("Home.md", "text")
    left = vault.write(".wikiholt-0123456789abcdef", "half")
    vault.read()
    assert left.exists()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 7200 * 1_000_000_000)
    vault.read()
    assert not left.exists()


def test_attachments_are_read_from_the_disk_and_never_copied(vault: Vault) -> None:
    vault.write("Home.md", "text")
    vault.write("Home/photo.jpg", b"\xff" * 5000, at=OLD_TIME_S)
    vault.write("Home/.secret", "x")
    vault.write("Home/Sub.md", "a page")
    source = vault.open()
    attached = source.list_attached_files("Home", source.get_head())
    assert {name: file.size for name, file in attached.items()} == {"photo.jpg": 5000}
    (blob,) = source.read_blobs([attached["photo.jpg"].blob], 10_000)
    assert blob.data == b"\xff" * 5000
    (too_large,) = source.read_blobs([attached["photo.jpg"].blob], 100)
    assert (too_large.size, too_large.data) == (5000, None)
    dates = source.get_change_dates(["Home/photo.jpg"], source.get_head(), None)
    assert dates["Home/photo.jpg"].timestamp() == OLD_TIME_S
    assert "Home/photo.jpg" not in source.read_tree(source.get_head())
    for folder in ("", "..", "Home/../..", "missing", "Home.md"):
        assert source.list_attached_files(folder, source.get_head()) == {}


def test_attachments_are_written_replaced_and_deleted(vault: Vault) -> None:
    vault.write("Home.md", "text")
    source = vault.open()
    head = source.get_head()

    def find() -> str | None:
        attached = source.list_attached_files("Home", head).get("a.png")
        return attached.blob if attached else None

    source.commit([FileEdit("Home/a.png", b"one", None, is_attachment=True)], ADA, "Attach")
    old = find()
    source.commit([FileEdit("Home/a.png", b"two", old, is_attachment=True)], ADA, "Replace")
    with pytest.raises(RevisionMismatch):
        source.commit([FileEdit("Home/a.png", b"three", old, is_attachment=True)], ADA, "Replace")
    (stale,) = source.read_blobs([old or ""], 100)
    assert stale.data is None
    assert list_vault(vault)["Home/a.png"] == b"two"
    assert source.get_head() == head, "attachments are no pages"
    source.commit([FileEdit("Home/a.png", None, find(), is_attachment=True)], ADA, "Delete")
    assert find() is None


def test_a_write_to_a_missing_directory_is_refused(vault: Vault) -> None:
    vault.path.rmdir()
    with pytest.raises(WikiholtError, match="does not exist"):
        vault.open().commit([FileEdit("Home.md", b"text", None)], ADA, "Create")
    assert not vault.path.exists()
