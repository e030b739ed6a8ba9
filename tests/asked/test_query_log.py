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
from asked_ground import BOUNDS, Ground, searched, until

from wikiholt.asked import Diary, Scribe, written_down
from wikiholt.errors import IndexMissing, NoQueryLog, StorageRefused
from wikiholt.model import Filter, Mode, QueryBounds, QueryEntries, Searched, Surface
from wikiholt.search import Request
from wikiholt.stores.sqlite.queries import SqliteQueryLog
from wikiholt.wiring import without_answers


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.service.close()


def test_a_search_is_written_down_with_what_came_of_it_and_nothing_of_who_asked(ground: Ground) -> None:
    began = time.time()
    ground.wiki.search(Request("grey heron", 2, Mode.KEYWORD, Filter(path_prefix="Heron")), surface=Surface.MCP)
    ground.settled(1)
    (entry,) = ground.log().read(0).searches  # type: ignore[union-attr]
    assert began - 1 < entry.at < time.time() + 1
    assert (entry.surface, entry.query, entry.mode, entry.filtered) == ("mcp", "grey heron", "keyword", True)
    assert (entry.hits, entry.pages, entry.nothing_relevant, entry.degraded) == (1, ("Heron",), False, False)
    assert 0 < entry.score <= 1
    assert entry.ms > 0
    columns = [row[1] for row in sqlite3.connect(ground.file).execute("PRAGMA table_info(searches)")]
    assert set(columns) - {"id"} == set(Searched.__dataclass_fields__)


def test_only_searches_that_somebody_asked_are_written_down(ground: Ground) -> None:
    ground.ask("an evaluation", None)
    ground.wiki.similar("Heron")
    blind = without_answers(ground.service, "notes", [])
    blind.search(Request("asked blindly"))
    blind.close()
    ground.service.add("young", str(ground.repository.path), {})
    with pytest.raises(IndexMissing):
        ground.service.wiki("young").search(Request("too early"), surface=Surface.HTTP)
    ground.ask("somebody asks")
    ground.settled(1)
    assert ground.queries() == ["somebody asks"]


def test_off_is_the_default_and_writes_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {})
    ground.ask("secret plans")
    assert ground.scribe._thread is None
    ground.service.close()
    assert not ground.file.exists()
    assert not [file for file in ground.data.rglob("*") if file.is_file() and b"secret plans" in file.read_bytes()]
    with pytest.raises(NoQueryLog) as caught:
        ground.wiki.queries.report()
    assert "log_queries=true" in caught.value.hint
    with pytest.raises(NoQueryLog):
        ground.wiki.queries.clear()


def test_a_wikis_own_setting_decides_and_what_was_written_stays_readable(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {})
    ground.service.configure("notes", {"log_queries": "true"})
    ground.ask("written")
    ground.settled(1)
    ground.service.configure("notes", {"log_queries": "false"})
    ground.ask("not written")
    ground.service.close()
    assert ground.queries() == ["written"]
    found = ground.wiki.queries.report()
    assert (found.searches, found.logging) == (1, False)
    ground.service = Ground.opened(ground)
    ground.service.configure("notes", {"log_queries": ""})
    ground.settings = {"queries.log": True}
    ground.service.close()
    ground.service = ground.opened()
    ground.ask("written again")
    ground.service.close()
    assert ground.queries() == ["written", "written again"]


def test_what_is_asked_is_written_when_the_process_ends_in_good_order(ground: Ground) -> None:
    for number in range(50):
        ground.ask(f"query {number}")
    ground.service.close()
    assert ground.queries() == [f"query {number}" for number in range(50)]
    assert stat.S_IMODE(ground.file.stat().st_mode) == 0o600


def test_removal_leaves_nothing_though_another_process_still_has_something_to_write(ground: Ground) -> None:
    ground.ask("restart")
    ground.settled(1)
    elsewhere = ground.opened()
    held = elsewhere.wiki("notes")
    held.search(Request("typed just before"), surface=Surface.HTTP)
    ground.ask("typed just before")
    place = ground.directory
    removed = ground.service.remove("notes")
    assert "queries.sqlite" in removed.files
    elsewhere.close()
    ground.service.close()
    assert not place.exists()
    assert not [file for file in ground.data.rglob("*") if file.is_file() and b"typed just" in file.read_bytes()]


def test_backups_hold_nothing_of_it_and_a_restored_wiki_keeps_its_log(ground: Ground) -> None:
    ground.ask("zebra crossing")
    ground.settled(1)
    ground.wiki.backups.take()
    files = [file for file in (ground.data / "backups").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"zebra" in file.read_bytes()]
    ground.wiki.restore()
    assert ground.queries() == ["zebra crossing"]


def test_long_queries_and_long_lists_of_pages_are_cut(ground: Ground) -> None:
    answer = ground.wiki.search(Request("heron " * 300, 3))
    many = written_down(answer, Surface.HTTP, filtered=False)
    assert len(many.query) == 500
    assert set(many.pages) == {"Heron", "Pump", "Rota"}


def test_what_is_too_old_goes_with_the_next_write_with_a_report_and_with_a_check(ground: Ground) -> None:
    log, old = ground.log(), time.time() - 31 * 86_400
    for forget in (
        lambda: log.write([searched("today")], BOUNDS),
        ground.wiki.queries.report,
        ground.wiki.examine,
    ):
        log.clear()
        log.write([searched("forgotten secret", old), searched("today")], QueryBounds(60, 10))
        assert ground.queries() == ["forgotten secret", "today"]
        forget()
        assert set(ground.queries()) == {"today"}
        assert b"forgotten secret" not in ground.file.read_bytes()


def test_what_is_too_old_goes_though_the_index_is_gone(ground: Ground) -> None:
    log = ground.log()
    log.write([searched("forgotten", time.time() - 31 * 86_400), searched("today")], QueryBounds(60, 10))
    ground.wiki.close()
    (ground.directory / "CURRENT").unlink()
    for file in ground.directory.glob("g0*"):
        file.unlink()
    with pytest.raises(IndexMissing):
        ground.wiki.examine()
    assert ground.queries() == ["today"]


def test_where_no_thread_can_be_started_searches_are_answered_and_written_once_one_can(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = Scribe(lambda _: ground.log(), BOUNDS, gather=0.001)
    diary = Diary(ground.log(), scribe)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        diary.note(searched("first"))
    diary.note(searched("second"))
    until(lambda: scribe.written == 2)
    scribe.close()
    assert ground.queries() == ["first", "second"]


def test_what_is_asked_after_a_log_was_cleared_is_not_lost_with_it(ground: Ground) -> None:
    stuck = Stuck(ground.log())
    scribe = Scribe(lambda _: stuck, BOUNDS, gather=0.001)
    diary = Diary(stuck, scribe)
    diary.note(searched("before"))
    until(lambda: stuck.tries == 1)
    diary.discard()
    diary.note(searched("after"))
    stuck.free.set()
    until(lambda: scribe.written == 2)
    scribe.close()
    assert ground.queries()[-1] == "after"


def test_the_newest_entries_bound_the_size(ground: Ground) -> None:
    log = ground.log()
    for first in range(0, 5000, 500):
        log.write([searched(f"{number}") for number in range(first, first + 500)], QueryBounds(30, 200))
    assert ground.queries() == [str(number) for number in range(4800, 5000)]
    assert ground.file.stat().st_size < 200_000
    assert log.clear() == 200
    assert ground.queries() == []
    log.write([searched("anew")], BOUNDS)
    assert ground.queries() == ["anew"]


_FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@_FORKS
def test_several_processes_write_the_same_file(ground: Ground) -> None:
    ground.service.close()
    children = []
    for child in range(3):
        pid = os.fork()
        if not pid:
            log = SqliteQueryLog(ground.directory)
            for number in range(20):
                log.write([searched(f"{child} {number}")], BOUNDS)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 3
    assert sorted(ground.queries()) == sorted(f"{child} {number}" for child in range(3) for number in range(20))


@_FORKS
def test_a_forked_child_writes_its_own_and_leaves_its_parents_to_the_parent(ground: Ground) -> None:
    ground.ask("parent before")
    ground.settled(1)
    ground.ask("parent waiting")
    pid = os.fork()
    if not pid:
        ground.ask("child")
        ground.scribe.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    ground.ask("parent after")
    ground.service.close()
    assert sorted(ground.queries()) == ["child", "parent after", "parent before", "parent waiting"]


class Stuck:
    """A log that cannot be written until it is told otherwise."""

    def __init__(self, log: SqliteQueryLog) -> None:
        self._log = log
        self.tries = 0
        self.free = threading.Event()

    def write(self, searches: Sequence[Searched], bounds: QueryBounds) -> None:
        self.tries += 1
        assert self.free.wait(60)
        self._log.write(searches, bounds)

    def read(self, since: float) -> QueryEntries | None:
        return self._log.read(since)

    def trim(self, bounds: QueryBounds) -> None:
        self._log.trim(bounds)

    def clear(self) -> int:
        return self._log.clear()


def test_a_full_queue_loses_entries_and_counts_them_and_nobody_waits(ground: Ground) -> None:
    stuck = Stuck(ground.log())
    scribe = Scribe(lambda _: stuck, QueryBounds(30, 5000), gather=0.001)
    diary = Diary(stuck, scribe)
    diary.note(searched("first"))
    until(lambda: stuck.tries == 1)
    began = time.monotonic()
    for number in range(1500):
        diary.note(searched(f"{number}"))
    assert time.monotonic() - began < 30
    assert scribe.lost == 501, "the first still has its place"
    stuck.free.set()
    until(lambda: scribe.written == 1000)
    diary.note(searched("last"))
    scribe.close()
    found = ground.log().read(0)
    assert found is not None
    assert len(found.searches) == 1001
    assert sum(each.lost for each in found.searches) == 501


def test_a_locked_log_costs_no_search_and_what_was_asked_meanwhile_is_written_later(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wikiholt.asked.diary._AGAIN", 0.01)
    monkeypatch.setattr("wikiholt.stores.sqlite.queries._PATIENCE", 0.01)
    ground.ask("before")
    ground.settled(1)
    with closing(sqlite3.connect(ground.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        ground.ask("meanwhile secretly")
        until(lambda: "cannot be written down" in caplog.text)
        other.execute("ROLLBACK")
    ground.settled(2)
    assert ground.queries() == ["before", "meanwhile secretly"]
    assert "secretly" not in caplog.text


@pytest.mark.parametrize("harm", ["overwritten", "cut", "half", "other tables"])
def test_a_damaged_log_is_begun_anew_and_says_so(ground: Ground, caplog: pytest.LogCaptureFixture, harm: str) -> None:
    for number in range(300):
        ground.ask(f"before {number}")
    ground.settled(300)
    whole = ground.file.read_bytes()
    if harm == "other tables":
        ground.file.unlink()
        with closing(sqlite3.connect(ground.file)) as other:
            other.executescript("CREATE TABLE searches (x); PRAGMA user_version = 1")
    else:
        damaged = {"overwritten": b"no database" * 100, "cut": whole[:5000], "half": whole[:4096] + bytes(len(whole))}
        ground.file.write_bytes(damaged[harm])
    ground.ask("after")
    ground.settled(301)
    assert "after" in ground.queries()
    assert ground.wiki.search(Request("heron")).hits
    found = ground.wiki.queries.report()
    assert found.searches >= 1
    assert found.damaged_at is not None
    assert "begun anew" in caplog.text
    assert "before" not in caplog.text


def test_a_directory_that_cannot_be_written_costs_the_log_alone(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.file.mkdir()
    ground.ask("heron")
    until(lambda: "cannot be written down" in caplog.text)
    assert ground.wiki.search(Request("heron"), surface=Surface.CLI).hits
    with pytest.raises(StorageRefused):
        ground.wiki.queries.report()
    ground.file.rmdir()


def test_searches_of_many_threads_are_all_written(ground: Ground) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: ground.ask(f"thread {number}"), range(200)))
    ground.service.close()
    assert sorted(ground.queries()) == sorted(f"thread {number}" for number in range(200))
