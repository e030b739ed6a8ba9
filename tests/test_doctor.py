"""What `doctor` finds beside broken indexes: old backups, files that others may read, keys that open nothing."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ward import Ward

from wikiholt.doctor import Finding, examine
from wikiholt.model import Occasion, Scope

DAY = 86_400.0


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path, pages=3)
    yield made
    made.close()


def faults(ward: Ward, interval: float = DAY) -> list[Finding]:
    return [each for each in examine(ward.service, ward.place / "data", interval) if not each.well]


def registry(ward: Ward) -> Path:
    return ward.place / "data" / "registry.sqlite"


def test_a_wiki_that_was_just_made_needs_no_backup_yet_and_one_that_is_older_does(ward: Ward) -> None:
    assert faults(ward) == []
    (fault,) = faults(ward, interval=1e-6)
    assert (fault.subject, fault.detail) == ("wiki notes", "its newest backup is not there yet")
    assert "wikiholt backup notes" in fault.advice
    assert faults(ward, interval=0.0) == [], "none is wanted by schedule"


def test_a_backup_is_old_only_when_the_index_has_changed_since(ward: Ward) -> None:
    ward.handle.backups.take(Occasion.ASKED)
    assert faults(ward, interval=1e-6) == []
    ward.repository.commit({"later.md": "# Later\n"})
    ward.handle.sync()
    (fault,) = faults(ward, interval=1e-6)
    assert "the index has changed since" in fault.detail
    assert faults(ward) == [], "the next one by schedule is not due"


def test_changes_of_the_registry_that_are_in_no_backup_are_told_of_after_an_hour(ward: Ward) -> None:
    ward.service.registry.backups.take()
    ward.service.registry.keys.create(None, Scope.ADMIN)
    assert faults(ward) == [], "it is backed up within minutes"
    an_age_ago = time.time() - 2 * 3600
    os.utime(registry(ward), (an_age_ago, an_age_ago))
    (fault,) = faults(ward)
    assert (fault.subject, "wikiholt backup --registry" in fault.advice) == ("backups", True)
    ward.service.registry.backups.take()
    assert faults(ward) == []


def test_a_registry_that_others_may_read_is_told_of_and_tightened_by_the_next_change(ward: Ward) -> None:
    for file in registry(ward).parent.glob("registry.sqlite*"):
        file.chmod(0o644)
    (fault,) = faults(ward)
    assert (fault.subject, "chmod 600" in fault.advice) == ("registry", True)
    ward.service.wikis()
    assert registry(ward).stat().st_mode & 0o777 == 0o644, "who only reads changes nothing"
    ward.service.registry.keys.create(None, Scope.ADMIN)
    assert {file.stat().st_mode & 0o777 for file in registry(ward).parent.glob("registry.sqlite*")} == {0o600}
    assert faults(ward) == []


def test_a_data_directory_that_everybody_may_write_to_is_told_of(ward: Ward) -> None:
    (ward.place / "data").chmod(0o777)
    (fault,) = faults(ward)
    assert (fault.subject, "chmod o-w" in fault.advice) == ("data directory", True)


def test_keys_that_have_expired_are_told_of_by_name(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ward.service.registry.keys
    soon = datetime.now(UTC) + timedelta(hours=1)
    names = [keys.create(ward.handle.wiki.id, Scope.READ, f"robot {n}", soon)[0].id for n in range(7)]
    keys.create(ward.handle.wiki.id, Scope.READ)
    assert faults(ward) == []

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(hours=2)

    monkeypatch.setattr("wikiholt.doctor.datetime", Later)
    (fault,) = [each for each in faults(ward) if each.subject == "keys"]
    assert f"{names[0]} (robot 0)" in fault.detail
    assert fault.detail.endswith("and 2 more")
    assert "key revoke" in fault.advice
