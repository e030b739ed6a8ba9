"""Processes that are killed during backup and restore: earlier backups stay valid, no partial one is used."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.fork_server import ForkedPopen
from tests.support.paths import ROOT
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S
from tests.wikis.backups.backup_fixtures import BackupFixture
from wikiholt.wikis.registry import Registry

_BACKUP_PROCESS = ("-m", "tests.wikis.backups.backup_process")


def run_and_kill(directory: Path, operation: str, chance: random.Random) -> None:
    """Start a process with this operation and kill it at a random time."""
    with ForkedPopen(
        [sys.executable, *_BACKUP_PROCESS, directory, operation], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.25))  # the time of the kill is random
        process.send_signal(signal.SIGKILL)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL


@pytest.mark.parametrize("what", ["take", "restore", "reindex"])
def test_a_process_killed_at_any_time_leaves_good_backups_and_a_recoverable_index(tmp_path: Path, what: str) -> None:
    chance = random.Random(f"killed while it does {what}")
    fixture = BackupFixture(tmp_path, keep=3)
    repository = fixture.add_wiki(
        "one", {f"p{n}.md": f"# Page {n}\n\nheron number {n} {'text ' * 50}" for n in range(150)}
    )
    fixture.get_wiki().backups.create()
    fixture.service.close()
    for number in range(choose(4, 2)):
        run_and_kill(tmp_path, what, chance)
        fixture.service = fixture.open_service()
        found = fixture.get_wiki().backups.list_verified()
        assert found
        assert not any(backup.fault for backup in found)
        assert fixture.find_paths("heron")
        repository.commit({f"new{number}.md": f"# New\n\nmark{number}"})
        fixture.get_wiki().sync()
        assert fixture.find_paths(f"mark{number}") == [f"new{number}"]
        assert fixture.get_wiki().check() == []
        fixture.get_wiki().backups.create()
        assert [
            file.name for file in fixture.get_backup_directory().directory.iterdir() if file.name.startswith(".")
        ] == []
        fixture.service.close()


def test_a_registry_is_complete_after_its_restore_is_killed(tmp_path: Path) -> None:
    chance = random.Random("killed while it restores the registry")
    fixture = BackupFixture(tmp_path, keep=3)
    fixture.add_wiki("one")
    fixture.service.registry.backups.create()
    fixture.service.close()
    for _ in range(choose(4, 2)):
        run_and_kill(tmp_path, "registry", chance)
        fixture.service = fixture.open_service()
        assert [wiki.slug for wiki in fixture.service.list_wikis()] == ["one"]
        assert not any(backup.fault for backup in fixture.service.registry.backups.list())
        fixture.service.close()


def test_a_registry_being_repaired_grants_no_access_until_it_is_complete(tmp_path: Path) -> None:
    """After any step of replacing a damaged registry, it is either damaged or the restored one."""
    chance = random.Random("killed while it repairs the registry")
    fixture = BackupFixture(tmp_path)
    fixture.add_wiki("one")
    fixture.service.registry.backups.create()
    fixture.service.close()
    whole = (tmp_path / "data" / "registry.sqlite").read_bytes()
    for _ in range(choose(3, 2)):
        (tmp_path / "data" / "registry.sqlite").write_bytes(whole[:3000])
        run_and_kill(tmp_path, "registry", chance)
        registry = Registry(tmp_path / "data" / "registry.sqlite", backups=fixture.plan)
        registry.backups.restore()
        assert [wiki.slug for wiki in registry.list_wikis()] == ["one"]
        registry.close()
