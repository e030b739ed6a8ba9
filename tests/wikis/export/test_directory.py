"""Writing an export: a failure at any step leaves a complete export, and files of others are never touched."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wikiholt.errors import Busy, Conflict, StorageError
from wikiholt.wikis.export import directory as export_directory
from wikiholt.wikis.export.directory import MARKER, SCRIPT, get_parts_name, write_export

STEPS = ("mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir", "listdir", "scandir")


class _Killed(BaseException):
    """Ends the process at this step."""


def write(place: Path, name: str) -> None:
    write_export(
        place, name * 16, {"start.js": name.encode(), "words-0.js": b"x"}, {SCRIPT: name.encode(), "index.html": b"p"}
    )


def read(place: Path) -> str:
    """The name of the export that the script names, whose data must be complete."""
    name = (place / SCRIPT).read_text()
    parts = place / get_parts_name(name * 16)
    assert (parts / "start.js").read_text() == name
    assert (parts / "words-0.js").read_bytes() == b"x"
    return name


def list_names(place: Path) -> list[str]:
    return sorted(file.name for file in place.iterdir())


def test_a_new_export_replaces_the_earlier_one_and_keeps_other_files(tmp_path: Path) -> None:
    place = tmp_path / "new" / "site"
    write(place, "a")
    (place / "CNAME").write_text("wiki.example.org")
    (place / "parts-of-the-site").mkdir()
    (place / "parts-list.html").write_text("of the owner")
    write(place, "b")
    assert read(place) == "b"
    others = ["CNAME", "parts-list.html", "parts-of-the-site"]
    assert list_names(place) == sorted([*others, MARKER, SCRIPT, "index.html", get_parts_name("b" * 16)])
    write(place, "b")
    assert read(place) == "b"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_kill_at_any_step_leaves_a_complete_export(tmp_path: Path, name: str) -> None:
    place = tmp_path / "site"
    for step in range(100):
        write(place, "a")
        with pytest.MonkeyPatch.context() as patch:
            count = 0

            def wrap(run: Callable[..., Any], limit: int = step) -> Callable[..., Any]:
                def fail(*arguments: Any, **options: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count > limit:
                        raise _Killed
                    return run(*arguments, **options)

                return fail

            for function in STEPS:
                patch.setattr(os, function, wrap(getattr(os, function)))
            try:
                write(place, name)
            except _Killed:
                pass
            else:
                break
        assert read(place) in ("a", name)
    assert step > 8
    write(place, "c")
    assert list_names(place) == sorted([MARKER, SCRIPT, "index.html", get_parts_name("c" * 16)])


def test_damaged_data_of_the_same_digest_is_written_again(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / get_parts_name("a" * 16) / "start.js").write_bytes(b"torn")
    write(tmp_path, "a")
    assert read(tmp_path) == "a"


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(Conflict, match="has files"):
        write(tmp_path, "a")
    assert list_names(tmp_path) == ["thesis.txt"]
    with pytest.raises(Conflict, match="is a file"):
        write(tmp_path / "thesis.txt", "a")


def test_two_exports_do_not_write_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a")
    with (tmp_path / MARKER).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            write(tmp_path, "b")
    assert read(tmp_path) == "a"


def test_what_is_behind_a_link_is_not_removed(tmp_path: Path) -> None:
    place, other = tmp_path / "site", tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("mine")
    write(place, "a")
    (place / get_parts_name("0" * 16)).symlink_to(other)
    write(place, "b")
    assert (other / "kept").read_text() == "mine"
    assert not (place / get_parts_name("0" * 16)).is_symlink()


def test_a_full_disk_is_a_storage_error_and_keeps_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export_directory.os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left"):
        write(tmp_path, "b")
    assert read(tmp_path) == "a"
