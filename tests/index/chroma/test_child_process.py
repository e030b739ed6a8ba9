"""Chroma in a child process: killed, stopped, shared, idle; effects on searches, and costs."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.index.chroma.chroma_fixtures import (
    EMBEDDER,
    OTHER_WIKI_ID,
    QUERY,
    WIKI_ID,
    ChromaFixture,
    assert_same_as_store,
    get_metric,
    is_alive,
    is_helped_by_chroma,
)
from tests.support.paths import ROOT
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import IndexChange
from wikiholt.index.chroma import client
from wikiholt.index.chroma.client import ChromaMetrics
from wikiholt.index.chroma.server import SOCKET_FILE, VERSION_FILE, OwnServer
from wikiholt.testing.fakes import make_entry


def test_the_first_search_uses_chroma_and_is_right(fixture: ChromaFixture) -> None:
    index, imported = fixture.create_index(WIKI_ID), set(sys.modules)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        assert is_helped_by_chroma(cache)
        for limit in (1, 10, 60, 70, 500, 5000):
            assert_same_as_store(cache, index, limit)
        pages = np.array([2, 5, 7], np.int64)
        found, expected = cache.search(QUERY, 10, pages), index.search_vectors(QUERY, 10, pages)
        assert found.chunk_ids.tolist() == expected.chunk_ids.tolist()
        assert get_metric(engine, "fallbacks") == 0
        cache.close()
    assert not [name for name in set(sys.modules) - imported if name.startswith("chromadb")]


def test_the_child_wipes_memory_that_it_frees(fixture: ChromaFixture) -> None:
    """Chroma writes uninitialized memory to disk, so the C library must not return memory with old content."""
    fixture.create_index(WIKI_ID)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a child")
        surroundings = Path(f"/proc/{fixture.get_child_pid(engine)}/environ").read_bytes().split(b"\0")
        given = dict(line.split(b"=", 1) for line in surroundings if b"=" in line)
        assert 0 < int(given[b"MALLOC_PERTURB_"]) < 256
        cache.close()


def test_the_tenant_and_the_database_are_created(fixture: ChromaFixture) -> None:
    fixture.create_index(WIKI_ID)
    with fixture.open_engine(tenant="fresh", database="fresh") as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a collection in a new database")
        cache.close()


def test_variables_of_the_environment_do_not_configure_the_child(
    fixture: ChromaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.create_index(WIKI_ID)
    monkeypatch.setenv("CHROMA_SERVER_AUTHN_PROVIDER", "nowhere.Provider")
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a child")
        cache.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_no_other_user_of_the_machine_can_read_a_wiki(fixture: ChromaFixture) -> None:
    """Whatever the permissions of the directory."""
    fixture.create_index(WIKI_ID)
    previous = os.umask(0)
    fixture.path.mkdir(0o777)
    try:
        with fixture.open_engine() as engine:
            cache = fixture.open_cache(engine)
            wait_until(lambda: is_helped_by_chroma(cache), "a child")
            for place in (fixture.path, *fixture.path.parents):
                place.chmod(0o777)
            answers = {user: connect_as(user, fixture.path / SOCKET_FILE) for user in (0, 65534)}
            opened = {file.name: file.stat().st_mode & 0o077 for file in fixture.path.glob("chroma.sqlite3*")}
            cache.close()
    finally:
        os.umask(previous)
    assert answers == {0: "connected", 65534: "PermissionError"}
    assert not any(opened.values()), opened


def connect_as(user: int, place: Path) -> str:
    """What a process of this user gets from the socket."""
    script = (
        "import os, socket, sys; os.chdir(sys.argv[2]); os.setuid(int(sys.argv[1]))\n"
        "try: socket.socket(socket.AF_UNIX).connect(sys.argv[3]); print('connected', end='')\n"
        "except OSError as error: print(type(error).__name__, end='')\n"
    )
    command = [sys.executable, "-c", script, str(user), str(place.parent), place.name]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def test_an_empty_index_gives_an_empty_answer_and_grows(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID, 0)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "an empty collection")
        assert len(cache.search(QUERY, 10, None).chunk_ids) == 0
        index.apply(IndexChange(pages=(make_entry("a.md", ["river stone", "bridge"], EMBEDDER),)))
        assert_same_as_store(cache, index)
        cache.close()


def test_an_edit_costs_the_rows_that_changed_and_a_restart_none(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID, 150)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        assert get_metric(engine, "rows_written") == 300
        index.apply(IndexChange(pages=(make_entry("p7.md", ["a new river", "and stone", "and wood"], EMBEDDER),)))
        assert not assert_same_as_store(cache, index).degraded, "exact until the collection has the edit"
        assert cache.wait_idle(60)
        assert (get_metric(engine, "rows_written"), get_metric(engine, "rows_removed")) == (303, 2)
        os.kill(fixture.get_child_pid(engine), signal.SIGKILL)
        wait_until(lambda: is_helped_by_chroma(cache) and get_metric(engine, "starts") == 2, "another child")
        assert get_metric(engine, "rows_written") == 303
        cache.close()
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "another process")
        assert get_metric(engine, "rows_written") == 0
        assert get_metric(engine, "checks") == 1
        cache.close()


def test_a_child_killed_under_load_shows_only_in_the_metrics(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID, 60)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        done, wrong, degraded = threading.Event(), [], threading.Event()

        def search() -> None:
            while not done.is_set():
                try:
                    if assert_same_as_store(cache, index).degraded:
                        degraded.set()
                except BaseException as error:  # noqa: BLE001 - reported below
                    wrong.append(error)
                    return

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        os.kill(fixture.get_child_pid(engine), signal.SIGKILL)
        wait_until(degraded.is_set, "a search without Chroma")
        wait_until(lambda: get_metric(engine, "starts") == 2, "another child")
        before = get_metric(engine, "queries")
        wait_until(lambda: get_metric(engine, "queries") > before + 10, "searches that use Chroma again")
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert get_metric(engine, "crashes") == 1
        assert get_metric(engine, "rows_written") == 120
        assert engine.is_up
        cache.close()


def test_a_child_that_hangs_costs_one_search_its_time_and_is_replaced(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine(timeout_s=2.0, read_timeout_s=4.0, write_timeout_s=30.0) as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        os.kill(fixture.get_child_pid(engine), signal.SIGSTOP)
        assert assert_same_as_store(cache, index).degraded
        assert cache._ready is None, "it gets no second request"
        wait_until(lambda: is_helped_by_chroma(cache), "another child")
        assert get_metric(engine, "kills") >= 1
        assert get_metric(engine, "starts") >= 2
        assert get_metric(engine, "timeouts") >= 1
        cache.close()


def test_a_service_stops_within_seconds_while_chroma_hangs(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine(write_timeout_s=30.0, read_timeout_s=15.0) as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        child = fixture.get_child_pid(engine)
        os.kill(child, signal.SIGSTOP)
        index.apply(IndexChange(pages=(make_entry("p1.md", ["river stone3"], EMBEDDER),)))
        cache.refresh()
        assert not cache.idle.is_set(), "a request that is not answered"
        began = time.monotonic()
        cache.close()
        engine.close()
        assert time.monotonic() - began < 15
        assert not is_alive(child)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_the_process_that_started_it(fixture: ChromaFixture, signal_number: int) -> None:
    fixture.create_index(WIKI_ID).close()
    with run_owner(fixture) as (process, pid):
        process.send_signal(signal_number)
        process.wait(TIMEOUT_S)
        wait_until(lambda: not is_alive(pid), "the child has ended")


SECOND_PROCESS_SCRIPT = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from tests.index.chroma.chroma_fixtures import (
    WIKI_ID, ChromaFixture, assert_same_as_store, get_metric, is_helped_by_chroma
)
from tests.support.wait import wait_until

ground = ChromaFixture(pathlib.Path(sys.argv[1]))
index = ground.open_indexes[WIKI_ID] = ground.store.open(WIKI_ID)
with ground.open_engine() as engine:
    cache = ground.open_cache(engine)
    wait_until(lambda: is_helped_by_chroma(cache), "the child of the first process")
    print("starts", get_metric(engine, "starts"), flush=True)
    sys.stdin.readline()  # the index has changed
    assert_same_as_store(cache, index)
    wait_until(lambda: cache.wait_idle(1) and is_helped_by_chroma(cache), "it follows")
    assert_same_as_store(cache, index)
    cache.close()
    print("followed", flush=True)
    sys.stdin.read()
"""


def test_one_child_serves_all_processes(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    command = [sys.executable, "-c", SECOND_PROCESS_SCRIPT, str(fixture.place), str(ROOT)]
    with fixture.open_engine() as first:
        cache = fixture.open_cache(first)
        wait_until(lambda: is_helped_by_chroma(cache), "the first")
        pid = fixture.get_child_pid(first)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdin is not None
            assert second.stdout is not None
            assert second.stdout.readline() == "starts 0\n"
            index.apply(IndexChange(pages=(make_entry("p1.md", ["river stone3"], EMBEDDER),)))
            assert_same_as_store(cache, index)
            second.stdin.write("changed\n")
            second.stdin.flush()
            assert second.stdout.readline() == "followed\n"
            wait_until(lambda: cache.wait_idle(1) and is_helped_by_chroma(cache), "the first follows")
            second.stdin.close()
            assert second.wait(TIMEOUT_S) == 0
        assert is_alive(pid)
        assert is_helped_by_chroma(cache)
        assert get_metric(first, "starts") == 1
        cache.close()
    assert not is_alive(pid)


OWNER_SCRIPT = """
import sys, pathlib
sys.path.insert(0, sys.argv[2])
from tests.index.chroma.chroma_fixtures import WIKI_ID, ChromaFixture, is_helped_by_chroma
from tests.support.wait import wait_until

ground = ChromaFixture(pathlib.Path(sys.argv[1]))
ground.open_indexes[WIKI_ID] = ground.store.open(WIKI_ID)
with ground.open_engine() as engine:
    cache = ground.open_cache(engine)
    wait_until(lambda: is_helped_by_chroma(cache), 'help')
    print(ground.get_child_pid(engine), flush=True)
    sys.stdin.read()
"""


@contextmanager
def run_owner(fixture: ChromaFixture) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Another process that has started a child, and the child's id."""
    command = [sys.executable, "-c", OWNER_SCRIPT, str(fixture.place), str(ROOT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_after_the_first_process_is_killed_another_starts_its_own_child(fixture: ChromaFixture) -> None:
    fixture.create_index(WIKI_ID).close()
    index = fixture.open_indexes[WIKI_ID] = fixture.store.open(WIKI_ID)
    with run_owner(fixture) as (process, _), fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the other's child takes part")
        assert get_metric(engine, "starts") == 0
        process.kill()
        wait_until(lambda: assert_same_as_store(cache, index).degraded or get_metric(engine, "starts"), "it is noticed")
        wait_until(lambda: is_helped_by_chroma(cache), "its own child")
        assert get_metric(engine, "starts") == 1
        cache.close()


def test_files_of_another_chroma_version_are_quarantined_and_not_opened(
    fixture: ChromaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine() as engine:
        wait_until(lambda: is_helped_by_chroma(fixture.open_cache(engine)), "the first build")
    (fixture.path / VERSION_FILE).write_text("1.0.20")
    before = (fixture.path / "chroma.sqlite3").read_bytes()
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a new build")
        assert get_metric(engine, "rebuilds") == 1
        assert get_metric(engine, "renewals") == 1
        assert_same_as_store(cache, index)
        cache.close()
    (kept,) = (fixture.path / "wikiholt-aside").iterdir()
    assert f"Chroma's files were moved aside to {kept}" in caplog.text
    assert kept.name.endswith("written-by-1.0.20")
    assert (kept / "chroma.sqlite3").read_bytes() == before


@pytest.mark.parametrize("name", ["chroma.sqlite3", "index_metadata.pickle", "data_level0.bin"])
def test_damaged_files_never_show_in_an_answer(
    fixture: ChromaFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Segments are written to disk after a few rows, not after a thousand."""
    hnsw = {**client.INDEX_CONFIGURATION["hnsw"], "sync_threshold": 20}
    monkeypatch.setitem(client.INDEX_CONFIGURATION, "hnsw", hnsw)
    index = fixture.create_index(WIKI_ID, 40)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        cache.close()
    (file,) = fixture.path.rglob(name)
    file.write_bytes(random.Random(7).randbytes(file.stat().st_size))
    index.apply(IndexChange(pages=(make_entry("p3.md", ["river stone"], EMBEDDER),)))
    with fixture.open_engine() as engine:
        newer = fixture.open_cache(engine)

        def has_recovered() -> bool:
            assert_same_as_store(newer, index)
            return is_helped_by_chroma(newer)

        wait_until(has_recovered, "Chroma takes part again")
        newer.close()


def test_a_foreign_directory_is_not_changed(fixture: ChromaFixture, caplog: pytest.LogCaptureFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    fixture.path.mkdir()
    (fixture.path / "chroma.sqlite3").write_bytes(b"somebody's")
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        assert assert_same_as_store(cache, index).degraded
        assert "did not create" in engine.check()
        assert not engine.is_up
        cache.close()
    assert (fixture.path / "chroma.sqlite3").read_bytes() == b"somebody's"
    assert "choose an empty directory" in caplog.text


def test_rows_changed_by_others_are_found_by_a_check_and_repaired(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        collection = cache._ready.records  # type: ignore[union-attr]
        written, removed = get_metric(engine, "rows_written"), get_metric(engine, "rows_removed")
        lost = index.search_vectors(QUERY, 10, None).chunk_ids
        collection.delete([str(chunk) for chunk in lost])
        collection.upsert(["stranger", "99999999"], np.stack([QUERY, QUERY]))
        cache.verify()
        assert cache.wait_idle(60)
        assert_same_as_store(cache, index)
        assert is_helped_by_chroma(cache)
        assert get_metric(engine, "repairs") == 1
        assert (get_metric(engine, "rows_written") - written, get_metric(engine, "rows_removed") - removed) == (10, 2)
        assert {name for (names,) in collection.iter_batches([]) for name in names} == {
            str(chunk) for chunk in index.search_vectors(QUERY, 500, None).chunk_ids
        }
        cache.close()


def test_a_collection_that_loses_its_rows_is_noticed_by_searches_alone(fixture: ChromaFixture) -> None:
    index = fixture.create_index(WIKI_ID)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        collection = cache._ready.records  # type: ignore[union-attr]
        collection.delete([str(chunk) for chunk in index.search_vectors(QUERY, 40, None).chunk_ids])
        assert assert_same_as_store(cache, index, 60).degraded
        wait_until(lambda: is_helped_by_chroma(cache), "it is repaired")
        assert_same_as_store(cache, index, 60)
        cache.close()


def test_neighbours_are_found_by_chroma_as_well_as_by_exact_scores(fixture: ChromaFixture) -> None:
    from tests.index.brute_force_index import BruteForceIndex, measure_recall, random_vectors

    reference = BruteForceIndex(3_000, dimensions=96)
    fixture.open_indexes[WIKI_ID] = reference.as_index()
    fixture.store.get_directory(WIKI_ID).mkdir(parents=True)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        assert cache.wait_idle(60)
        wait_until(lambda: is_helped_by_chroma(cache, random_vectors(1, dimensions=96)[0]), "the first build")
        before = get_metric(engine, "queries")
        queries = random_vectors(50, seed=3, dimensions=96)
        found = [
            measure_recall(cache.search(query, 10, None), reference.search_vectors(query, 10)) for query in queries
        ]
        assert np.mean(found) >= 0.98
        assert get_metric(engine, "queries") == before + 50
        cache.close()
    fixture.open_indexes.clear()


def test_two_wikis_share_only_a_directory(fixture: ChromaFixture) -> None:
    one, other = fixture.create_index(WIKI_ID), fixture.create_index(OTHER_WIKI_ID, 20, "forest")
    with fixture.open_engine() as engine:
        caches = fixture.open_cache(engine), fixture.open_cache(engine, OTHER_WIKI_ID, "other")
        for cache, index in zip(caches, (one, other), strict=True):
            wait_until(lambda cache=cache: is_helped_by_chroma(cache), "both use Chroma")  # type: ignore[misc]
            assert_same_as_store(cache, index)
        chroma = engine.client
        named = {found.name: found for found in chroma.iter_collections()}
        assert set(named) == {f"wikiholt_{WIKI_ID}", f"wikiholt_{OTHER_WIKI_ID}"}
        assert chroma.open_records(named[f"wikiholt_{OTHER_WIKI_ID}"]).count() == 40
        for cache in caches:
            cache.close()


def test_a_reindexed_wiki_gets_a_collection_of_its_new_generation(fixture: ChromaFixture) -> None:
    old = fixture.create_index(WIKI_ID)
    with fixture.open_engine() as engine:
        cache = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        fresh = fixture.store.create_generation(WIKI_ID, old.get_state().recipe)
        fresh.apply(IndexChange(pages=(make_entry("only.md", ["one river", "one stone"], EMBEDDER),)))
        fixture.store.publish(WIKI_ID, fresh.generation)
        fixture.open_indexes[WIKI_ID] = fresh
        newer = fixture.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(newer), "the new generation")
        assert_same_as_store(newer, fresh)
        assert len(list(engine.client.iter_collections())) == 1
        newer.close()
        cache.close()
    old.close()


def test_a_process_whose_server_was_killed_leaves_the_server_of_another_reachable(tmp_path: Path) -> None:
    first, second = (OwnServer(tmp_path, ChromaMetrics()) for _ in range(2))
    first.start()
    assert first._process is not None
    first._process.kill()
    first._process.wait()
    second.start()
    try:
        first.close()
        second.connect(TIMEOUT_S).close()
    finally:
        second.close()
    assert not (tmp_path / SOCKET_FILE).exists()
