"""Whether a path has something else than a file."""

import os
from pathlib import Path
from typing import Any

import pytest

from wikiholt.regular_files import is_irregular


def test_directories_links_and_pipes_are_irregular(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "link", "dangling", "pipe", "nothing", ".")
    found = {name: (is_irregular(tmp_path / name), is_irregular(tmp_path / name, follow=True)) for name in names}
    assert found == {
        "file": (False, False),
        "link": (True, False),
        "dangling": (True, True),
        "pipe": (True, True),
        "nothing": (False, False),
        ".": (True, True),
    }


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_that_appears_during_the_check_is_regular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    file, stat = tmp_path / "index-shm", os.stat

    created: list[Path] = []

    def create(path: Path, **options: Any) -> os.stat_result:
        if options or created:
            return stat(path, **options)
        created.append(path)
        descriptor = os.open(file, os.O_CREAT)
        os.close(descriptor)
        raise FileNotFoundError(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat" if follow else "lstat", create)
        assert not is_irregular(file, follow=follow)
    assert file.exists()
