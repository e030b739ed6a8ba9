"""Damage to the files of an index: the next sync repairs it, and no search result is wrong."""

import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tests.crash.file_damage import OTHER_FILE, DamageFunction, make_directory
from tests.support.damaged_wiki import DamagedWiki
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import HealthCondition
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import IndexCorrupt, StorageError, WikiholtError
from wikiholt.search.request import SearchRequest

PAGE_COUNT = 30


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    wiki = DamagedWiki(tmp_path, PAGE_COUNT)
    wiki.handle.backups.create(BackupReason.REQUESTED)
    yield wiki
    wiki.close()


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


@pytest.mark.parametrize("damage", OTHER_FILE)
def test_directories_links_or_pipes_at_the_paths_of_small_files_block_nothing(
    wiki: DamagedWiki, damage: DamageFunction
) -> None:
    wiki.service.close()
    for name in (
        "CURRENT",
        "write.lock",
        "health.json",
        "activity.json",
        "reindex.json",
        "history.json",
        "wanted.json",
    ):
        file = wiki.directory / name
        file.touch()
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
            paths = [hit.path for hit in answer.hits]
            right = paths[:1] == [f"page-{number}"]
            seen.add("degraded" if answer.degraded else "right" if right else "wrong" if paths else "missing")
    return seen


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_after_a_flipped_bit_in_the_words_a_page_may_only_be_missing_until_the_next_check(
    wiki: DamagedWiki, share: float
) -> None:
    wiki.service.close()
    flip_bit_in_words(wiki, share)
    wiki.service = wiki.open_service()
    assert search_for_every_page(wiki) <= {"right", "missing", "degraded", "index-corrupt"}
    assert wiki.handle.check_integrity().condition is HealthCondition.BROKEN
    assert search_for_every_page(wiki) <= {"degraded", "index-corrupt"}
    wiki.handle.sync()
    assert wiki.handle.get_status().quarantined
    assert search_for_every_page(wiki) == {"right"}
    wiki.assert_healthy()


@pytest.mark.parametrize("query", ["heron", '"heron bird"', "hero"])
def test_a_page_that_the_keyword_index_has_under_a_foreign_word_is_never_shown(wiki: DamagedWiki, query: str) -> None:
    with closing(sqlite3.connect(wiki.index_file)) as db:
        db.execute("INSERT INTO words (rowid, name, headings, body) VALUES (5, '', '', 'heron bird')")
        db.commit()
    assert wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
    with pytest.raises(IndexCorrupt):
        wiki.handle.search(SearchRequest(query, mode=SearchMode.KEYWORD))
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_service_checks_every_index_daily_and_repairs_damage(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.sync.periodic.ScheduledChecks.start_delay_s", 0.1)
    monkeypatch.setattr("wikiholt.sync.periodic.ScheduledChecks.poll_s", 0.1)
    wiki.handle.check_integrity()
    flip_bit_in_words(wiki, 0.5)
    scheduler = wiki.start_scheduler(checks=86_400.0)
    scheduler.stop(TIMEOUT_S)
    assert wiki.handle.health.is_ok, "it was checked a moment ago"
    checked = replace(wiki.handle.health, checked_at=datetime.now(UTC) - timedelta(days=1))
    wiki.handle._repair.save(checked)
    wiki.start_scheduler(checks=86_400.0)
    wait_until(lambda: wiki.handle.get_status().quarantined and wiki.handle.health.is_ok)
    wiki.assert_healthy()


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
