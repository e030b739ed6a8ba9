"""Searches are written down if that is wanted: which, where, for how long, and at nobody's expense."""

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.wikis.query_log.query_log_fixtures import RETENTION, QueryLogFixture, make_query_record, wait_until
from wikiholt.app.bootstrap import open_evaluation_handle
from wikiholt.domain.search import PageFilter, QueryRecord, QueryRecords, QueryRetention, SearchInterface, SearchMode
from wikiholt.errors import IndexMissing, QueryLogNotFound, StorageError
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite.query_log import SqliteQueryLog
from wikiholt.wikis.query_log import QueryBuffer, QueryLogWriter, make_record


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[QueryLogFixture]:
    made = QueryLogFixture(tmp_path)
    yield made
    made.service.close()


def test_a_search_is_written_down_with_what_came_of_it_and_nothing_of_who_asked(ground: QueryLogFixture) -> None:
    began = time.time()
    ground.wiki.search(
        SearchRequest("grey heron", 2, SearchMode.KEYWORD, PageFilter(path_prefix="Heron")),
        interface=SearchInterface.MCP,
    )
    ground.wait_for_records(1)
    (entry,) = ground.open_log().read(0).records  # type: ignore[union-attr]
    assert began - 1 < entry.at < time.time() + 1
    assert (entry.surface, entry.query, entry.mode, entry.filtered) == ("mcp", "grey heron", "keyword", True)
    assert (entry.hits, entry.pages, entry.nothing_relevant, entry.degraded) == (1, ("Heron",), False, False)
    assert 0 < entry.score <= 1
    assert entry.ms > 0
    columns = [row[1] for row in sqlite3.connect(ground.file).execute("PRAGMA table_info(searches)")]
    assert set(columns) - {"id"} == set(QueryRecord.__dataclass_fields__)


def test_only_searches_that_somebody_asked_are_written_down(ground: QueryLogFixture) -> None:
    ground.search("an evaluation", None)
    ground.wiki.find_similar("Heron")
    blind = open_evaluation_handle(ground.service, "notes", [])
    blind.search(SearchRequest("asked blindly"))
    blind.close()
    ground.service.add("young", str(ground.repository.path), {})
    with pytest.raises(IndexMissing):
        ground.service.get_handle("young").search(SearchRequest("too early"), interface=SearchInterface.HTTP)
    ground.search("somebody asks")
    ground.wait_for_records(1)
    assert ground.read_queries() == ["somebody asks"]


def test_off_is_the_default_and_writes_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    ground = QueryLogFixture(tmp_path, {})
    ground.search("secret plans")
    assert ground.writer._thread is None
    ground.service.close()
    assert not ground.file.exists()
    assert not [file for file in ground.data.rglob("*") if file.is_file() and b"secret plans" in file.read_bytes()]
    with pytest.raises(QueryLogNotFound) as caught:
        ground.wiki.query_log.build_report()
    assert "log_queries=true" in caught.value.hint
    with pytest.raises(QueryLogNotFound):
        ground.wiki.query_log.clear()


def test_a_wikis_own_setting_decides_and_what_was_written_stays_readable(tmp_path: Path) -> None:
    ground = QueryLogFixture(tmp_path, {})
    ground.service.configure("notes", {"log_queries": "true"})
    ground.search("written")
    ground.wait_for_records(1)
    ground.service.configure("notes", {"log_queries": "false"})
    ground.search("not written")
    ground.service.close()
    assert ground.read_queries() == ["written"]
    found = ground.wiki.query_log.build_report()
    assert (found.searches, found.logging) == (1, False)
    ground.service = QueryLogFixture.open_service(ground)
    ground.service.configure("notes", {"log_queries": ""})
    ground.settings = {"queries.log": True}
    ground.service.close()
    ground.service = ground.open_service()
    ground.search("written again")
    ground.service.close()
    assert ground.read_queries() == ["written", "written again"]


def test_what_is_asked_is_written_when_the_process_ends_in_good_order(ground: QueryLogFixture) -> None:
    for number in range(50):
        ground.search(f"query {number}")
    ground.service.close()
    assert ground.read_queries() == [f"query {number}" for number in range(50)]
    assert stat.S_IMODE(ground.file.stat().st_mode) == 0o600


def test_removal_leaves_nothing_though_another_process_still_has_something_to_write(ground: QueryLogFixture) -> None:
    ground.search("restart")
    ground.wait_for_records(1)
    elsewhere = ground.open_service()
    held = elsewhere.get_handle("notes")
    held.search(SearchRequest("typed just before"), interface=SearchInterface.HTTP)
    ground.search("typed just before")
    place = ground.directory
    removed = ground.service.remove("notes")
    assert "queries.sqlite" in removed.files
    elsewhere.close()
    ground.service.close()
    assert not place.exists()
    assert not [file for file in ground.data.rglob("*") if file.is_file() and b"typed just" in file.read_bytes()]


def test_backups_hold_nothing_of_it_and_a_restored_wiki_keeps_its_log(ground: QueryLogFixture) -> None:
    ground.search("zebra crossing")
    ground.wait_for_records(1)
    ground.wiki.backups.create()
    files = [file for file in (ground.data / "backups").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"zebra" in file.read_bytes()]
    ground.wiki.restore()
    assert ground.read_queries() == ["zebra crossing"]


def test_long_queries_and_long_lists_of_pages_are_cut(ground: QueryLogFixture) -> None:
    answer = ground.wiki.search(SearchRequest("heron " * 300, 3))
    many = make_record(answer, SearchInterface.HTTP, filtered=False)
    assert len(many.query) == 500
    assert set(many.pages) == {"Heron", "Pump", "Rota"}


def test_what_is_too_old_goes_with_the_next_write_with_a_report_and_with_a_check(ground: QueryLogFixture) -> None:
    log, old = ground.open_log(), time.time() - 31 * 86_400
    for forget in (
        lambda: log.write([make_query_record("today")], RETENTION),
        ground.wiki.query_log.build_report,
        ground.wiki.check_integrity,
    ):
        log.clear()
        log.write([make_query_record("forgotten secret", old), make_query_record("today")], QueryRetention(60, 10))
        assert ground.read_queries() == ["forgotten secret", "today"]
        forget()
        assert set(ground.read_queries()) == {"today"}
        assert b"forgotten secret" not in ground.file.read_bytes()


def test_what_is_too_old_goes_though_the_index_is_gone(ground: QueryLogFixture) -> None:
    log = ground.open_log()
    log.write(
        [make_query_record("forgotten", time.time() - 31 * 86_400), make_query_record("today")], QueryRetention(60, 10)
    )
    ground.wiki.close()
    (ground.directory / "CURRENT").unlink()
    for file in ground.directory.glob("g0*"):
        file.unlink()
    with pytest.raises(IndexMissing):
        ground.wiki.check_integrity()
    assert ground.read_queries() == ["today"]


def test_where_no_thread_can_be_started_searches_are_answered_and_written_once_one_can(
    ground: QueryLogFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = QueryLogWriter(lambda _: ground.open_log(), RETENTION, batch_delay_s=0.001)
    diary = QueryBuffer(ground.open_log(), scribe)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        diary.add(make_query_record("first"))
    diary.add(make_query_record("second"))
    wait_until(lambda: scribe.written == 2)
    scribe.close()
    assert ground.read_queries() == ["first", "second"]


def test_what_is_asked_after_a_log_was_cleared_is_not_lost_with_it(ground: QueryLogFixture) -> None:
    stuck = BlockedQueryLog(ground.open_log())
    scribe = QueryLogWriter(lambda _: stuck, RETENTION, batch_delay_s=0.001)
    diary = QueryBuffer(stuck, scribe)
    diary.add(make_query_record("before"))
    wait_until(lambda: stuck.attempts == 1)
    diary.discard()
    diary.add(make_query_record("after"))
    stuck.released.set()
    wait_until(lambda: scribe.written == 2)
    scribe.close()
    assert ground.read_queries()[-1] == "after"


def test_the_newest_entries_bound_the_size(ground: QueryLogFixture) -> None:
    log = ground.open_log()
    for first in range(0, 5000, 500):
        log.write([make_query_record(f"{number}") for number in range(first, first + 500)], QueryRetention(30, 200))
    assert ground.read_queries() == [str(number) for number in range(4800, 5000)]
    assert ground.file.stat().st_size < 200_000
    assert log.clear() == 200
    assert ground.read_queries() == []
    log.write([make_query_record("anew")], RETENTION)
    assert ground.read_queries() == ["anew"]


_IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@_IGNORE_FORK_WARNING
def test_several_processes_write_the_same_file(ground: QueryLogFixture) -> None:
    ground.service.close()
    children = []
    for child in range(3):
        pid = os.fork()
        if not pid:
            log = SqliteQueryLog(ground.directory)
            for number in range(20):
                log.write([make_query_record(f"{child} {number}")], RETENTION)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 3
    assert sorted(ground.read_queries()) == sorted(f"{child} {number}" for child in range(3) for number in range(20))


@_IGNORE_FORK_WARNING
def test_a_forked_child_writes_its_own_and_leaves_its_parents_to_the_parent(ground: QueryLogFixture) -> None:
    ground.search("parent before")
    ground.wait_for_records(1)
    ground.search("parent waiting")
    pid = os.fork()
    if not pid:
        ground.search("child")
        ground.writer.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    ground.search("parent after")
    ground.service.close()
    assert sorted(ground.read_queries()) == ["child", "parent after", "parent before", "parent waiting"]


class BlockedQueryLog:
    """A log that cannot be written until it is told otherwise."""

    def __init__(self, log: SqliteQueryLog) -> None:
        self._log = log
        self.attempts = 0
        self.released = threading.Event()

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        self.attempts += 1
        assert self.released.wait(60)
        self._log.write(records, retention)

    def read(self, since: float) -> QueryRecords | None:
        return self._log.read(since)

    def trim(self, retention: QueryRetention) -> None:
        self._log.trim(retention)

    def clear(self) -> int:
        return self._log.clear()


def test_a_full_queue_loses_entries_and_counts_them_and_nobody_waits(ground: QueryLogFixture) -> None:
    stuck = BlockedQueryLog(ground.open_log())
    scribe = QueryLogWriter(lambda _: stuck, QueryRetention(30, 5000), batch_delay_s=0.001)
    diary = QueryBuffer(stuck, scribe)
    diary.add(make_query_record("first"))
    wait_until(lambda: stuck.attempts == 1)
    began = time.monotonic()
    for number in range(1500):
        diary.add(make_query_record(f"{number}"))
    assert time.monotonic() - began < 30
    assert scribe.lost == 501, "the first still has its place"
    stuck.released.set()
    wait_until(lambda: scribe.written == 1000)
    diary.add(make_query_record("last"))
    scribe.close()
    found = ground.open_log().read(0)
    assert found is not None
    assert len(found.records) == 1001
    assert sum(each.lost for each in found.records) == 501


def test_a_locked_log_costs_no_search_and_what_was_asked_meanwhile_is_written_later(
    ground: QueryLogFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wikiholt.wikis.query_log._RETRY_DELAY_S", 0.01)
    monkeypatch.setattr("wikiholt.storage.sqlite.query_log._BUSY_TIMEOUT_S", 0.01)
    ground.search("before")
    ground.wait_for_records(1)
    with closing(sqlite3.connect(ground.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        ground.search("meanwhile secretly")
        wait_until(lambda: "cannot be recorded" in caplog.text)
        other.execute("ROLLBACK")
    ground.wait_for_records(2)
    assert ground.read_queries() == ["before", "meanwhile secretly"]
    assert "secretly" not in caplog.text


@pytest.mark.parametrize("harm", ["overwritten", "cut", "half", "other tables"])
def test_a_damaged_log_is_begun_anew_and_says_so(
    ground: QueryLogFixture, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    for number in range(300):
        ground.search(f"before {number}")
    ground.wait_for_records(300)
    whole = ground.file.read_bytes()
    if harm == "other tables":
        ground.file.unlink()
        with closing(sqlite3.connect(ground.file)) as other:
            other.executescript("CREATE TABLE searches (x); PRAGMA user_version = 1")
    else:
        damaged = {"overwritten": b"no database" * 100, "cut": whole[:5000], "half": whole[:4096] + bytes(len(whole))}
        ground.file.write_bytes(damaged[harm])
    ground.search("after")
    ground.wait_for_records(301)
    assert "after" in ground.read_queries()
    assert ground.wiki.search(SearchRequest("heron")).hits
    found = ground.wiki.query_log.build_report()
    assert found.searches >= 1
    assert found.damaged_at is not None
    assert "replaced by an empty one" in caplog.text
    assert "before" not in caplog.text


def test_a_directory_that_cannot_be_written_costs_the_log_alone(
    ground: QueryLogFixture, caplog: pytest.LogCaptureFixture
) -> None:
    ground.file.mkdir()
    ground.search("heron")
    wait_until(lambda: "cannot be recorded" in caplog.text)
    assert ground.wiki.search(SearchRequest("heron"), interface=SearchInterface.CLI).hits
    with pytest.raises(StorageError):
        ground.wiki.query_log.build_report()
    ground.file.rmdir()


def test_searches_of_many_threads_are_all_written(ground: QueryLogFixture) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: ground.search(f"thread {number}"), range(200)))
    ground.service.close()
    assert sorted(ground.read_queries()) == sorted(f"thread {number}" for number in range(200))
