"""Sign-ins in a file: only digests are stored, and damage signs people out."""

import sqlite3
import stat
from pathlib import Path

import pytest

from tests.wikis.sign_in_cases import HOUR, PERSON, SignInCases
from wikiholt.errors import StorageError
from wikiholt.wikis.registry import SESSIONS_FILE, Registry
from wikiholt.wikis.small_store import SmallStoreFile


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.sqlite")


class TestFile(SignInCases):
    """The store in a file."""


def test_only_a_digest_is_stored_for_the_owner_alone(registry: Registry, tmp_path: Path) -> None:
    _, token = registry.sign_ins.create(PERSON, HOUR)
    file = tmp_path / SESSIONS_FILE
    assert token.encode() not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PERSON.email.encode() in file.read_bytes()
    registry.sign_ins.end(token)
    assert PERSON.email.encode() not in file.read_bytes()


def test_another_process_sees_a_sign_in_at_once(registry: Registry, tmp_path: Path) -> None:
    other = Registry(tmp_path / "registry.sqlite")
    assert other.sign_ins.find("x") is None
    _, token = registry.sign_ins.create(PERSON, HOUR)
    assert other.sign_ins.find(token) is not None
    other.sign_ins.end(token)
    assert registry.sign_ins.find(token) is None


def test_a_token_of_another_data_directory_is_unknown(registry: Registry, tmp_path: Path) -> None:
    _, token = registry.sign_ins.create(PERSON, HOUR)
    other = Registry(tmp_path / "other" / "registry.sqlite")
    other.sign_ins.create(PERSON, HOUR)
    assert other.sign_ins.find(token) is None


@pytest.mark.parametrize("kind", ["garbage", "directory", "link"])
def test_damage_is_an_error_once_and_signs_everyone_out(
    registry: Registry, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, token = registry.sign_ins.create(PERSON, HOUR)
    file = tmp_path / SESSIONS_FILE
    file.unlink()
    if kind == "garbage":
        file.write_bytes(b"no database" * 1000)
    elif kind == "directory":
        file.mkdir()
    else:
        (tmp_path / "elsewhere").write_bytes(b"")
        file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError) as caught:
        registry.sign_ins.find(token)
    assert caught.value.hint
    assert "everyone must sign in again" in caplog.text
    assert registry.sign_ins.find(token) is None
    _, token = registry.sign_ins.create(PERSON, HOUR)
    assert registry.sign_ins.find(token) is not None


def test_an_error_that_is_no_damage_signs_nobody_out(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = registry.sign_ins.create(PERSON, HOUR)
    error = sqlite3.OperationalError("out of memory")
    error.sqlite_errorcode = sqlite3.SQLITE_NOMEM

    def fail(_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SmallStoreFile, "_get_reader", fail)
        with pytest.raises(StorageError, match="out of memory"):
            registry.sign_ins.find(token)
    assert registry.sign_ins.find(token) is not None
    assert not list(tmp_path.glob("broken-*"))
