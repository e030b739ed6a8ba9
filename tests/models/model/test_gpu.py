"""Passages on a GPU: PyTorch's encoder beside the graph, and the embedder around it. No GPU is needed."""

import logging
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import InvalidInput, ModelMismatch
from wikiholt.models import DEFAULT_MODEL, load_local_embedder, model_loader
from wikiholt.models.model_card import ModelCard
from wikiholt.models.model_loader import load_tokenizer, read_encoder_tensors

TEXTS = ["The cat sleeps on the sofa.", "bank", "Error 0x6100 means that the drum is worn out. " * 20]


class FakeEncoder:
    """Computes on the CPU, and counts."""

    def __init__(self, tensors: Mapping[str, Any], card: ModelCard, device: str) -> None:
        assert device == "cuda"
        assert tensors["words"].shape[1] == card.width
        self._embedder = load_local_embedder(DEFAULT_MODEL)
        self.calls: list[int] = []
        self.sign = 1.0

    def embed(self, sequences: Sequence[IntArray]) -> FloatArray:
        self.calls.append(len(sequences))
        return np.stack([self.sign * self._embedder._compute_vector(ids) for ids in sequences]).astype(np.float32)


class WrongEncoder(FakeEncoder):
    def embed(self, sequences: Sequence[IntArray]) -> FloatArray:
        return np.tile(np.eye(1, 384, dtype=np.float32), (len(sequences), 1))


def install_encoder(monkeypatch: pytest.MonkeyPatch, encoder: type[FakeEncoder]) -> None:
    """Pretend that there is a GPU with PyTorch."""
    module = ModuleType("wikiholt.models.torch_encoder")
    module.TorchEncoder = encoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(model_loader, "_has_pytorch", lambda: True)
    monkeypatch.setattr(model_loader, "_has_driver", lambda: True)


def test_passages_run_on_the_gpu_and_queries_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install_encoder(monkeypatch, FakeEncoder)
    on_cpu, on_gpu = load_local_embedder(DEFAULT_MODEL), load_local_embedder(DEFAULT_MODEL, device="cuda")
    assert on_gpu.fingerprint == on_cpu.fingerprint
    assert on_gpu.embed_passages(TEXTS) == pytest.approx(on_cpu.embed_passages(TEXTS), abs=1e-6)
    encoder = on_gpu._encoder
    assert isinstance(encoder, FakeEncoder)
    assert encoder.calls[-1] == len(TEXTS)
    count = len(encoder.calls)
    on_gpu.embed_query("where does the cat sleep?")
    assert len(encoder.calls) == count
    on_gpu.run_self_test()
    assert len(encoder.calls) > count  # the references are checked on the GPU too


def test_a_text_beyond_the_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install_encoder(monkeypatch, FakeEncoder)
    with pytest.raises(InvalidInput, match="exceeds the window"):
        load_local_embedder(DEFAULT_MODEL, device="cuda").embed_passages(["word", "word " * 600])


def test_a_gpu_that_computes_wrong_vectors_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_encoder(monkeypatch, WrongEncoder)
    with pytest.raises(ModelMismatch, match="cosine"):
        load_local_embedder(DEFAULT_MODEL, device="cuda").embed_passages(TEXTS)
    with caplog.at_level(logging.WARNING):
        automatic = load_local_embedder(DEFAULT_MODEL, device="auto")
        assert automatic.embed_passages(TEXTS) == pytest.approx(
            load_local_embedder(DEFAULT_MODEL).embed_passages(TEXTS), abs=1e-6
        )
    assert "The CPU is used" in caplog.text
    assert not automatic.uses_gpu


def test_other_processes_count_tokens_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    install_encoder(monkeypatch, FakeEncoder)
    embedder = load_local_embedder(DEFAULT_MODEL, device="cuda")
    make_tokenizer = embedder.get_tokenizer_factory()
    assert embedder.uses_gpu
    assert embedder._encoder is None  # it starts later, beside these processes
    tokenizer = make_tokenizer()
    assert tokenizer.get_token_spans(TEXTS[2]) == embedder.get_token_spans(TEXTS[2])
    assert tokenizer.max_tokens == embedder.max_tokens
    assert not load_local_embedder(DEFAULT_MODEL).uses_gpu


def test_pytorch_gives_the_vectors_of_the_graph() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from wikiholt.models.torch_encoder import TorchEncoder, plan_batches

    model = DEFAULT_MODEL
    embedder = load_local_embedder(model)
    encoder = TorchEncoder(read_encoder_tensors(model, embedder.precision), embedder._model.card, "cpu")
    texts = [text[:600] for text in TEXTS]
    vectors = encoder.embed(load_tokenizer(model).encode_passages(texts))
    assert (vectors * embedder.embed_passages(texts)).sum(axis=1).min() > 0.99
    assert list(plan_batches([5, 100, 4, 100, 6], max_tokens=200)) == [[2, 0, 4], [1, 3]]
