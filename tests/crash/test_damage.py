"""Rounds of random damage to any file of a data directory: the next sync repairs it, and no search result is wrong.

The long form is `python -m tests.crash --damage --rounds 500`; `--seed S --round N` repeats one round.
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
from tests.crash.file_damage import OTHER_FILE, DamageFunction, flip, make_directory
from tests.support.damaged_wiki import DamagedWiki
from tests.support.tiers import choose
from tests.support.wait import wait_until
from wikiholt.domain.index import HealthCondition, VerificationResult
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import IndexCorrupt, StorageError, WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite import change_marks, store

ROUNDS, SEED = choose(40, 7), 2024
PAGE_COUNT = 30


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    wiki = DamagedWiki(tmp_path, PAGE_COUNT)
    wiki.handle.backups.create(BackupReason.REQUESTED)
    yield wiki
    wiki.close()


@pytest.mark.timeout(600)
def test_damage_to_any_file_is_repaired_by_the_next_sync_and_no_result_is_wrong(tmp_path: Path) -> None:
    rounds = DamageRounds(tmp_path / "rounds", SEED)
    results = [rounds.run_round(number) for number in range(ROUNDS)]
    assert not [str(round_) for round_ in results if round_.fault], count_faults(results)
    assert sum(sum(round_.before.values()) for round_ in results) > ROUNDS


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("damage", OTHER_FILE)
def test_a_directory_link_or_pipe_at_the_path_of_an_index_is_damage_and_not_a_storage_error(
    wiki: DamagedWiki, suffix: str, damage: DamageFunction
) -> None:
    wiki.service.close()
    file = wiki.index_file.with_name(wiki.index_file.name + suffix)
    if suffix:
        file.touch()
    damage(file, Random(3))
    wiki.service = wiki.open_service()
    with pytest.raises(WikiholtError) as caught:
        wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
    assert not isinstance(caught.value, StorageError)
    wiki.handle.sync()
    wiki.assert_healthy()


@pytest.mark.parametrize(
    "name", ["CURRENT", "write.lock", "health.json", "activity.json", "reindex.json", "history.json"]
)
@pytest.mark.parametrize("damage", OTHER_FILE)
def test_a_directory_link_or_pipe_at_the_path_of_a_small_file_blocks_nothing(
    wiki: DamagedWiki, name: str, damage: DamageFunction
) -> None:
    file = wiki.directory / name
    file.touch()
    wiki.service.close()
    damage(file, Random(3))
    wiki.service = wiki.open_service()
    assert wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    with wiki.service.components.store.activity_lock(wiki.handle.wiki.id) as report:
        report("syncing")
    wiki.handle.sync()
    wiki.assert_healthy()
    assert not wiki.handle.get_status().quarantined or damage is make_directory, "the index itself was not damaged"


def flip_bit_in_words(wiki: DamagedWiki, share: float) -> None:
    """Flip one bit of the full-text index. File size and time stay the same."""
    file = wiki.index_file
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
        blocks = [bytes(block) for (block,) in db.execute("SELECT block FROM words_data") if len(block) > 200]
    block = max(blocks, key=len)
    before, content = file.stat(), bytearray(file.read_bytes())
    start = content.find(block[:100])
    assert start > 0
    content[start + 20 + int(share * 60)] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def search_for_every_page(wiki: DamagedWiki) -> set[str]:
    """Search for the word of every page. Returns the outcomes."""
    seen = set()
    for number in range(PAGE_COUNT):
        try:
            answer = wiki.handle.search(SearchRequest(f"unique{number}", mode=SearchMode.KEYWORD))
        except WikiholtError as error:
            seen.add(error.code)
        else:
            right = [hit.path for hit in answer.hits[:1]] == [f"page-{number}"]
            seen.add("right" if right else "degraded" if answer.degraded else "wrong")
    return seen


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_flipped_bit_in_the_words_is_found_before_the_first_result(wiki: DamagedWiki, share: float) -> None:
    wiki.service.close()
    flip_bit_in_words(wiki, share)
    wiki.service = wiki.open_service()
    assert search_for_every_page(wiki) == {"index-corrupt"}
    assert wiki.handle.health.condition is HealthCondition.BROKEN
    wiki.handle.sync()
    assert search_for_every_page(wiki) == {"right"}
    wiki.assert_healthy()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_sync_finds_a_flipped_bit_in_the_words(wiki: DamagedWiki, share: float) -> None:
    wiki.service.close()
    flip_bit_in_words(wiki, share)
    wiki.service = wiki.open_service()
    wiki.handle.sync()
    assert wiki.handle.get_status().quarantined
    assert search_for_every_page(wiki) == {"right"}
    wiki.assert_healthy()


def test_a_word_that_is_lost_while_a_service_runs_causes_no_empty_result(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.wikis.handle.EMPTY_CONFIRMATION_TTL_S", 0.0)
    assert wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    flip_bit_in_words(wiki, 0.5)
    assert "wrong" not in search_for_every_page(wiki)
    with pytest.raises(IndexCorrupt):
        wiki.handle.search(SearchRequest("nowhere", mode=SearchMode.KEYWORD))
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_service_compares_the_indexes_in_use_and_repairs_differences(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.scheduler.periodic.ScheduledChecks.start_delay_s", 0.1)
    monkeypatch.setattr("wikiholt.scheduler.periodic.ScheduledChecks.poll_s", 0.1)
    # After a comparison that took long on a busy machine, the next one would come too late.
    monkeypatch.setattr("wikiholt.scheduler.periodic._MAX_CPU_SHARE", 1.0)
    assert wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    wiki.handle.check_integrity()
    wiki.start_scheduler(checks=86_400.0)
    flip_bit_in_words(wiki, 0.5)
    wait_until(lambda: wiki.handle.get_status().quarantined and wiki.handle.health.is_ok)
    wiki.assert_healthy()


def test_an_index_that_is_too_large_to_compare_is_checked_as_often_as_its_share_allows(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.scheduler.periodic.ScheduledChecks.start_delay_s", 0.1)
    monkeypatch.setattr("wikiholt.scheduler.periodic.ScheduledChecks.poll_s", 0.1)
    monkeypatch.setattr(change_marks, "COMPARED_BYTES", 1000)
    wiki.repository.commit({"page-0.md": "# Page 0\n\nunique0 once more\n"})
    wiki.handle.sync()
    assert wiki.handle.compare() is VerificationResult.TOO_LARGE
    flip_bit_in_words(wiki, 0.5)
    wiki.start_scheduler(checks=86_400.0)
    wait_until(lambda: wiki.handle.get_status().quarantined and wiki.handle.health.is_ok)
    wiki.assert_healthy()


def test_results_are_degraded_until_a_sync_when_a_changed_index_is_too_large_to_read(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MAX_FULL_READ_BYTES", 1000)
    wiki.service.close()
    flip_bit_in_words(wiki, 0.5)
    wiki.service = wiki.open_service()
    assert search_for_every_page(wiki) <= {"degraded", "right", "index-corrupt"}
    assert wiki.handle.search(SearchRequest("unique7")).degraded
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_flipped_bit_in_unused_space_does_not_quarantine_the_index(wiki: DamagedWiki) -> None:
    with closing(sqlite3.connect(wiki.index_file)) as db:
        db.execute("CREATE TABLE filler (x)")
        db.execute("INSERT INTO filler VALUES (zeroblob(50000))")
        db.execute("DROP TABLE filler")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    wiki.handle.sync()
    wiki.service.close()
    file = wiki.index_file
    before, content = file.stat(), bytearray(file.read_bytes())
    content[-100] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    wiki.service = wiki.open_service()
    assert search_for_every_page(wiki) == {"right"}
    wiki.handle.sync()
    assert not wiki.handle.get_status().quarantined
    wiki.assert_healthy()


@pytest.mark.parametrize("kind", ["flip", "zero", "deleted"])
def test_a_damaged_file_mark_does_not_quarantine_the_index(wiki: DamagedWiki, kind: str) -> None:
    wiki.service.close()
    lock = wiki.directory / "write.lock"
    damages: dict[str, Callable[[], object]] = {
        "flip": lambda: flip(lock, Random(1)),
        "zero": lambda: lock.write_bytes(bytes(lock.stat().st_size)),
        "deleted": lock.unlink,
    }
    damages[kind]()
    wiki.service = wiki.open_service()
    assert search_for_every_page(wiki) == {"right"}
    wiki.handle.sync()
    assert not wiki.handle.get_status().quarantined
    assert wiki.service.components.store.compare_checksum(wiki.handle.wiki.id) is VerificationResult.COMPARED


def test_after_a_lost_wal_the_next_sync_restores_every_page(wiki: DamagedWiki) -> None:
    with closing(sqlite3.connect(wiki.index_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM pages").fetchone()
        wiki.repository.commit({"page-7.md": "# Page 7\n\nunique7 after the log began\n"})
        wiki.handle.sync()
        copy = wiki.place / "copy"
        shutil.copytree(wiki.directory, copy)
    wiki.service.close()
    log = next(copy.glob("*.sqlite-wal"))
    assert log.stat().st_size
    log.unlink()
    directory = wiki.directory
    shutil.rmtree(directory)
    copy.rename(directory)
    wiki.service = wiki.open_service()
    assert "wrong" not in search_for_every_page(wiki)
    wiki.handle.sync()
    wiki.assert_healthy()
    assert wiki.handle.search(SearchRequest("unique7 log", mode=SearchMode.KEYWORD)).hits[0].path == "page-7"


def test_a_disk_that_rejects_writes_is_not_reported_as_damage(wiki: DamagedWiki) -> None:
    wiki.repository.commit({"page-0.md": "# Page 0\n\nunique0 once more\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError):
            wiki.handle.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert wiki.handle.health.is_ok
    assert not wiki.handle.get_status().quarantined
    wiki.handle.sync()
    wiki.assert_healthy()
