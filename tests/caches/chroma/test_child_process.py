"""Chroma in a child process: killed, stopped, shared, left alone; what a search notices of it, and what it costs."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.caches.chroma.chroma_fixtures import (
    EMBEDDER,
    OTHER_WIKI_ID,
    QUERY,
    WIKI_ID,
    ChromaFixture,
    assert_same_as_store,
    get_metric,
    is_alive,
    is_helped_by_chroma,
    wait_until,
)
from tests.support.paths import ROOT
from wikiholt.domain.index import IndexChange
from wikiholt.testing.fakes import make_entry


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[ChromaFixture]:
    made = ChromaFixture(tmp_path)
    yield made
    made.close()


def test_the_first_search_is_helped_already_and_right(ground: ChromaFixture) -> None:
    index, imported = ground.create_index(WIKI_ID), set(sys.modules)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        assert is_helped_by_chroma(cache)
        for limit in (1, 10, 60, 70, 500, 5000):
            assert_same_as_store(cache, index, limit)
        pages = np.array([2, 5, 7], np.int64)
        found, expected = cache.search(QUERY, 10, pages), index.search_vectors(QUERY, 10, pages)
        assert found.chunk_ids.tolist() == expected.chunk_ids.tolist()
        assert get_metric(engine, "fallbacks") == 0
        cache.close()
    assert not [name for name in set(sys.modules) - imported if name.startswith("chromadb")]


def test_the_child_wipes_memory_that_it_frees(ground: ChromaFixture) -> None:
    """Chroma writes memory to disk that it has not filled; so the C library must not hand out what was in it before."""
    ground.create_index(WIKI_ID)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a child")
        surroundings = Path(f"/proc/{ground.get_child_pid(engine)}/environ").read_bytes().split(b"\0")
        given = dict(line.split(b"=", 1) for line in surroundings if b"=" in line)
        assert 0 < int(given[b"MALLOC_PERTURB_"]) < 256
        cache.close()


def test_an_empty_index_gives_an_empty_answer_and_grows(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID, 0)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "an empty collection")
        assert len(cache.search(QUERY, 10, None).chunk_ids) == 0
        index.apply(IndexChange(pages=(make_entry("a.md", ["river stone", "bridge"], EMBEDDER),)))
        assert_same_as_store(cache, index)
        cache.close()


def test_an_edit_costs_the_rows_that_changed_and_a_restart_none(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID, 150)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        assert get_metric(engine, "rows_written") == 300
        index.apply(IndexChange(pages=(make_entry("p7.md", ["a new river", "and stone", "and wood"], EMBEDDER),)))
        assert_same_as_store(cache, index)  # at once: what came since is scored, too
        assert cache.wait_idle(60)
        assert (get_metric(engine, "rows_written"), get_metric(engine, "rows_removed")) == (303, 2)
        os.kill(ground.get_child_pid(engine), signal.SIGKILL)
        wait_until(lambda: is_helped_by_chroma(cache) and get_metric(engine, "starts") == 2, "another child")
        assert get_metric(engine, "rows_written") == 303
        cache.close()
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "another process")
        assert get_metric(engine, "rows_written") == 0
        assert get_metric(engine, "checks") == 1
        cache.close()


def test_a_child_killed_under_load_is_noticed_by_nobody_but_the_figures(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID, 60)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        done, wrong, degraded = threading.Event(), [], threading.Event()

        def search() -> None:
            while not done.is_set():
                try:
                    if assert_same_as_store(cache, index).degraded:
                        degraded.set()
                except BaseException as error:  # noqa: BLE001 - told below
                    wrong.append(error)
                    return

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        os.kill(ground.get_child_pid(engine), signal.SIGKILL)
        wait_until(degraded.is_set, "a search that had to do without")
        wait_until(lambda: get_metric(engine, "starts") == 2, "another child")
        before = get_metric(engine, "queries")
        wait_until(lambda: get_metric(engine, "queries") > before + 10, "searches that are helped again")
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert get_metric(engine, "crashes") == 1
        assert get_metric(engine, "rows_written") == 120
        assert engine.is_up
        cache.close()


def test_a_child_that_hangs_costs_one_search_its_time_and_is_replaced(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID)
    with ground.open_engine(timeout=3.0, heartbeat=3.0, background_timeout=20.0) as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        os.kill(ground.get_child_pid(engine), signal.SIGSTOP)
        assert assert_same_as_store(cache, index).degraded
        assert cache._verified is None, "nobody asks it a second time"
        wait_until(lambda: is_helped_by_chroma(cache), "another child")
        assert get_metric(engine, "kills") >= 1
        assert get_metric(engine, "starts") >= 2
        assert get_metric(engine, "timeouts") >= 1
        cache.close()


def test_one_child_serves_all_processes_and_ends_with_the_last(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID)
    with ground.open_engine() as first:
        cache = ground.open_cache(first)
        wait_until(lambda: is_helped_by_chroma(cache), "the first")
        pid = ground.get_child_pid(first)
        with ground.open_engine() as second:
            also = ground.open_cache(second)
            wait_until(lambda: is_helped_by_chroma(also), "the second, by the first one's child")
            assert get_metric(second, "starts") == 0
            index.apply(IndexChange(pages=(make_entry("p1.md", ["river stone3"], EMBEDDER),)))
            assert_same_as_store(cache, index)
            assert_same_as_store(also, index)
            wait_until(
                lambda: (
                    cache.wait_idle(1)
                    and also.wait_idle(1)
                    and is_helped_by_chroma(cache)
                    and is_helped_by_chroma(also)
                ),
                "both follow",
            )
            assert_same_as_store(also, index)
            also.close()
        assert is_alive(pid)
        assert is_helped_by_chroma(cache)
        cache.close()
    assert not is_alive(pid)


def test_another_process_goes_on_with_a_child_of_its_own_when_the_first_was_killed(ground: ChromaFixture) -> None:
    ground.create_index(WIKI_ID).close()
    script = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from tests.caches.chroma.chroma_fixtures import WIKI_ID, ChromaFixture, is_helped_by_chroma, wait_until\n"
        "ground = ChromaFixture(pathlib.Path(sys.argv[1])); ground.open_indexes[WIKI_ID] = ground.store.open(WIKI_ID)\n"
        "with ground.open_engine() as engine:\n"
        "    cache = ground.open_cache(engine)\n"
        "    wait_until(lambda: is_helped_by_chroma(cache), 'help')\n"
        "    print(ground.get_child_pid(engine), flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(ground.place), str(ROOT)]
    index = ground.open_indexes[WIKI_ID] = ground.store.open(WIKI_ID)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        with ground.open_engine() as engine:
            cache = ground.open_cache(engine)
            wait_until(lambda: is_helped_by_chroma(cache), "help from the other's child")
            assert get_metric(engine, "starts") == 0
            process.kill()
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: assert_same_as_store(cache, index).degraded or get_metric(engine, "starts"), "it is noticed"
            )
            wait_until(lambda: is_helped_by_chroma(cache), "a child of its own")
            assert get_metric(engine, "starts") == 1
            cache.close()


def test_what_another_version_of_chroma_wrote_is_set_aside_and_not_opened(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID)
    with ground.open_engine() as engine:
        wait_until(lambda: is_helped_by_chroma(ground.open_cache(engine)), "the first build")
    (ground.path / "wikiholt.json").write_text(json.dumps({"chromadb": "1.0.20"}))
    before = (ground.path / "chroma.sqlite3").read_bytes()
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "a new build")
        assert get_metric(engine, "rebuilds") == 1
        assert_same_as_store(cache, index)
        cache.close()
    (kept,) = (ground.path / "wikiholt-aside").iterdir()
    assert kept.name.endswith("written-by-1.0.20")
    assert (kept / "chroma.sqlite3").read_bytes() == before


def test_a_directory_that_wikiholt_did_not_make_is_left_alone(
    ground: ChromaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    index = ground.create_index(WIKI_ID)
    ground.path.mkdir()
    (ground.path / "chroma.sqlite3").write_bytes(b"somebody's")
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        assert assert_same_as_store(cache, index).degraded
        assert "did not create" in engine.check()
        assert not engine.is_up
        cache.close()
    assert (ground.path / "chroma.sqlite3").read_bytes() == b"somebody's"
    assert "choose an empty directory" in caplog.text


def test_rows_changed_behind_our_back_are_found_by_a_check_and_mended(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        collection = cache._verified.collection  # type: ignore[union-attr]
        written, removed = get_metric(engine, "rows_written"), get_metric(engine, "rows_removed")
        lost = index.search_vectors(QUERY, 10, None).chunk_ids
        collection.delete({"ids": [str(chunk) for chunk in lost]})
        collection.upsert(["stranger", "99999999"], np.stack([QUERY, QUERY]), None, None)
        cache.verify()
        assert cache.wait_idle(60)
        assert_same_as_store(cache, index)
        assert is_helped_by_chroma(cache)
        assert get_metric(engine, "repairs") == 1
        assert (get_metric(engine, "rows_written") - written, get_metric(engine, "rows_removed") - removed) == (10, 2)
        assert {row.id for row in collection.iter_rows(with_metadata=False)} == {
            str(chunk) for chunk in index.search_vectors(QUERY, 500, None).chunk_ids
        }
        cache.close()


def test_a_collection_that_loses_its_rows_is_noticed_by_searches_alone(ground: ChromaFixture) -> None:
    index = ground.create_index(WIKI_ID)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        collection = cache._verified.collection  # type: ignore[union-attr]
        collection.delete({"ids": [str(chunk) for chunk in index.search_vectors(QUERY, 40, None).chunk_ids]})
        assert assert_same_as_store(cache, index, 60).degraded
        wait_until(lambda: is_helped_by_chroma(cache), "it is mended")
        assert_same_as_store(cache, index, 60)
        cache.close()


def test_neighbours_are_found_by_chroma_as_well_as_by_exact_scores(ground: ChromaFixture) -> None:
    from tests.caches.brute_force_index import BruteForceIndex, measure_recall, random_vectors

    truth = BruteForceIndex(3_000, dimensions=96)
    ground.open_indexes[WIKI_ID] = truth.as_index()
    ground.store.get_directory(WIKI_ID).mkdir(parents=True)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        assert cache.wait_idle(60)
        wait_until(lambda: is_helped_by_chroma(cache, random_vectors(1, dimensions=96)[0]), "the first build")
        before = get_metric(engine, "queries")
        queries = random_vectors(50, seed=3, dimensions=96)
        found = [measure_recall(cache.search(query, 10, None), truth.search_vectors(query, 10)) for query in queries]
        assert np.mean(found) >= 0.98
        assert get_metric(engine, "queries") == before + 50
        cache.close()
    ground.open_indexes.clear()


def test_two_wikis_share_a_directory_and_nothing_else(ground: ChromaFixture) -> None:
    one, other = ground.create_index(WIKI_ID), ground.create_index(OTHER_WIKI_ID, 20, "forest")
    with ground.open_engine() as engine:
        caches = ground.open_cache(engine), ground.open_cache(engine, OTHER_WIKI_ID, "other")
        for cache, index in zip(caches, (one, other), strict=True):
            wait_until(lambda cache=cache: is_helped_by_chroma(cache), "both are helped")  # type: ignore[misc]
            assert_same_as_store(cache, index)
        chroma = engine._worker.api
        named = {found.name: found for found in chroma.iter_collections()}
        assert set(named) == {f"wikiholt_{WIKI_ID}", f"wikiholt_{OTHER_WIKI_ID}"}
        assert chroma.open_rows(named[f"wikiholt_{OTHER_WIKI_ID}"]).count() == 40
        for cache in caches:
            cache.close()


def test_a_reindexed_wiki_gets_a_collection_of_its_new_generation(ground: ChromaFixture) -> None:
    old = ground.create_index(WIKI_ID)
    with ground.open_engine() as engine:
        cache = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(cache), "the first build")
        fresh = ground.store.create_generation(WIKI_ID, old.get_state().recipe)
        fresh.apply(IndexChange(pages=(make_entry("only.md", ["one river", "one stone"], EMBEDDER),)))
        ground.store.publish(WIKI_ID, fresh.generation)
        ground.open_indexes[WIKI_ID] = fresh
        newer = ground.open_cache(engine)
        wait_until(lambda: is_helped_by_chroma(newer), "the new generation")
        assert_same_as_store(newer, fresh)
        assert len(list(engine._worker.api.iter_collections())) == 1
        newer.close()
        cache.close()
    old.close()
