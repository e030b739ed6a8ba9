"""`model fetch` from a real HTTP server, with small real ONNX models: what is applied, and what is refused."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny_model import DIMENSIONS, build_onnx_graph, build_tokenizer, make_embedding_table
from tests.support.hub_server import HubState, run_hub
from wikiholt.errors import InvalidInput, ModelCorrupt, ModelError, ModelMissing, ModelRefused, ModelUnavailable
from wikiholt.models import load_embedder
from wikiholt.models.model_fetch import fetch_model
from wikiholt.models.model_files import find_fetched_model, list_fetched_models, remove_fetched_model
from wikiholt.models.repository_config import FetchOptions

NAME = "acme/tiny"
MODEL = f"hf:{NAME}"


@pytest.fixture(scope="module")
def server() -> Iterator[HubState]:
    with run_hub() as state:
        yield state


@pytest.fixture
def hub(server: HubState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HubState:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for variable in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    server.repositories = {NAME: make_repository()}
    server.token, server.status, server.damaged = "", 0, set()
    server.downloads.clear()
    return server


def make_repository(**changes: object) -> dict[str, bytes]:
    """A repository of sentence-transformers; a change replaces a file, and None removes it."""
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    modules += [{"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
    files: dict[str, object] = {
        "config.json": {"architectures": ["BertModel"], "hidden_size": DIMENSIONS},
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": DIMENSIONS, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "the ", "document": ""}},
        "tokenizer.json": build_tokenizer(),
        "tokenizer_config.json": {},
        "onnx/model.onnx": build_onnx_graph(make_embedding_table()),
        "pytorch_model.bin": b"a pickle",
        "modeling.py": b"raise SystemExit",
    }
    files |= {name.replace("__", "/"): value for name, value in changes.items()}
    return {
        name: value if isinstance(value, bytes) else json.dumps(value).encode()
        for name, value in files.items()
        if value is not None
    }


def write_safetensors(**tensors: np.ndarray) -> bytes:
    header, body = {}, b""
    for name, value in tensors.items():
        data = value.astype(np.float32).tobytes()
        header[name.replace("_", ".")] = {
            "dtype": "F32",
            "shape": value.shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def fetch(tmp_path: Path, model: str = MODEL, **options: str) -> Path:
    return fetch_model(model, tmp_path / "models", FetchOptions(**options)).directory


def test_a_model_is_fetched_at_a_commit_with_the_settings_of_its_repository(hub: HubState, tmp_path: Path) -> None:
    model = fetch_model(MODEL, tmp_path / "models", FetchOptions())
    commit = hub.get_commit(NAME)
    assert model.card is not None
    assert model.name == f"{MODEL}@{commit[:12]}"
    assert (model.card.pooling, model.card.window, model.card.licence) == ("mean", 64, "mit")
    assert (model.card.query_prefix, model.card.passage_prefix) == ("the ", "")
    assert commit in (model.directory / "card.toml").read_text()
    embedder = load_embedder(model.directory)
    embedder.run_self_test()
    expected = make_embedding_table()[[1, 3, 4, 2]].mean(axis=0)
    assert embedder.embed_query("cat") == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
    assert {"pytorch_model.bin", "modeling.py"}.isdisjoint(hub.downloads), "code and pickles are not downloaded"
    assert not [path for path in (tmp_path / "models").iterdir() if path.name.startswith(".")]


def test_a_fetched_model_is_found_by_name_and_not_fetched_twice(hub: HubState, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    hub.downloads.clear()
    commit = hub.get_commit(NAME)
    assert fetch(tmp_path, f"{MODEL}@{commit}") == first
    assert hub.downloads == []
    models = tmp_path / "models"
    assert find_fetched_model(MODEL, models).directory == first
    assert find_fetched_model(f"{MODEL}@{commit}", models).directory == first
    hub.repositories[NAME]["config.json"] += b" "
    second = fetch(tmp_path)
    assert second != first
    with pytest.raises(ModelMissing, match="Several commits"):
        find_fetched_model(MODEL, models)
    remove_fetched_model(first)
    assert [model.directory for model in list_fetched_models(models)] == [second]
    with pytest.raises(ModelMissing, match="not fetched") as caught:
        find_fetched_model("hf:acme/other", models)
    assert "wikiholt model fetch hf:acme/other" in caught.value.hint


def test_a_dense_layer_is_applied(hub: HubState, tmp_path: Path) -> None:
    weight = np.vstack([np.eye(DIMENSIONS), np.full((1, DIMENSIONS), 0.1)])
    modules = json.loads(make_repository()["modules.json"])
    modules.insert(2, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    config = {"in_features": DIMENSIONS, "out_features": DIMENSIONS + 1, "bias": True}
    config["activation_function"] = "torch.nn.modules.activation.Tanh"
    layers = {
        "modules.json": modules,
        "2_Dense/config.json": config,
        "2_Dense/model.safetensors": write_safetensors(linear_weight=weight, linear_bias=np.full(DIMENSIONS + 1, 0.01)),
    }
    hub.repositories[NAME] = make_repository(**layers)
    embedder = load_embedder(fetch(tmp_path))
    pooled = make_embedding_table()[[1, 3, 4, 2]].mean(axis=0)
    expected = np.tanh(weight @ pooled + 0.01)
    assert embedder.dimensions == DIMENSIONS + 1
    assert embedder.embed_passages(["the cat"])[0] == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": {"auto_map": {"AutoModel": "modeling.X"}}}, "auto_map"),
        ({"tokenizer_config.json": {"auto_map": {}}}, "auto_map"),
        ({"modules.json": [{"path": "", "type": "custom_st.Transformer"}]}, "custom_st"),
        ({"modules.json": [{"path": "", "type": "sentence_transformers.models.Transformer"}]}, "no pooling"),
        ({"modules.json": None}, "pooling is not known"),
        ({"config.json": {"architectures": ["BertForSequenceClassification"]}}, "reranker"),
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "not mean or cls"),
        (
            {"1_Pooling/config.json": {"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}},
            "not mean or cls",
        ),
        ({"1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}}, "include_prompt"),
        ({"sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": True}}, "lowers the case"),
        ({"sentence_bert_config.json": None}, "how many tokens"),
        ({"config_sentence_transformers.json": {"prompts": {"STS": "compare: "}}}, "none for queries"),
        ({"config_sentence_transformers.json": {"similarity_fn_name": "euclidean"}}, "euclidean"),
        ({"onnx/model.onnx": None}, "no ONNX graph"),
        ({"tokenizer.json": None}, "no tokenizer.json"),
        ({"modules.json": b"{"}, "not JSON"),
    ],
)
def test_what_cannot_be_applied_is_refused(
    hub: HubState, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    hub.repositories[NAME] = make_repository(**changes)
    with pytest.raises(ModelRefused, match=message) as caught:
        fetch(tmp_path)
    assert caught.value.hint
    assert list((tmp_path / "models").iterdir()) == []


def test_a_dense_layer_as_a_pickle_is_refused(hub: HubState, tmp_path: Path) -> None:
    modules = json.loads(make_repository()["modules.json"])
    modules.append({"path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    hub.repositories[NAME] = make_repository(**{"modules.json": modules, "3_Dense/pytorch_model.bin": b"pickle"})
    with pytest.raises(ModelRefused, match="pickle"):
        fetch(tmp_path)


def test_the_user_says_what_the_repository_does_not(hub: HubState, tmp_path: Path) -> None:
    repository = make_repository(**{"modules.json": None, "config_sentence_transformers.json": None})
    repository["onnx/model_quantized.onnx"] = repository.pop("onnx/model.onnx")
    hub.repositories[NAME] = repository
    with pytest.raises(ModelRefused, match=r"onnx/model\.onnx") as caught:
        fetch(tmp_path, pooling="cls")
    assert "--graph: onnx/model_quantized.onnx" in caught.value.hint
    model = fetch_model(
        MODEL,
        tmp_path / "models",
        FetchOptions(pooling="mean", query_prefix="q ", passage_prefix="p ", graph="onnx/model_quantized.onnx"),
    )
    assert model.card is not None
    assert (model.card.pooling, model.card.query_prefix, model.card.passage_prefix) == ("mean", "q ", "p ")
    assert model.card.precision == "int8"


@pytest.mark.parametrize("file", ["onnx/model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_an_error_and_leaves_nothing(hub: HubState, tmp_path: Path, file: str) -> None:
    hub.damaged.add(file)
    with pytest.raises(ModelError) as caught:
        fetch(tmp_path)
    assert isinstance(caught.value, ModelCorrupt | ModelUnavailable)
    assert list((tmp_path / "models").iterdir()) == []


def test_what_a_crash_left_behind_is_not_a_model(hub: HubState, tmp_path: Path) -> None:
    models = tmp_path / "models"
    old, young = models / ".fetch-old", models / ".fetch-young"
    partial = models / f"hf--acme--tiny--{hub.get_commit(NAME)[:12]}"
    for directory in (old, young, partial):
        (directory / "model").mkdir(parents=True)
    os.utime(old, (0, 0))
    assert list(list_fetched_models(models)) == []
    assert fetch(tmp_path) == partial
    assert load_embedder(partial).dimensions == DIMENSIONS
    assert sorted(models.iterdir()) == [young, partial], "another process may work in a young one"


def test_errors_of_the_hub_say_what_to_do(hub: HubState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput):
        fetch(tmp_path, "hf:no-owner")
    with pytest.raises(ModelMissing, match="hf:acme/none"):
        fetch(tmp_path, "hf:acme/none")
    with pytest.raises(ModelMissing, match="nowhere"):
        fetch(tmp_path, f"{MODEL}@nowhere")
    hub.token = "hf_secret"
    with pytest.raises(ModelMissing) as caught:
        fetch(tmp_path)
    assert "HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert fetch(tmp_path).is_dir()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable) as caught:
        fetch(tmp_path)
    assert "HF_ENDPOINT" in caught.value.hint
    assert "hf_secret" not in f"{caught.value}{caught.value.hint}"


def test_offline_the_cache_of_the_hub_is_used(hub: HubState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, hf_hub_download

    cache = tmp_path / "cache"
    for name in hub.repositories[NAME]:
        hf_hub_download(NAME, name, cache_dir=cache, endpoint=hub.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(cache), raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert load_embedder(fetch(tmp_path)).dimensions == DIMENSIONS
    with pytest.raises(ModelMissing, match="HF_HUB_OFFLINE"):
        fetch(tmp_path, "hf:acme/none")
