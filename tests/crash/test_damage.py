"""Rounds of random damage to any file of a data directory: repaired by the next sync, and never a wrong answer.

The long form is `python tests/gates --damage --rounds 500`; `--seed S --round N` plays one round again.
"""

import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.crash.damage_rounds import DamageRounds, count_faults
from tests.crash.file_damage import OTHER_FILE, Blow, flip, make_directory
from tests.support.damaged_wiki import DamagedWiki, wait_until
from wikiholt.domain.index import HealthCondition, VerificationResult
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import IndexCorrupt, StorageError, WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite import file_marks, store

ROUNDS, SEED = 40, 2024
SMALL = 30


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[DamagedWiki]:
    made = DamagedWiki(tmp_path, SMALL)
    made.handle.backups.create(BackupReason.REQUESTED)
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_damage_to_any_file_is_repaired_by_the_next_sync_and_gives_no_wrong_answer(tmp_path: Path) -> None:
    rounds = DamageRounds(tmp_path / "rounds", SEED)
    played = [rounds.play(number) for number in range(ROUNDS)]
    assert not [str(each) for each in played if each.fault], count_faults(played)
    assert sum(sum(each.before.values()) for each in played) > ROUNDS


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
@pytest.mark.parametrize("blow", OTHER_FILE)
def test_what_is_no_file_where_an_index_should_be_is_damage_and_no_full_disk(
    ward: DamagedWiki, ending: str, blow: Blow
) -> None:
    ward.service.close()
    file = ward.index_file.with_name(ward.index_file.name + ending)
    if ending:
        file.touch()
    blow(file, Random(3))
    ward.service = ward.open_service()
    with pytest.raises(WikiholtError) as caught:
        ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
    assert not isinstance(caught.value, StorageError)
    ward.handle.sync()
    ward.assert_healthy()


@pytest.mark.parametrize("name", ["CURRENT", "write.lock", "health.json", "activity.json", "reindex.json"])
@pytest.mark.parametrize("blow", OTHER_FILE)
def test_what_is_no_file_where_a_small_file_should_be_holds_nobody_up(ward: DamagedWiki, name: str, blow: Blow) -> None:
    file = ward.directory / name
    file.touch()
    ward.service.close()
    blow(file, Random(3))
    ward.service = ward.open_service()
    assert ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    with ward.service.components.store.activity_lock(ward.handle.wiki.id) as leave:
        leave("at work")
    ward.handle.sync()
    ward.assert_healthy()
    assert not ward.handle.get_status().quarantined or blow is make_directory, "the index itself was never broken"


def flip_in_words(ward: DamagedWiki, share: float) -> None:
    """Flip one bit of the full-text index, without a trace in size or time."""
    file = ward.index_file
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
        blocks = [bytes(block) for (block,) in db.execute("SELECT block FROM words_data") if len(block) > 200]
    block = max(blocks, key=len)
    before, content = file.stat(), bytearray(file.read_bytes())
    start = content.find(block[:100])
    assert start > 0
    content[start + 20 + int(share * 60)] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def ask_for_all(ward: DamagedWiki) -> set[str]:
    """Ask for the word of every page; what came of it."""
    seen = set()
    for number in range(SMALL):
        try:
            answer = ward.handle.search(SearchRequest(f"unique{number}", mode=SearchMode.KEYWORD))
        except WikiholtError as error:
            seen.add(error.code)
        else:
            right = [hit.path for hit in answer.hits[:1]] == [f"page-{number}"]
            seen.add("right" if right else "degraded" if answer.degraded else "wrong")
    return seen


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_bit_that_fell_over_in_the_words_is_found_before_the_first_answer(ward: DamagedWiki, share: float) -> None:
    ward.service.close()
    flip_in_words(ward, share)
    ward.service = ward.open_service()
    assert ask_for_all(ward) == {"index-corrupt"}
    assert ward.handle.health.condition is HealthCondition.BROKEN
    ward.handle.sync()
    assert ask_for_all(ward) == {"right"}
    ward.assert_healthy()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_sync_alone_finds_a_bit_that_fell_over_in_the_words(ward: DamagedWiki, share: float) -> None:
    ward.service.close()
    flip_in_words(ward, share)
    ward.service = ward.open_service()
    ward.handle.sync()
    assert ward.handle.get_status().quarantined
    assert ask_for_all(ward) == {"right"}
    ward.assert_healthy()


def test_a_word_that_is_lost_while_a_service_runs_is_no_empty_answer(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.wikis.handle.EMPTY_CONFIRMATION_TTL_S", 0.0)
    assert ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    flip_in_words(ward, 0.5)
    assert "wrong" not in ask_for_all(ward)
    with pytest.raises(IndexCorrupt):
        ward.handle.search(SearchRequest("nowhere", mode=SearchMode.KEYWORD))
    ward.handle.sync()
    ward.assert_healthy()


def test_a_service_compares_the_indexes_in_use_and_repairs_what_differs(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.scheduler.periodic._CHECK_START_DELAY_S", 0.1)
    monkeypatch.setattr("wikiholt.scheduler.periodic._CHECK_POLL_S", 0.1)
    assert ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    ward.handle.check_integrity()
    ward.start_scheduler(checks=86_400.0)
    flip_in_words(ward, 0.5)
    wait_until(lambda: ward.handle.get_status().quarantined and ward.handle.health.is_ok)
    ward.assert_healthy()


def test_an_index_that_is_too_large_to_be_compared_is_checked_as_often_as_its_share_allows(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.scheduler.periodic._CHECK_START_DELAY_S", 0.1)
    monkeypatch.setattr("wikiholt.scheduler.periodic._CHECK_POLL_S", 0.1)
    monkeypatch.setattr(file_marks, "COMPARED_BYTES", 1000)
    ward.repository.commit({"page-0.md": "# Page 0\n\nunique0 once more\n"})
    ward.handle.sync()
    assert ward.handle.compare() is VerificationResult.TOO_LARGE
    flip_in_words(ward, 0.5)
    ward.start_scheduler(checks=86_400.0)
    wait_until(lambda: ward.handle.get_status().quarantined and ward.handle.health.is_ok)
    ward.assert_healthy()


def test_a_change_that_is_too_much_to_read_at_once_makes_answers_degraded_until_a_sync(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MAX_FULL_READ_BYTES", 1000)
    ward.service.close()
    flip_in_words(ward, 0.5)
    ward.service = ward.open_service()
    assert ask_for_all(ward) <= {"degraded", "right", "index-corrupt"}
    assert ward.handle.search(SearchRequest("unique7")).degraded
    ward.handle.sync()
    ward.assert_healthy()


def test_a_bit_where_nothing_lies_costs_no_index(ward: DamagedWiki) -> None:
    with closing(sqlite3.connect(ward.index_file)) as db:
        db.execute("CREATE TABLE filler (x)")
        db.execute("INSERT INTO filler VALUES (zeroblob(50000))")
        db.execute("DROP TABLE filler")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ward.handle.sync()
    ward.service.close()
    file = ward.index_file
    before, content = file.stat(), bytearray(file.read_bytes())
    content[-100] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    ward.service = ward.open_service()
    assert ask_for_all(ward) == {"right"}
    ward.handle.sync()
    assert not ward.handle.get_status().quarantined
    ward.assert_healthy()


@pytest.mark.parametrize("harm", ["flip", "zero", "gone"])
def test_a_damaged_mark_is_no_damaged_index(ward: DamagedWiki, harm: str) -> None:
    ward.service.close()
    lock = ward.directory / "write.lock"
    blows: dict[str, Callable[[], object]] = {
        "flip": lambda: flip(lock, Random(1)),
        "zero": lambda: lock.write_bytes(bytes(lock.stat().st_size)),
        "gone": lock.unlink,
    }
    blows[harm]()
    ward.service = ward.open_service()
    assert ask_for_all(ward) == {"right"}
    ward.handle.sync()
    assert not ward.handle.get_status().quarantined
    assert ward.service.components.store.compare_checksum(ward.handle.wiki.id) is VerificationResult.COMPARED


def test_a_log_that_is_lost_loses_no_page_after_the_next_sync(ward: DamagedWiki) -> None:
    with closing(sqlite3.connect(ward.index_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM pages").fetchone()
        ward.repository.commit({"page-7.md": "# Page 7\n\nunique7 after the log began\n"})
        ward.handle.sync()
        copy = ward.place / "copy"
        shutil.copytree(ward.directory, copy)
    ward.service.close()
    log = next(copy.glob("*.sqlite-wal"))
    assert log.stat().st_size
    log.unlink()
    directory = ward.directory
    shutil.rmtree(directory)
    copy.rename(directory)
    ward.service = ward.open_service()
    assert "wrong" not in ask_for_all(ward)
    ward.handle.sync()
    ward.assert_healthy()
    assert ward.handle.search(SearchRequest("unique7 log", mode=SearchMode.KEYWORD)).hits[0].path == "page-7"


def test_a_disk_that_refuses_is_no_damage(ward: DamagedWiki) -> None:
    ward.repository.commit({"page-0.md": "# Page 0\n\nunique0 once more\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError):
            ward.handle.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ward.handle.health.is_ok
    assert not ward.handle.get_status().quarantined
    ward.handle.sync()
    ward.assert_healthy()
