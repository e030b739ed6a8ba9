"""Processes that are killed while they back up and restore: what counted before still does, and nothing half counts."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.wikis.backups.backup_fixtures import BackupFixture
from wikiholt.wikis.registry import Registry

_BACKUP_PROCESS = ("-m", "tests.wikis.backups.backup_process")


def run_and_kill(directory: Path, operation: str, chance: random.Random) -> None:
    """Start a process at this work and kill it at some moment of it."""
    with subprocess.Popen(
        [sys.executable, *_BACKUP_PROCESS, directory, operation], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.25))  # the moment of the blow is what is tested
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("what", ["take", "restore", "reindex"])
def test_a_process_killed_at_any_moment_leaves_good_backups_and_an_index_that_converges(
    tmp_path: Path, what: str
) -> None:
    chance = random.Random(f"killed while it does {what}")
    ground = BackupFixture(tmp_path, keep=3)
    repository = ground.add_wiki(
        "one", {f"p{n}.md": f"# Page {n}\n\nheron number {n} {'text ' * 50}" for n in range(150)}
    )
    ground.get_wiki().backups.create()
    ground.service.close()
    for number in range(4):
        run_and_kill(tmp_path, what, chance)
        ground.service = ground.open_service()
        found = ground.get_wiki().backups.list_verified()
        assert found
        assert not any(backup.fault for backup in found)
        assert ground.find_paths("heron")
        repository.commit({f"new{number}.md": f"# New\n\nmark{number}"})
        ground.get_wiki().sync()
        assert ground.find_paths(f"mark{number}") == [f"new{number}"]
        assert ground.get_wiki().check() == []
        ground.get_wiki().backups.create()
        assert [
            file.name for file in ground.get_backup_directory().directory.iterdir() if file.name.startswith(".")
        ] == []
        ground.service.close()


def test_a_registry_is_whole_whenever_the_process_that_restores_it_is_killed(tmp_path: Path) -> None:
    chance = random.Random("killed while it restores the registry")
    ground = BackupFixture(tmp_path, keep=3)
    ground.add_wiki("one")
    ground.service.registry.backups.create()
    ground.service.close()
    for _ in range(4):
        run_and_kill(tmp_path, "registry", chance)
        ground.service = ground.open_service()
        assert [wiki.slug for wiki in ground.service.list_wikis()] == ["one"]
        assert not any(backup.fault for backup in ground.service.registry.backups.list())
        ground.service.close()


def test_a_registry_that_is_being_mended_opens_nothing_until_it_is_whole(tmp_path: Path) -> None:
    """Whatever step of replacing a damaged registry was the last: it is damaged, or it is the restored one."""
    chance = random.Random("killed while it mends the registry")
    ground = BackupFixture(tmp_path)
    ground.add_wiki("one")
    ground.service.registry.backups.create()
    ground.service.close()
    whole = (tmp_path / "data" / "registry.sqlite").read_bytes()
    for _ in range(3):
        (tmp_path / "data" / "registry.sqlite").write_bytes(whole[:3000])
        run_and_kill(tmp_path, "registry", chance)
        registry = Registry(tmp_path / "data" / "registry.sqlite", backups=ground.plan)
        registry.backups.restore()
        assert [wiki.slug for wiki in registry.list_wikis()] == ["one"]
        registry.close()
