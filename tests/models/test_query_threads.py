"""Embedding a query in another thread: the same vector, the same errors, and never more threads than allowed."""

import os
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from tests.models.tiny_model import write_model
from wikiholt.errors import ModelMismatch
from wikiholt.models import load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.models.idle_threads import IdleThreads

_TIMEOUT_S = 60


def test_a_started_query_has_the_vector_of_embed_query(tmp_path: Path) -> None:
    with load_embedder(write_model(tmp_path), threads=2) as embedder:
        get_vector = embedder.start_query("the cat on a sofa")
        assert get_vector is not None
        assert np.array_equal(get_vector(), embedder.embed_query("the cat on a sofa"))


def test_with_one_thread_no_query_is_started(tmp_path: Path) -> None:
    with load_embedder(write_model(tmp_path), threads=1) as embedder:
        assert embedder.start_query("the cat") is None


def test_the_error_of_a_started_query_is_raised_where_its_vector_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: OnnxEmbedder, output: object) -> object:
        raise ModelMismatch("another shape", hint="correct the card")

    with load_embedder(write_model(tmp_path), threads=2) as embedder:
        monkeypatch.setattr(OnnxEmbedder, "_pool_output", fail)
        get_vector = embedder.start_query("the cat")
        assert get_vector is not None
        with pytest.raises(ModelMismatch, match="another shape"):
            get_vector()


def test_an_embedder_can_be_used_after_it_was_closed(tmp_path: Path) -> None:
    embedder = load_embedder(write_model(tmp_path), threads=2)
    for _ in range(2):
        get_vector = embedder.start_query("the cat")
        assert get_vector is not None
        assert get_vector().shape == (embedder.dimensions,)
        embedder.close()


def test_work_is_refused_while_every_thread_is_busy() -> None:
    threads = IdleThreads(1, "test")
    free = Event()
    running = threads.start(lambda: free.wait(_TIMEOUT_S))
    assert running is not None
    assert threads.start(lambda: None) is None
    free.set()
    assert running.result(_TIMEOUT_S)
    threads.close()
    again = threads.start(lambda: 5)
    assert again is not None
    assert again.result(_TIMEOUT_S) == 5
    threads.close()


def test_no_threads_take_no_work() -> None:
    assert IdleThreads(0, "test").start(lambda: None) is None


def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = IdleThreads(1, "test")
    free = Event()
    busy = threads.start(lambda: free.wait(_TIMEOUT_S))
    assert busy is not None
    # What a child of another process finds: the thread is not here, and its work never ends.
    monkeypatch.setattr(threads, "_pid", os.getpid() - 1)
    started = threads.start(lambda: 7)
    assert started is not None
    assert started.result(_TIMEOUT_S) == 7
    free.set()
    assert busy.result(_TIMEOUT_S)
    threads.close()
