"""The crash gate as a test: fifty rounds of it, a few on the real model, and whether it can fail at all.

The long form is `make gate`; `python -m tests.crash --seed S --round N` plays one round again.
"""

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.crash.crash_gate import CrashGate
from tests.crash.file_damage import FILE_KINDS, LEFTOVER, find_unknown_files, get_file_kind, list_files
from tests.crash.injected_bugs import BUGS
from tests.crash.operations import AUTHOR
from tests.support.git_repository import Repository
from tests.support.paths import ROOT
from tests.support.services import build_test_service
from tests.support.tiers import choose
from tests.wikis.query_log.query_log_fixtures import RETENTION, make_query_record
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import NotWritable
from wikiholt.git.remote import MIRROR_DIRECTORY
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite.query_log import SqliteQueryLog
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_backups import RegistryBackups
from wikiholt.wikis.service import WikiService

ROUNDS, SEED = choose(50, 20), 2024
_CAUGHT_BY = {
    "half a page": ("sync", "kill at a step", "nobody harmed it, and it was"),
    "unsynced backup": ("back up", "power cut", "its checksum does not match"),
    "key before it is kept": ("register", "kill at a moment", "should open its wiki"),
}


def run_gate(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.crash", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1700, cwd=ROOT)
    sys.stdout.write(done.stdout)
    return done


@pytest.mark.timeout(1800)
def test_whatever_happens_the_next_start_serves_and_one_sync_makes_it_whole() -> None:
    done = run_gate("--rounds", str(ROUNDS), "--seed", str(SEED), "--quiet")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert f"{ROUNDS} rounds, 0 faults" in done.stdout


@pytest.mark.long
@pytest.mark.model
@pytest.mark.timeout(1800)
def test_so_it_is_on_the_real_model() -> None:
    done = run_gate("--rounds", "4", "--seed", "5", "--real")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert "4 rounds, 0 faults" in done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", BUGS)
def test_the_gate_catches_a_bug_that_was_planted(bug: str) -> None:
    operation, failure, fault = _CAUGHT_BY[bug]
    done = run_gate("--rounds", "6", "--seed", "3", "--bug", bug, "--operation", operation, "--failure", failure)
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-3000:]
    assert fault in done.stdout
    assert "seed 3" in done.stdout


def test_a_seed_and_a_number_repeat_a_round(tmp_path: Path) -> None:
    told = []
    for place in ("one", "two"):
        played = CrashGate(tmp_path / place, 12, pages=12).run_round(5, "sync", "files")
        assert not played.fault
        told.append((played.operation, played.failure, played.changes, played.concurrent_operation, played.damage))
    assert told[0] == told[1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory in which everything was used once."""
    CrashGate(tmp_path / "rounds", 1, pages=12)
    return tmp_path / "rounds" / "round" / "data"


@pytest.fixture
def service(data: Path) -> Iterator[WikiService]:
    opened = build_test_service(data)
    yield opened
    opened.close()


def get_wiki_directory(service: WikiService, slug: str) -> Path:
    return Path(service.components.store.get_directory(service.registry.get(slug).id))


def test_every_kind_of_file_the_product_writes_is_one_the_gate_harms(data: Path, service: WikiService) -> None:
    seen = {get_file_kind(file, data) for file in list_files(data)}
    wiki = service.get_handle("victim")
    (index,) = get_wiki_directory(service, "victim").glob("g*.sqlite")
    index.write_bytes(b"no index at all" * 1000)
    wiki.sync()
    wiki.search(SearchRequest("handbook"))
    SqliteQueryLog(get_wiki_directory(service, "victim")).write([make_query_record("handbook")], RETENTION)
    seen |= {get_file_kind(file, data) for file in list_files(data)}
    (data / "registry.sqlite").write_bytes(b"no registry at all")
    service.registry.close()
    service.registry.backups.restore()
    service.list_wikis()
    seen |= {get_file_kind(file, data) for file in list_files(data)}
    assert None not in seen, find_unknown_files(data)
    # Settings are a person's own; leftovers come from kills alone; the rest is there while somebody writes.
    passing = {"registry-wal", "registry-shm", "index-wal", "index-shm", "origin", "desk"}
    assert set(FILE_KINDS) - seen <= {"settings", LEFTOVER, *passing}


def test_what_a_killed_backup_left_goes_with_the_next_look_though_nothing_has_changed(
    data: Path, service: WikiService
) -> None:
    service.registry.backups.create()
    backups = service.get_handle("victim").backups
    backups.create()
    own = next(place for place in (data / "backups").iterdir() if place.name == service.get_handle("victim").wiki.id)
    for place in (data / "backups" / "registry", own):
        for ending in ("", "-journal"):
            (place / f".making-3826f880c07addd4.sqlite{ending}").write_bytes(b"half")
    service.registry.backups.create_if_changed()
    backups.ensure_current(BackupReason.SCHEDULED)
    assert not list((data / "backups").rglob(".making-*"))


def test_a_kind_of_file_the_gate_does_not_know_is_a_fault(data: Path) -> None:
    (next((data / "wikis").iterdir()) / "novelty.bin").write_bytes(b"new")
    assert [Path(name).name for name in find_unknown_files(data)] == ["novelty.bin"]


def test_a_removal_that_was_killed_before_the_backups_of_the_registry_is_finished_by_the_next_look_at_them(
    data: Path, service: WikiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(RegistryBackups, "finish_purges", _raise_killed)
        with pytest.raises(KeyboardInterrupt):
            service.remove("victim")
    assert find_files_containing(data / "backups" / "registry", b"victim")
    service.registry.backups.create_if_changed()
    assert not find_files_containing(data / "backups" / "registry", b"victim")


def test_an_index_that_a_sync_made_again_of_a_removed_wiki_goes_though_who_removed_it_was_killed(
    data: Path, service: WikiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, aside = get_wiki_directory(service, "victim"), data / "aside"
    shutil.copytree(directory, aside)
    original = Registry.remove

    def killed(self: Registry, slug: str, wiki_id: str | None = None) -> object:
        with monkeypatch.context() as patched:
            patched.setattr(RegistryBackups, "finish_purges", _raise_killed)
            shutil.move(aside, directory)
            return original(self, slug, wiki_id)

    monkeypatch.setattr(Registry, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        service.remove("victim")
    assert directory.exists()
    service.close()
    build_test_service(data).registry.backups.create_if_changed()
    assert not directory.exists()
    assert not find_files_containing(data, b"victim")


def test_a_backup_of_the_registry_that_was_begun_before_a_removal_does_not_keep_what_was_removed(
    data: Path, service: WikiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, third = Registry(data / "registry.sqlite"), Registry(data / "registry.sqlite")
    original = RegistryBackups._read_backup_rows
    threads: list[Thread] = []

    def remove_meanwhile(self: RegistryBackups, file: Path) -> object:
        if not threads:
            threads.append(Thread(target=other.remove, args=("victim",)))
            threads[0].start()
            wait_until(lambda: "victim" not in {wiki.slug for wiki in third.list_wikis()})
        return original(self, file)

    monkeypatch.setattr(RegistryBackups, "_read_backup_rows", remove_meanwhile)
    service.registry.backups.create()
    threads[0].join()
    assert not find_files_containing(data / "backups" / "registry", b"victim")
    other.close()
    third.close()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def test_what_a_killed_restore_left_is_cleared_by_the_next_writer(service: WikiService) -> None:
    directory = get_wiki_directory(service, "victim")
    for name in ("g000007.sqlite.making", "g000007.sqlite.making-wal", "CURRENT.4711"):
        (directory / name).write_bytes(b"half")
    service.get_handle("victim").sync()
    assert not [file.name for file in directory.iterdir() if "making" in file.name or file.name.startswith("CURRENT.")]


def test_a_page_that_a_full_disk_keeps_from_being_written_is_refused_in_words_and_none_is_lost(
    tmp_path: Path, service: WikiService
) -> None:
    repository = Repository(tmp_path / "rounds" / "round" / "victim")
    head, contents = repository.get_head(), service.get_handle("victim").pages
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))  # room for the page, none for git's index
    try:
        with pytest.raises(NotWritable, match="cannot be written"):
            contents.write("fresh/page-5", "# Fresh\n\nhandbook", AUTHOR)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert repository.get_head() == head
    contents.write("fresh/page-5", "# Fresh\n\nhandbook", AUTHOR)
    assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize("kind", ["header", "rows"])
def test_a_damaged_backup_of_the_registry_keeps_no_other_from_being_made(
    data: Path, service: WikiService, kind: str
) -> None:
    (newest,) = (data / "backups" / "registry").glob("*.sqlite")
    content = newest.read_bytes()
    (schema,) = [at for at in range(len(content)) if content.startswith(b"CREATE TABLE sealed", at)]
    harm = {"header": slice(0, 16), "rows": slice(schema + 20, schema + 21)}[kind]
    newest.write_bytes(content[: harm.start] + b"\xcf" * (harm.stop - harm.start) + content[harm.stop :])
    assert service.registry.backups.create_if_changed() is not None
    assert sorted(bool(backup.fault) for backup in service.registry.backups.list()) == [False, True]


@pytest.mark.parametrize("harmed", ["HEAD", "elsewhere", "pack", "refs"])
def test_a_damaged_mirror_is_made_anew_by_the_fetch_after_it_was_noticed(
    tmp_path: Path, service: WikiService, harmed: str
) -> None:
    mirror = get_wiki_directory(service, "mirror") / MIRROR_DIRECTORY
    upstream = Repository(tmp_path / "rounds" / "round" / "upstream")
    head = upstream.commit({"new/page-77.md": "# New\n\nhandbook unique77"})
    wiki = service.get_handle("mirror")
    if harmed == "pack":
        for pack in mirror.rglob("*.pack"):
            pack.chmod(0o644)
            pack.write_bytes(pack.read_bytes()[:100] + bytes(200) + pack.read_bytes()[300:])
    elif harmed == "HEAD":
        (mirror / "HEAD").write_bytes(bytes(20))
    elif harmed == "elsewhere":
        (mirror / "HEAD").write_bytes(b"ref: refs/heads/m\n")
    else:
        for ref in (mirror / "refs").rglob("mirror"):
            ref.write_bytes(b"")
    for _ in range(2):
        try:
            wiki.fetch()
            report = wiki.reindex()
        except Exception as error:  # noqa: BLE001 - the first time may fail, in whatever way
            noticed = error
    assert (report.revision, report.problems) == (head, ()), noticed
    assert wiki.search(SearchRequest("unique77")).hits


def _raise_killed(_: object) -> None:
    raise KeyboardInterrupt


def find_files_containing(directory: Path, trace: bytes) -> list[str]:
    return [file.name for file in directory.rglob("*") if file.is_file() and trace in file.read_bytes()]
