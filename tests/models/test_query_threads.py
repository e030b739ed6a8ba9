"""Embedding a query in another thread: the same vector, the same errors, and never more threads than allowed."""

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from tests.models.tiny_model import write_model
from tests.support.wait import wait_until
from wikiholt.errors import ModelMismatch
from wikiholt.models import load_embedder
from wikiholt.models.embedder import OnnxEmbedder

_TIMEOUT_S = 60


def test_a_started_query_has_the_vector_of_embed_query(tmp_path: Path) -> None:
    embedder = load_embedder(write_model(tmp_path), threads=2)
    get_vector = embedder.start_query("the cat on a sofa")
    assert get_vector is not None
    assert np.array_equal(get_vector(), embedder.embed_query("the cat on a sofa"))


def test_with_one_thread_no_query_is_started(tmp_path: Path) -> None:
    embedder = load_embedder(write_model(tmp_path), threads=1)
    assert embedder.start_query("the cat") is None


def test_the_error_of_a_started_query_is_raised_where_its_vector_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: OnnxEmbedder, output: object) -> object:
        raise ModelMismatch("another shape", hint="correct the card")

    embedder = load_embedder(write_model(tmp_path), threads=2)
    monkeypatch.setattr(OnnxEmbedder, "_pool_output", fail)
    get_vector = embedder.start_query("the cat")
    assert get_vector is not None
    with pytest.raises(ModelMismatch, match="another shape"):
        get_vector()


def test_no_query_is_started_while_every_thread_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, embed_query = Event(), OnnxEmbedder.embed_query

    def wait_and_embed(self: OnnxEmbedder, text: str) -> object:
        assert free.wait(_TIMEOUT_S)
        return embed_query(self, text)

    embedder = load_embedder(write_model(tmp_path), threads=2)
    monkeypatch.setattr(OnnxEmbedder, "embed_query", wait_and_embed)
    get_vector = embedder.start_query("the cat")
    assert get_vector is not None
    assert embedder.start_query("the dog") is None
    free.set()
    assert get_vector().shape == (embedder.dimensions,)
    wait_until(lambda: embedder.start_query("the dog"))
