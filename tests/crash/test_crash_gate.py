"""Rounds of the crash test, and checks that the crash test finds injected bugs.

The long form is `make gate`; `python -m tests.crash --seed S --round N` repeats one round.
"""

import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.crash_gate import CrashGate
from tests.crash.file_damage import FILE_KINDS, LEFTOVER, find_unknown_files, get_file_kind, list_files
from tests.crash.gate_process import run_gate_process
from tests.crash.injected_bugs import BUGS
from tests.crash.operations import AUTHOR
from tests.support.git_repository import Repository
from tests.support.services import build_test_service
from tests.support.tiers import choose
from tests.wikis.query_log.query_log_fixtures import RETENTION, make_query_record
from wikiholt.errors import NotWritable
from wikiholt.git.mirror import MIRROR_DIRECTORY
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

ROUNDS, SEED = choose(50, 15), 2024
"""15 rounds have each operation and each failure."""
_CAUGHT_BY = {
    "half a page": ("sync", "kill at a step", "the index was not damaged, but it was found so"),
    "unsynced vectors": ("sync", "power cut", "the index was not damaged, but it was found so"),
    "unsynced backup": ("back up", "power cut", "its checksum does not match"),
    # Not a kill at a moment, which may come before the first key on a busy machine.
    "key not stored": ("register", "clock", "should open its wiki"),
}


def run_gate(*options: str) -> "subprocess.CompletedProcess[str]":
    """`python -m tests.crash` with these options, in a process with the modules that it needs."""
    with tempfile.TemporaryDirectory() as directory:
        out, errors = Path(directory, "out"), Path(directory, "errors")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.crash.gate_process"])
        process = context.Process(target=run_gate_process, args=(options, out, errors))
        process.start()
        process.join(1700)
        assert process.exitcode is not None, "the crash test takes too long"
        done = subprocess.CompletedProcess(options, process.exitcode, out.read_text(), errors.read_text())
    sys.stdout.write(done.stdout)
    return done


@pytest.mark.timeout(1800)
def test_after_any_failure_the_next_start_serves_and_one_sync_repairs_the_index() -> None:
    done = run_gate("--rounds", str(ROUNDS), "--seed", str(SEED), "--each", "--quiet")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert f"{ROUNDS} rounds, 0 faults" in done.stdout


def test_an_index_of_a_past_commit_is_complete_or_built_again() -> None:
    done = run_gate("--operation", "past", "--failure", "kill at a step", "--rounds", "1", "--seed", "3", "--quiet")
    assert "1 rounds, 0 faults" in done.stdout, done.stdout[-5000:] + done.stderr[-3000:]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", BUGS)
def test_the_crash_test_finds_an_injected_bug(bug: str) -> None:
    operation, failure, fault = _CAUGHT_BY[bug]
    injected = ("--bug", bug, "--operation", operation, "--failure", failure)
    done = run_gate("--rounds", "6", "--seed", "3", "--until", fault, *injected)
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-3000:]
    assert fault in done.stdout
    assert "seed 3" in done.stdout


def test_a_seed_and_a_number_repeat_a_round(tmp_path: Path) -> None:
    rounds, gate = [], CrashGate(tmp_path / "gate", 12, pages=12)
    for _ in range(2):
        round_ = gate.run_round(5, "sync", "kill at a step")
        assert not round_.fault
        rounds.append((round_.operation, round_.failure, round_.changes, round_.concurrent_operation))
    assert rounds[0] == rounds[1]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a crash test, with the wikis of a round and a copy of them."""
    directory = tmp_path_factory.mktemp("gate") / "rounds"
    CrashGate(directory, 1, pages=12)
    return directory


@pytest.fixture
def data(rounds: Path) -> Path:
    """A data directory with every kind of file."""
    shutil.rmtree(rounds / "round")
    shutil.copytree(rounds / "template", rounds / "round")
    return rounds / "round" / "data"


@pytest.fixture
def service(data: Path) -> Iterator[WikiService]:
    opened = build_test_service(data)
    yield opened
    opened.close()


def get_wiki_directory(service: WikiService, slug: str) -> Path:
    return Path(service.components.store.get_directory(service.registry.get(slug).id))


def test_every_kind_of_file_that_is_written_is_damaged_by_the_crash_test(data: Path, service: WikiService) -> None:
    seen = {get_file_kind(file, data) for file in list_files(data)}
    wiki = service.get_handle("victim")
    (index,) = get_wiki_directory(service, "victim").glob("g*.sqlite")
    index.write_bytes(b"no index at all" * 1000)
    wiki.sync()
    wiki.search(SearchRequest("handbook"))
    wiki.past.search("HEAD", SearchRequest("handbook"), 60)
    SqliteQueryLog(get_wiki_directory(service, "victim")).write([make_query_record("handbook")], RETENTION)
    seen |= {get_file_kind(file, data) for file in list_files(data)}
    (data / "registry.sqlite").write_bytes(b"no registry at all")
    service.registry.close()
    service.registry.backups.restore()
    service.list_wikis()
    seen |= {get_file_kind(file, data) for file in list_files(data)}
    assert None not in seen, find_unknown_files(data)
    # Settings are written by people, the link of the owner while a service runs, leftovers only by killed processes,
    # the note about the history only if it is damaged, codes only in large wikis, and the rest only during writes.
    transient = {
        "codes",
        "registry-journal",
        "revoked list draft",
        "index-wal",
        "index-shm",
        "origin",
        "current activity",
    }
    assert set(FILE_KINDS) - seen <= {
        "settings",
        "owner link",
        "history",
        "wanted",
        "background lock",
        LEFTOVER,
        *transient,
    }


def test_leftovers_of_a_killed_backup_are_removed_by_the_next_backup_even_without_changes(
    data: Path, service: WikiService
) -> None:
    service.registry.backups.create()
    backups = service.get_handle("victim").backups
    backups.create()
    own = next(folder for folder in (data / "backups").iterdir() if folder.name == service.get_handle("victim").wiki.id)
    for folder in (data / "backups" / "registry", own):
        for ending in ("", "-journal"):
            (folder / f".making-3826f880c07addd4.sqlite{ending}").write_bytes(b"half")
    service.registry.backups.create_if_changed()
    backups.update()
    assert not list((data / "backups").rglob(".making-*"))


def test_an_unknown_kind_of_file_is_reported(data: Path) -> None:
    (next((data / "wikis").iterdir()) / "novelty.bin").write_bytes(b"new")
    assert [Path(name).name for name in find_unknown_files(data)] == ["novelty.bin"]


def test_a_removal_that_was_killed_before_it_purged_the_registry_backups_is_finished_later(
    data: Path, service: WikiService
) -> None:
    service.registry.remove("victim")
    assert find_files_containing(data / "backups" / "registry", b"victim")
    service.remove_leftovers()
    assert not find_files_containing(data, b"victim")


def test_an_index_recreated_by_a_sync_during_a_killed_removal_is_removed(
    data: Path, service: WikiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, copy = get_wiki_directory(service, "victim"), data / "copy"
    shutil.copytree(directory, copy)
    original = Registry.remove

    def killed(self: Registry, slug: str, wiki_id: str | None = None) -> object:
        original(self, slug, wiki_id)
        shutil.move(copy, directory)
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        service.remove("victim")
    assert directory.exists()
    service.close()
    build_test_service(data).remove_leftovers()
    assert not directory.exists()
    assert not find_files_containing(data, b"victim")


def test_leftovers_of_a_killed_restore_are_removed_by_the_next_writer(service: WikiService) -> None:
    directory = get_wiki_directory(service, "victim")
    for name in ("g000007.sqlite.making", "g000007.sqlite.making-wal", "CURRENT.4711"):
        (directory / name).write_bytes(b"half")
    service.get_handle("victim").sync()
    assert not [file.name for file in directory.iterdir() if "making" in file.name or file.name.startswith("CURRENT.")]


def test_a_page_write_on_a_full_disk_is_refused_with_a_message_and_no_page_is_lost(
    data: Path, service: WikiService
) -> None:
    repository = Repository(data.parent / "victim")
    head, pages = repository.get_head(), service.get_handle("victim").pages
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))  # enough for the page, not for git's index
    try:
        with pytest.raises(NotWritable, match="cannot be written"):
            pages.write("fresh/page-5", "# Fresh\n\nhandbook", AUTHOR)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert repository.get_head() == head
    pages.write("fresh/page-5", "# Fresh\n\nhandbook", AUTHOR)
    assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize("kind", ["header", "rows"])
def test_a_damaged_registry_backup_does_not_prevent_a_new_one(data: Path, service: WikiService, kind: str) -> None:
    (newest,) = (data / "backups" / "registry").glob("*.sqlite")
    content = newest.read_bytes()
    (schema,) = [at for at in range(len(content)) if content.startswith(b"CREATE TABLE state", at)]
    damage = {"header": slice(0, 16), "rows": slice(schema + 20, schema + 21)}[kind]
    newest.write_bytes(content[: damage.start] + b"\xcf" * (damage.stop - damage.start) + content[damage.stop :])
    assert service.registry.backups.create_if_changed() is not None
    assert sorted(bool(backup.fault) for backup in service.registry.backups.list()) == [False, True]


@pytest.mark.parametrize("damage", ["HEAD", "elsewhere", "pack", "refs"])
def test_a_damaged_mirror_is_recreated_by_the_fetch_after_the_damage_was_found(
    data: Path, service: WikiService, damage: str
) -> None:
    mirror = get_wiki_directory(service, "mirror") / MIRROR_DIRECTORY
    upstream = Repository(data.parent / "upstream")
    head = upstream.commit({"new/page-77.md": "# New\n\nhandbook unique77"})
    wiki = service.get_handle("mirror")
    if damage == "pack":
        for pack in mirror.rglob("*.pack"):
            pack.chmod(0o644)
            pack.write_bytes(pack.read_bytes()[:100] + bytes(200) + pack.read_bytes()[300:])
    elif damage == "HEAD":
        (mirror / "HEAD").write_bytes(bytes(20))
    elif damage == "elsewhere":
        (mirror / "HEAD").write_bytes(b"ref: refs/heads/m\n")
    else:
        for ref in (mirror / "refs").rglob("mirror"):
            ref.write_bytes(b"")
    for _ in range(2):
        try:
            wiki.fetch()
            report = wiki.sync(from_scratch=True)
        except Exception as error:  # noqa: BLE001 - the first attempt may fail with any error
            noticed = error
    assert (report.revision, report.problems) == (head, ()), noticed
    assert wiki.search(SearchRequest("unique77")).hits


def find_files_containing(directory: Path, trace: bytes) -> list[str]:
    return [file.name for file in directory.rglob("*") if file.is_file() and trace in file.read_bytes()]
