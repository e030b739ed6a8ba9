"""The query log is optional: which searches it records, where, for how long, and without slowing searches."""

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

from tests.support.wait import TIMEOUT_S, wait_until
from tests.wikis.query_log.query_log_fixtures import RETENTION, QueryLogFixture, make_query_record
from wikiholt.api.bootstrap import open_evaluation_handle
from wikiholt.domain.search import PageFilter, QueryRecord, QueryRecords, QueryRetention, SearchInterface, SearchMode
from wikiholt.errors import IndexMissing, QueryLogNotFound, StorageError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.query_log import QueryLogWriter, WikiQueryLog, make_record
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a service waits until all records are written, however busy the machine is."""
    monkeypatch.setattr("wikiholt.wikis.query_log._CLOSE_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr("wikiholt.wikis.sqlite_query_log._BUSY_TIMEOUT_S", TIMEOUT_S)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[QueryLogFixture]:
    made = QueryLogFixture(tmp_path)
    yield made
    made.service.close()


def test_a_search_is_logged_with_its_result_and_nothing_about_the_user(fixture: QueryLogFixture) -> None:
    began = time.time()
    fixture.wiki.search(
        SearchRequest("grey heron", 2, SearchMode.KEYWORD, PageFilter(path_prefix="Heron")),
        interface=SearchInterface.MCP,
    )
    fixture.wait_for_records(1)
    (entry,) = fixture.open_log().read(0).records  # type: ignore[union-attr]
    assert began - 1 < entry.at < time.time() + 1
    assert (entry.interface, entry.query, entry.mode, entry.filtered) == ("mcp", "grey heron", "keyword", True)
    assert (entry.hits, entry.pages, entry.nothing_relevant, entry.degraded) == (1, ("Heron",), False, False)
    assert 0 < entry.score <= 1
    assert entry.ms > 0
    columns = [row[1] for row in sqlite3.connect(fixture.file).execute("PRAGMA table_info(searches)")]
    assert set(columns) - {"id"} == set(QueryRecord.__dataclass_fields__)


def test_only_searches_of_users_are_logged(fixture: QueryLogFixture) -> None:
    fixture.search("an evaluation", None)
    fixture.wiki.find_similar("Heron")
    fixture.wiki.search(SearchRequest("more hits", offset=1), interface=SearchInterface.HTTP)
    blind = open_evaluation_handle(fixture.service, "notes", [])
    blind.search(SearchRequest("asked blindly"))
    blind.close()
    fixture.service.add("young", str(fixture.repository.path), {})
    with pytest.raises(IndexMissing):
        fixture.service.get_handle("young").search(SearchRequest("too early"), interface=SearchInterface.HTTP)
    fixture.search("somebody asks")
    fixture.wait_for_records(1)
    assert fixture.read_queries() == ["somebody asks"]


def test_the_log_is_off_by_default_and_stores_nothing(tmp_path: Path) -> None:
    fixture = QueryLogFixture(tmp_path, {})
    fixture.search("secret plans")
    assert fixture.writer._thread is None
    fixture.service.close()
    assert not fixture.file.exists()
    assert not [file for file in fixture.data.rglob("*") if file.is_file() and b"secret plans" in file.read_bytes()]
    with pytest.raises(QueryLogNotFound) as caught:
        fixture.wiki.query_log.build_report()
    assert "log_queries=true" in caught.value.hint
    with pytest.raises(QueryLogNotFound):
        fixture.wiki.query_log.clear()


def test_the_setting_of_a_wiki_has_priority_and_old_records_stay_readable(tmp_path: Path) -> None:
    fixture = QueryLogFixture(tmp_path, {})
    fixture.service.configure("notes", {"log_queries": "true"})
    fixture.search("written")
    fixture.wait_for_records(1)
    fixture.service.configure("notes", {"log_queries": "false"})
    fixture.search("not written")
    fixture.service.close()
    assert fixture.read_queries() == ["written"]
    found = fixture.wiki.query_log.build_report()
    assert (found.searches, found.logging) == (1, False)
    fixture.service = QueryLogFixture.open_service(fixture)
    fixture.service.configure("notes", {"log_queries": ""})
    fixture.settings = {"queries.log": True}
    fixture.service.close()
    fixture.service = fixture.open_service()
    fixture.search("written again")
    fixture.service.close()
    assert fixture.read_queries() == ["written", "written again"]


def test_pending_records_are_written_when_the_process_ends_normally(fixture: QueryLogFixture) -> None:
    for number in range(50):
        fixture.search(f"query {number}")
    fixture.service.close()
    assert fixture.read_queries() == [f"query {number}" for number in range(50)]
    assert stat.S_IMODE(fixture.file.stat().st_mode) == 0o600


def test_removal_leaves_nothing_although_another_process_has_pending_records(fixture: QueryLogFixture) -> None:
    fixture.search("restart")
    fixture.wait_for_records(1)
    elsewhere = fixture.open_service()
    handle = elsewhere.get_handle("notes")
    handle.search(SearchRequest("typed just before"), interface=SearchInterface.HTTP)
    fixture.search("typed just before")
    place = fixture.directory
    removed = fixture.service.remove("notes")
    assert "queries.sqlite" in removed.files
    elsewhere.close()
    fixture.service.close()
    assert not place.exists()
    assert not [file for file in fixture.data.rglob("*") if file.is_file() and b"typed just" in file.read_bytes()]


def test_backups_do_not_contain_the_log_and_a_restored_wiki_keeps_it(fixture: QueryLogFixture) -> None:
    fixture.search("zebra crossing")
    fixture.wait_for_records(1)
    fixture.wiki.backups.create()
    files = [file for file in (fixture.data / "backups").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"zebra" in file.read_bytes()]
    fixture.wiki.restore()
    assert fixture.read_queries() == ["zebra crossing"]


def test_long_queries_and_long_lists_of_pages_are_cut(fixture: QueryLogFixture) -> None:
    answer = fixture.wiki.search(SearchRequest("heron " * 300, 3))
    many = make_record(answer, SearchInterface.HTTP, filtered=False)
    assert len(many.query) == 500
    assert set(many.pages) == {"Heron", "Pump", "Rota"}


def test_expired_records_are_deleted_by_a_write_a_report_and_a_check(fixture: QueryLogFixture) -> None:
    log, old = fixture.open_log(), time.time() - 31 * 86_400
    for forget in (
        lambda: log.write([make_query_record("today")], RETENTION),
        fixture.wiki.query_log.build_report,
        fixture.wiki.check_integrity,
    ):
        log.clear()
        log.write([make_query_record("forgotten secret", old), make_query_record("today")], QueryRetention(60, 10))
        assert fixture.read_queries() == ["forgotten secret", "today"]
        forget()
        assert set(fixture.read_queries()) == {"today"}
        assert b"forgotten secret" not in fixture.file.read_bytes()


def test_expired_records_are_deleted_without_an_index(fixture: QueryLogFixture) -> None:
    log = fixture.open_log()
    log.write(
        [make_query_record("forgotten", time.time() - 31 * 86_400), make_query_record("today")], QueryRetention(60, 10)
    )
    fixture.wiki.close()
    (fixture.directory / "CURRENT").unlink()
    for file in fixture.directory.glob("g0*"):
        file.unlink()
    with pytest.raises(IndexMissing):
        fixture.wiki.check_integrity()
    assert fixture.read_queries() == ["today"]


def test_without_a_writer_thread_searches_are_answered_and_logged_later(
    fixture: QueryLogFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = QueryLogWriter(lambda _: fixture.open_log(), RETENTION, batch_delay_s=0.001)
    buffer = WikiQueryLog(writer, fixture.open_log(), fixture.wiki._open_index, enabled=True)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        buffer.add(make_query_record("first"))
    buffer.add(make_query_record("second"))
    wait_until(lambda: writer.written == 2)
    writer.close()
    assert fixture.read_queries() == ["first", "second"]


def test_searches_after_a_log_was_cleared_are_kept(fixture: QueryLogFixture) -> None:
    stuck = BlockedQueryLog(fixture.open_log())
    writer = QueryLogWriter(lambda _: stuck, RETENTION, batch_delay_s=0.001)
    buffer = WikiQueryLog(writer, stuck, fixture.wiki._open_index, enabled=True)
    buffer.add(make_query_record("before"))
    wait_until(lambda: stuck.attempts == 1)
    buffer.discard()
    buffer.add(make_query_record("after"))
    stuck.released.set()
    wait_until(lambda: writer.written == 2)
    writer.close()
    assert fixture.read_queries()[-1] == "after"


def test_only_the_newest_records_are_kept(fixture: QueryLogFixture) -> None:
    log = fixture.open_log()
    for first in range(0, 5000, 500):
        log.write([make_query_record(f"{number}") for number in range(first, first + 500)], QueryRetention(30, 200))
    assert fixture.read_queries() == [str(number) for number in range(4800, 5000)]
    assert fixture.file.stat().st_size < 200_000
    assert log.clear() == 200
    assert fixture.read_queries() == []
    log.write([make_query_record("newer")], RETENTION)
    assert fixture.read_queries() == ["newer"]


_IGNORE_FORK_WARNING = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@_IGNORE_FORK_WARNING
def test_several_processes_write_the_same_file(fixture: QueryLogFixture) -> None:
    fixture.service.close()
    children = []
    for child in range(3):
        pid = os.fork()
        if not pid:
            log = SqliteQueryLog(fixture.directory)
            for number in range(20):
                log.write([make_query_record(f"{child} {number}")], RETENTION)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 3
    assert sorted(fixture.read_queries()) == sorted(f"{child} {number}" for child in range(3) for number in range(20))


@_IGNORE_FORK_WARNING
def test_a_forked_child_writes_only_its_own_records(fixture: QueryLogFixture) -> None:
    fixture.search("parent before")
    fixture.wait_for_records(1)
    # The writer waits until it is closed, so it uses no lock of a library at the time of the fork.
    fixture.writer._batch_delay_s = TIMEOUT_S
    fixture.search("parent waiting")
    pid = os.fork()
    if not pid:
        fixture.search("child")
        fixture.writer.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    fixture.search("parent after")
    fixture.service.close()
    assert sorted(fixture.read_queries()) == ["child", "parent after", "parent before", "parent waiting"]


class BlockedQueryLog:
    """A log that cannot be written until it is released."""

    def __init__(self, log: SqliteQueryLog) -> None:
        self._log = log
        self.attempts = 0
        self.released = threading.Event()

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        self.attempts += 1
        assert self.released.wait(TIMEOUT_S)
        self._log.write(records, retention)

    def read(self, since: float) -> QueryRecords | None:
        return self._log.read(since)

    def trim(self, retention: QueryRetention) -> None:
        self._log.trim(retention)

    def clear(self) -> int:
        return self._log.clear()


def test_a_full_queue_drops_and_counts_records_without_waiting(fixture: QueryLogFixture) -> None:
    stuck = BlockedQueryLog(fixture.open_log())
    writer = QueryLogWriter(lambda _: stuck, QueryRetention(30, 5000), batch_delay_s=0.001)
    buffer = WikiQueryLog(writer, stuck, fixture.wiki._open_index, enabled=True)
    buffer.add(make_query_record("first"))
    wait_until(lambda: stuck.attempts == 1)
    began = time.monotonic()
    for number in range(1500):
        buffer.add(make_query_record(f"{number}"))
    assert time.monotonic() - began < TIMEOUT_S / 2
    assert writer.lost == 501, "the first record keeps its place"
    stuck.released.set()
    wait_until(lambda: writer.written == 1000)
    buffer.add(make_query_record("last"))
    writer.close()
    found = fixture.open_log().read(0)
    assert found is not None
    assert len(found.records) == 1001
    assert sum(record.lost for record in found.records) == 501


def test_a_locked_log_delays_no_search_and_records_are_written_later(
    fixture: QueryLogFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wikiholt.wikis.query_log._RETRY_DELAY_S", 0.01)
    monkeypatch.setattr("wikiholt.wikis.sqlite_query_log._BUSY_TIMEOUT_S", 0.01)
    fixture.search("before")
    fixture.wait_for_records(1)
    with closing(sqlite3.connect(fixture.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        fixture.search("meanwhile secretly")
        wait_until(lambda: "cannot be recorded" in caplog.text)
        other.execute("ROLLBACK")
    fixture.wait_for_records(2)
    assert fixture.read_queries() == ["before", "meanwhile secretly"]
    assert "secretly" not in caplog.text


@pytest.mark.parametrize("harm", ["overwritten", "cut", "half", "other tables"])
def test_a_damaged_log_is_replaced_and_reported(
    fixture: QueryLogFixture, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    for number in range(300):
        fixture.search(f"before {number}")
    fixture.wait_for_records(300)
    whole = fixture.file.read_bytes()
    if harm == "other tables":
        fixture.file.unlink()
        with closing(sqlite3.connect(fixture.file)) as other:
            other.executescript("CREATE TABLE searches (x); PRAGMA user_version = 1")
    else:
        damaged = {"overwritten": b"no database" * 100, "cut": whole[:5000], "half": whole[:4096] + bytes(len(whole))}
        fixture.file.write_bytes(damaged[harm])
    fixture.search("after")
    fixture.wait_for_records(301)
    assert "after" in fixture.read_queries()
    assert fixture.wiki.search(SearchRequest("heron")).hits
    found = fixture.wiki.query_log.build_report()
    assert found.searches >= 1
    assert found.damaged_at is not None
    assert "replaced by an empty one" in caplog.text
    assert "before" not in caplog.text


def test_a_read_only_directory_stops_only_the_log(fixture: QueryLogFixture, caplog: pytest.LogCaptureFixture) -> None:
    fixture.file.mkdir()
    fixture.search("heron")
    wait_until(lambda: "cannot be recorded" in caplog.text)
    assert fixture.wiki.search(SearchRequest("heron"), interface=SearchInterface.CLI).hits
    with pytest.raises(StorageError):
        fixture.wiki.query_log.build_report()
    fixture.file.rmdir()


def test_searches_of_many_threads_are_all_written(fixture: QueryLogFixture) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: fixture.search(f"thread {number}"), range(200)))
    fixture.service.close()
    assert sorted(fixture.read_queries()) == sorted(f"thread {number}" for number in range(200))
