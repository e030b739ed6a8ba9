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
from chroma_ground import EMBEDDER, ONE, OTHER, QUERY, Ground, alive, assert_right, figure, helped, until

from wikiholt.model import Change
from wikiholt.testing.entries import entry


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


def test_the_first_search_is_helped_already_and_right(ground: Ground) -> None:
    index, imported = ground.wiki(ONE), set(sys.modules)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        assert helped(cache)
        for limit in (1, 10, 60, 70, 500, 5000):
            assert_right(cache, index, limit)
        pages = np.array([2, 5, 7], np.int64)
        found, expected = cache.search(QUERY, 10, pages), index.nearest(QUERY, 10, pages)
        assert found.chunk_ids.tolist() == expected.chunk_ids.tolist()
        assert figure(engine, "fallbacks") == 0
        cache.close()
    assert not [name for name in set(sys.modules) - imported if name.startswith("chromadb")]


def test_the_child_wipes_memory_that_it_frees(ground: Ground) -> None:
    """Chroma writes memory to disk that it has not filled; so the C library must not hand out what was in it before."""
    ground.wiki(ONE)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "a child")
        surroundings = Path(f"/proc/{ground.child_pid(engine)}/environ").read_bytes().split(b"\0")
        given = dict(line.split(b"=", 1) for line in surroundings if b"=" in line)
        assert 0 < int(given[b"MALLOC_PERTURB_"]) < 256
        cache.close()


def test_an_empty_index_gives_an_empty_answer_and_grows(ground: Ground) -> None:
    index = ground.wiki(ONE, 0)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "an empty collection")
        assert len(cache.search(QUERY, 10, None).chunk_ids) == 0
        index.apply(Change(pages=(entry("a.md", ["river stone", "bridge"], EMBEDDER),)))
        assert_right(cache, index)
        cache.close()


def test_an_edit_costs_the_rows_that_changed_and_a_restart_none(ground: Ground) -> None:
    index = ground.wiki(ONE, 150)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        assert figure(engine, "rows_written") == 300
        index.apply(Change(pages=(entry("p7.md", ["a new river", "and stone", "and wood"], EMBEDDER),)))
        assert_right(cache, index)  # at once: what came since is scored, too
        assert cache.settle(60)
        assert (figure(engine, "rows_written"), figure(engine, "rows_removed")) == (303, 2)
        os.kill(ground.child_pid(engine), signal.SIGKILL)
        until(lambda: helped(cache) and figure(engine, "starts") == 2, "another child")
        assert figure(engine, "rows_written") == 303
        cache.close()
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "another process")
        assert figure(engine, "rows_written") == 0
        assert figure(engine, "checks") == 1
        cache.close()


def test_a_child_killed_under_load_is_noticed_by_nobody_but_the_figures(ground: Ground) -> None:
    index = ground.wiki(ONE, 60)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        done, wrong, degraded = threading.Event(), [], threading.Event()

        def search() -> None:
            while not done.is_set():
                try:
                    if assert_right(cache, index).degraded:
                        degraded.set()
                except BaseException as error:  # noqa: BLE001 - told below
                    wrong.append(error)
                    return

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        os.kill(ground.child_pid(engine), signal.SIGKILL)
        until(degraded.is_set, "a search that had to do without")
        until(lambda: figure(engine, "starts") == 2, "another child")
        before = figure(engine, "queries")
        until(lambda: figure(engine, "queries") > before + 10, "searches that are helped again")
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert figure(engine, "crashes") == 1
        assert figure(engine, "rows_written") == 120
        assert engine.up
        cache.close()


def test_a_child_that_hangs_costs_one_search_its_time_and_is_replaced(ground: Ground) -> None:
    index = ground.wiki(ONE)
    with ground.chroma(timeout=3.0, heartbeat=3.0, patience=20.0) as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        os.kill(ground.child_pid(engine), signal.SIGSTOP)
        assert assert_right(cache, index).degraded
        assert cache._standing is None, "nobody asks it a second time"
        until(lambda: helped(cache), "another child")
        assert figure(engine, "kills") >= 1
        assert figure(engine, "starts") >= 2
        assert figure(engine, "timeouts") >= 1
        cache.close()


def test_one_child_serves_all_processes_and_ends_with_the_last(ground: Ground) -> None:
    index = ground.wiki(ONE)
    with ground.chroma() as first:
        cache = ground.cache(first)
        until(lambda: helped(cache), "the first")
        pid = ground.child_pid(first)
        with ground.chroma() as second:
            also = ground.cache(second)
            until(lambda: helped(also), "the second, by the first one's child")
            assert figure(second, "starts") == 0
            index.apply(Change(pages=(entry("p1.md", ["river stone3"], EMBEDDER),)))
            assert_right(cache, index)
            assert_right(also, index)
            until(lambda: cache.settle(1) and also.settle(1) and helped(cache) and helped(also), "both follow")
            assert_right(also, index)
            also.close()
        assert alive(pid)
        assert helped(cache)
        cache.close()
    assert not alive(pid)


def test_another_process_goes_on_with_a_child_of_its_own_when_the_first_was_killed(ground: Ground) -> None:
    ground.wiki(ONE).close()
    script = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from chroma_ground import *\n"
        "ground = Ground(pathlib.Path(sys.argv[1])); ground.open[ONE] = ground.store.open(ONE)\n"
        "with ground.chroma() as engine:\n"
        "    cache = ground.cache(engine)\n"
        "    until(lambda: helped(cache), 'help')\n"
        "    print(ground.child_pid(engine), flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(ground.place), str(Path(__file__).parent)]
    index = ground.open[ONE] = ground.store.open(ONE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        with ground.chroma() as engine:
            cache = ground.cache(engine)
            until(lambda: helped(cache), "help from the other's child")
            assert figure(engine, "starts") == 0
            process.kill()
            os.kill(pid, signal.SIGKILL)
            until(lambda: assert_right(cache, index).degraded or figure(engine, "starts"), "it is noticed")
            until(lambda: helped(cache), "a child of its own")
            assert figure(engine, "starts") == 1
            cache.close()


def test_what_another_version_of_chroma_wrote_is_set_aside_and_not_opened(ground: Ground) -> None:
    index = ground.wiki(ONE)
    with ground.chroma() as engine:
        until(lambda: helped(ground.cache(engine)), "the first build")
    (ground.path / "wikiholt.json").write_text(json.dumps({"chromadb": "1.0.20"}))
    before = (ground.path / "chroma.sqlite3").read_bytes()
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "a new build")
        assert figure(engine, "rebuilds") == 1
        assert_right(cache, index)
        cache.close()
    (kept,) = (ground.path / "wikiholt-aside").iterdir()
    assert kept.name.endswith("written-by-1.0.20")
    assert (kept / "chroma.sqlite3").read_bytes() == before


def test_a_directory_that_wikiholt_did_not_make_is_left_alone(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    index = ground.wiki(ONE)
    ground.path.mkdir()
    (ground.path / "chroma.sqlite3").write_bytes(b"somebody's")
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        assert assert_right(cache, index).degraded
        assert "did not make" in engine.examine()
        assert not engine.up
        cache.close()
    assert (ground.path / "chroma.sqlite3").read_bytes() == b"somebody's"
    assert "choose an empty directory" in caplog.text


def test_rows_changed_behind_our_back_are_found_by_a_check_and_mended(ground: Ground) -> None:
    index = ground.wiki(ONE)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        collection = cache._standing.collection  # type: ignore[union-attr]
        written, removed = figure(engine, "rows_written"), figure(engine, "rows_removed")
        lost = index.nearest(QUERY, 10, None).chunk_ids
        collection.take_out({"ids": [str(chunk) for chunk in lost]})
        collection.put(["stranger", "99999999"], np.stack([QUERY, QUERY]), None, None)
        cache.verify()
        assert cache.settle(60)
        assert_right(cache, index)
        assert helped(cache)
        assert figure(engine, "repairs") == 1
        assert (figure(engine, "rows_written") - written, figure(engine, "rows_removed") - removed) == (10, 2)
        assert {row.id for row in collection.all(with_marks=False)} == {
            str(chunk) for chunk in index.nearest(QUERY, 500, None).chunk_ids
        }
        cache.close()


def test_a_collection_that_loses_its_rows_is_noticed_by_searches_alone(ground: Ground) -> None:
    index = ground.wiki(ONE)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        collection = cache._standing.collection  # type: ignore[union-attr]
        collection.take_out({"ids": [str(chunk) for chunk in index.nearest(QUERY, 40, None).chunk_ids]})
        assert assert_right(cache, index, 60).degraded
        until(lambda: helped(cache), "it is mended")
        assert_right(cache, index, 60)
        cache.close()


def test_neighbours_are_found_by_chroma_as_well_as_by_exact_scores(ground: Ground) -> None:
    from vector_truth import Truth, random_vectors, recall

    truth = Truth(3_000, dimensions=96)
    ground.open[ONE] = truth.as_index()
    ground.store.directory(ONE).mkdir(parents=True)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        assert cache.settle(60)
        until(lambda: helped(cache, random_vectors(1, dimensions=96)[0]), "the first build")
        before = figure(engine, "queries")
        queries = random_vectors(50, seed=3, dimensions=96)
        found = [recall(cache.search(query, 10, None), truth.nearest(query, 10)) for query in queries]
        assert np.mean(found) >= 0.98
        assert figure(engine, "queries") == before + 50
        cache.close()
    ground.open.clear()


def test_two_wikis_share_a_directory_and_nothing_else(ground: Ground) -> None:
    one, other = ground.wiki(ONE), ground.wiki(OTHER, 20, "forest")
    with ground.chroma() as engine:
        caches = ground.cache(engine), ground.cache(engine, OTHER, "other")
        for cache, index in zip(caches, (one, other), strict=True):
            until(lambda cache=cache: helped(cache), "both are helped")  # type: ignore[misc]
            assert_right(cache, index)
        chroma = engine._caretaker.api
        named = {found.name: found for found in chroma.all()}
        assert set(named) == {f"wikiholt_{ONE}", f"wikiholt_{OTHER}"}
        assert chroma.rows_of(named[f"wikiholt_{OTHER}"]).count() == 40
        for cache in caches:
            cache.close()


def test_a_reindexed_wiki_gets_a_collection_of_its_new_generation(ground: Ground) -> None:
    old = ground.wiki(ONE)
    with ground.chroma() as engine:
        cache = ground.cache(engine)
        until(lambda: helped(cache), "the first build")
        fresh = ground.store.new_generation(ONE, old.state().recipe)
        fresh.apply(Change(pages=(entry("only.md", ["one river", "one stone"], EMBEDDER),)))
        ground.store.publish(ONE, fresh.generation)
        ground.open[ONE] = fresh
        newer = ground.cache(engine)
        until(lambda: helped(newer), "the new generation")
        assert_right(newer, fresh)
        assert len(list(engine._caretaker.api.all())) == 1
        newer.close()
        cache.close()
    old.close()
