"""The setting `device`: what is chosen, and what is missing. No GPU is needed."""

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.tiny_model import write_model
from wikiholt.errors import ModelMismatch
from wikiholt.models import load_embedder, model_loader
from wikiholt.models.model_card import CARD_FILE, ModelCard, read_card


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return replace(read_card(write_model(tmp_path) / CARD_FILE), heads=2)


@pytest.fixture
def has_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_loader, "_has_pytorch", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())


@pytest.mark.usefixtures("has_gpu")
def test_a_gpu_is_used_unless_the_setting_is_cpu(card: ModelCard) -> None:
    assert [model_loader.choose_device(value, card) for value in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


@pytest.mark.usefixtures("has_gpu")
def test_an_onnx_file_stays_on_the_cpu(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    assert load_embedder(model, device="auto").embed_passages(["the cat"]).shape == (1, 4)
    with pytest.raises(ModelMismatch, match="is an ONNX file") as raised:
        load_embedder(model, device="cuda")
    assert "openai:NAME" in raised.value.hint


def test_without_pytorch_auto_uses_the_cpu_and_cuda_is_an_error(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_loader, "_has_pytorch", lambda: False)
    assert model_loader.choose_device("auto", card) == "cpu"
    with pytest.raises(ModelMismatch, match="PyTorch is not installed"):
        model_loader.choose_device("cuda", card)


@pytest.mark.usefixtures("has_gpu")
def test_without_a_driver_auto_uses_the_cpu_and_cuda_is_an_error(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(library: str) -> None:
        raise OSError(library)

    monkeypatch.setattr(ctypes, "CDLL", fail)
    assert model_loader.choose_device("auto", card) == "cpu"
    with pytest.raises(ModelMismatch, match="no CUDA driver"):
        model_loader.choose_device("cuda", card)
