"""The setting `device`: which provider is chosen, what happens without a GPU, and batches. No GPU is needed."""

import logging
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.embedding.tiny_model import make_embedding_table, write_model
from wikiholt.embedding import load_embedder
from wikiholt.embedding.device import CUDA, check_device, choose_providers
from wikiholt.embedding.embedder import OnnxEmbedder
from wikiholt.embedding.model_loader import LoadedModel
from wikiholt.embedding.token_batches import MAX_BATCH_TEXTS, pad, plan_batches, pool_batch
from wikiholt.errors import ModelMismatch

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.fixture
def has_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA_PROVIDER, CPU_PROVIDER])


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_cuda_the_cpu_is_used(device: str) -> None:
    assert choose_providers(device, "fp32") == [CPU_PROVIDER]


def test_cuda_without_onnxruntime_gpu_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="no CUDA") as caught:
        load_embedder(write_model(tmp_path), device="cuda")
    assert "onnxruntime-gpu" in caught.value.hint


@pytest.mark.usefixtures("has_cuda")
def test_with_cuda_fp32_runs_on_the_gpu_and_int8_does_not() -> None:
    for device in ("auto", "cuda"):
        assert choose_providers(device, "fp32") == [(CUDA_PROVIDER, {"use_tf32": "0"}), CPU_PROVIDER]
    assert choose_providers("cpu", "fp32") == choose_providers("auto", "int8") == [CPU_PROVIDER]
    with pytest.raises(ModelMismatch, match="int8") as caught:
        choose_providers("cuda", "int8")
    assert "fp32" in caught.value.hint


def test_a_silent_fallback_of_onnxruntime_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    wanted = [(CUDA_PROVIDER, {}), CPU_PROVIDER]
    assert check_device("auto", wanted, [CUDA_PROVIDER, CPU_PROVIDER], "m") == "cuda"
    with caplog.at_level(logging.WARNING):
        assert check_device("auto", wanted, [CPU_PROVIDER], "m") == "cpu"
    assert "CUDA did not start" in caplog.text
    with pytest.raises(ModelMismatch, match="CUDA did not start for m"):
        check_device("cuda", wanted, [CPU_PROVIDER], "m")


@pytest.mark.usefixtures("has_cuda")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_auto_loads_on_the_cpu_if_cuda_does_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedder = load_embedder(write_model(tmp_path), device="auto")
    embedder.run_self_test()
    assert "runs on the CPU" in caplog.text
    with pytest.raises(ModelMismatch, match="did not start"):
        load_embedder(write_model(tmp_path), device="cuda")


def test_batches_have_texts_of_similar_length() -> None:
    lengths = [5, 100, 4, 100, 6, 5]
    assert list(plan_batches(lengths, can_pad=True, max_texts=3)) == [[2, 0, 5], [4, 1, 3]]
    assert list(plan_batches(lengths, can_pad=False)) == [[2], [0, 5], [4], [1, 3]]
    assert [len(batch) for batch in plan_batches([512] * 70, can_pad=True)] == [32, 32, 6]
    assert [len(batch) for batch in plan_batches([8] * 70, can_pad=True)] == [MAX_BATCH_TEXTS, 6]
    assert list(plan_batches([], can_pad=True)) == []


def test_padding_does_not_change_the_pooled_vector() -> None:
    states = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    _, mask = pad([np.array([1, 2], np.int64), np.array([1, 2, 3], np.int64)])
    assert pool_batch(states, mask, "mean")[0] == pytest.approx(states[0, :2].mean(axis=0))
    assert pool_batch(states, mask, "cls") == pytest.approx(states[:, 0])


def build_batch_graph(rows: np.ndarray) -> bytes:
    """Like the tiny graph, for any number of texts, with a mask that it does not need."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "n"]) for n in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["b", "n", rows.shape[1]])
    nodes = [helper.make_node("Gather", ["rows", "input_ids"], ["out"])]
    graph = helper.make_graph(nodes, "tiny", inputs, [output], [numpy_helper.from_array(rows, "rows")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("can_pad", [True, False])
def test_batches_give_the_same_vectors_as_single_texts(tmp_path: Path, can_pad: bool) -> None:
    files = {"model.onnx": build_batch_graph(make_embedding_table())} if can_pad else {}
    single = load_embedder(write_model(tmp_path, files=files))
    assert isinstance(single, OnnxEmbedder)
    model = single._model
    on_gpu = LoadedModel(**{name: getattr(model, name) for name in LoadedModel.__slots__} | {"device": CUDA})
    texts = ["the cat", "a cat sleeps on the sofa", "bank", "the cat sleeps"]
    assert OnnxEmbedder(on_gpu).embed_passages(texts) == pytest.approx(single.embed_passages(texts), abs=1e-6)
