"""Models on a server, over real HTTP: batches, retries, keys, and whether it still runs the same model."""

import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny_model import write_model
from tests.support.embedding_server import ServedModel, serve_embeddings
from tests.support.wait import TIMEOUT_S
from wikiholt.errors import (
    InvalidInput,
    ModelCorrupt,
    ModelMismatch,
    ModelMissing,
    ModelSelfTestFailed,
    ModelUnavailable,
)
from wikiholt.models import RemoteOptions, embedding_server, load_embedder, remote_embedder
from wikiholt.models.embedding_server import EmbeddingServer
from wikiholt.models.remote_embedder import RemoteEmbedder, estimate_tokens
from wikiholt.models.remote_references import CANARY_TEXT, list_references, write_references
from wikiholt.testing import FakeEmbedder

MODEL = "openai:served"
WORDS = FakeEmbedder(64)


def embed(texts: Sequence[str]) -> np.ndarray:
    """Vectors that are not of unit length, as some servers return them."""
    return 3 * WORDS.embed_passages(list(texts))


@pytest.fixture
def served() -> Iterator[ServedModel]:
    with serve_embeddings(embed) as model:
        yield model


@pytest.fixture
def options(served: ServedModel, tmp_path: Path) -> RemoteOptions:
    return RemoteOptions(url=served.url, directory=tmp_path, batch=4, timeout_s=TIMEOUT_S, query_timeout_s=TIMEOUT_S)


def open_model(options: RemoteOptions, model: str = MODEL) -> RemoteEmbedder:
    embedder = load_embedder(model, remote=options)
    assert isinstance(embedder, RemoteEmbedder)
    return embedder


def test_passages_are_sent_in_batches_and_returned_in_order(served: ServedModel, options: RemoteOptions) -> None:
    embedder = open_model(options)
    served.requests.clear()
    served.rewrite = lambda rows: rows[::-1]
    texts = [f"text number {number}" for number in range(10)]
    vectors = embedder.embed_passages(texts)
    assert [len(request) for request in served.requests] == [4, 4, 4, 2], "each request also has the known text"
    assert all(request[-1] == CANARY_TEXT for request in served.requests)
    assert vectors == pytest.approx(WORDS.embed_passages(texts), abs=1e-6)
    assert embedder.embed_passages([]).shape == (0, 64)
    assert embedder.embed_query("cat") == pytest.approx(WORDS.embed_query("cat"), abs=1e-6)
    embedder.run_self_test()


def test_prefixes_are_applied_and_part_of_the_identity(served: ServedModel, options: RemoteOptions) -> None:
    plain = open_model(options)
    embedder = open_model(replace(options, query_prefix="query: ", passage_prefix="passage: "))
    served.requests.clear()
    embedder.embed_passages(["a"])
    embedder.embed_query("b")
    assert served.requests == [["passage: a", f"passage: {CANARY_TEXT}"], ["query: b", f"passage: {CANARY_TEXT}"]]
    assert embedder.fingerprint != plain.fingerprint


def test_references_are_stored_once_and_survive_a_restart(served: ServedModel, options: RemoteOptions) -> None:
    first = open_model(options)
    served.requests.clear()
    again = open_model(options)
    assert served.requests == [], "a stored model is not asked"
    assert again.fingerprint == first.fingerprint
    assert (again.dimensions, again.model, again.precision) == (64, MODEL, "remote")
    assert 0 <= again.scale.unrelated < again.scale.related
    assert [references.model for _, references in list_references(options.directory)] == ["served"]


def test_of_two_processes_the_first_stores_the_references(served: ServedModel, options: RemoteOptions) -> None:
    first = open_model(options)
    path, stored = next(iter(list_references(options.directory)))
    write_references(path, replace(stored, vectors={key: -vector for key, vector in stored.vectors.items()}))
    assert open_model(options).fingerprint == first.fingerprint
    assert list(options.directory.iterdir()) == [path]


def test_a_server_that_changed_its_model_is_an_error(served: ServedModel, options: RemoteOptions) -> None:
    embedder = open_model(options)
    embedder.run_self_test()
    served.embed = FakeEmbedder(64, max_tokens=1).embed_passages
    embedder.embed_passages(["the same model"])
    served.embed = lambda texts: np.roll(embed(texts), 1, axis=1)
    for use in (lambda: embedder.embed_passages(["a"]), lambda: embedder.embed_query("a"), embedder.run_self_test):
        with pytest.raises(ModelMismatch, match="now runs another model") as caught:
            use()
    assert f"model remove --force {MODEL}" in caught.value.hint
    served.embed = FakeEmbedder(32).embed_passages
    with pytest.raises(ModelMismatch, match="another model"):
        embedder.embed_passages(["another dimension"])
    for path, _ in list_references(options.directory):
        path.unlink()
    assert open_model(options).fingerprint != embedder.fingerprint


def test_a_model_without_meaning_fails_the_self_test(served: ServedModel, options: RemoteOptions) -> None:
    served.embed = lambda texts: np.ones((len(texts), 8))
    with pytest.raises(ModelSelfTestFailed, match="unrelated"):
        open_model(options).run_self_test()
    served.embed = lambda texts: np.zeros((len(texts), 8))
    with pytest.raises(ModelSelfTestFailed, match="zeros"):
        open_model(options, MODEL).embed_query("a")


def test_failed_requests_are_repeated_with_growing_delays(served: ServedModel) -> None:
    delays: list[float] = []
    server = EmbeddingServer(served.url, "served", lambda: "", delays.append)
    served.statuses = [503, 429, 500]
    assert server.embed(["a"], timeout_s=TIMEOUT_S, attempts=4).shape == (1, 64)
    assert len(delays) == 3
    assert delays[0] < delays[1] < delays[2]
    served.statuses = [503] * 4
    with pytest.raises(ModelUnavailable, match="status 503"):
        server.embed(["a secret page"], timeout_s=TIMEOUT_S, attempts=4)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    with pytest.raises(ModelUnavailable) as caught:
        EmbeddingServer(url, "served", lambda: "", delays.append).embed(["a"], timeout_s=TIMEOUT_S, attempts=2)
    assert "embedding.url" in caught.value.hint


def test_a_slow_server_is_not_waited_for_forever(
    served: ServedModel, options: RemoteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_embedder, "_UNAVAILABLE_TTL_S", TIMEOUT_S)
    embedder = open_model(replace(options, query_timeout_s=0.2))
    served.block = threading.Event()
    try:
        with pytest.raises(ModelUnavailable, match="does not answer"):
            embedder.embed_query("a")
        with pytest.raises(ModelUnavailable, match="did not answer"):
            embedder.embed_query("a")  # not asked again for some time
    finally:
        served.block.set()


def test_the_key_comes_from_the_environment_and_is_in_no_message(
    served: ServedModel, options: RemoteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.key = "sk-right"
    options = replace(options, key_variable="EMBEDDING_TEST_KEY")
    for key in ("", "sk-wrong"):
        monkeypatch.setenv("EMBEDDING_TEST_KEY", key)
        with pytest.raises(ModelUnavailable, match=r"401 \(invalid_api_key\)") as caught:
            open_model(options)
        assert "sk-" not in f"{caught.value}{caught.value.hint}{caught.value.__cause__}"
    monkeypatch.setenv("EMBEDDING_TEST_KEY", "sk-right")
    assert open_model(options).dimensions == 64


def test_every_invalid_reply_has_its_error(
    served: ServedModel, options: RemoteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_server, "_FIRST_RETRY_DELAY_S", 0.0)
    with pytest.raises(ModelMissing, match="model_not_found"):
        open_model(options, "openai:other")
    with pytest.raises(ModelMissing, match=r"embedding\.url"):
        open_model(replace(options, url=""))
    embedder = open_model(options)
    served.statuses = [400]
    with pytest.raises(InvalidInput, match="400") as refused:
        embedder.embed_passages(["a secret page"])
    assert "secret" not in str(refused.value), "the server's message may quote a page"
    served.statuses = [500] * 4
    with pytest.raises(InvalidInput, match="fails for a text"):
        embedder.embed_passages(["some servers fail like this for a text that is too long"])
    served.statuses = [302]
    with pytest.raises(ModelMismatch, match="302"):
        embedder.embed_passages(["a"])
    for rewrite in (
        lambda rows: rows[:1],
        lambda rows: [*rows, rows[0]],
        lambda rows: [{**rows[0], "index": 5}, *rows[1:]],
        lambda rows: [{**rows[0], "embedding": [1.0]}, *rows[1:]],
        lambda rows: [{**rows[0], "embedding": "text"}, *rows[1:]],
        lambda rows: "none",
    ):
        served.rewrite = rewrite
        with pytest.raises(ModelMismatch, match="embeddings"):
            embedder.embed_passages(["a"])
    path = next(path for path, _ in list_references(options.directory))
    path.write_text("{}")
    with pytest.raises(ModelCorrupt, match="references"):
        open_model(options)


def test_the_same_model_on_this_machine_answers_queries_while_the_server_is_away(
    served: ServedModel, options: RemoteOptions, tmp_path: Path
) -> None:
    directory = write_model(tmp_path / "tiny", window=64)
    local = load_embedder(directory)
    served.embed = local.embed_passages
    embedder = open_model(replace(options, local_model=str(directory)))
    assert embedder.get_token_spans("the cat") == local.get_token_spans("the cat")
    assert embedder.max_tokens == local.max_tokens
    assert embedder.is_known_word("cat")
    served.statuses = [503] * 100
    assert embedder.embed_query("the cat") == pytest.approx(local.embed_query("the cat"))
    served.statuses = []
    other = write_model(tmp_path / "other", window=64, pooling="cls")
    with pytest.raises(ModelMismatch, match="local_model is not the model") as caught:
        open_model(replace(options, local_model=str(other)))
    assert "query_prefix" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the cat", ["the", "cat"]),
        ("internationalization, v2", ["inte", "rnat", "iona", "liza", "tion", ",", "v2"]),
        ("東京 Ünïcode", ["東", "京", "Ünïc", "ode"]),
        ("", []),
    ],
)
def test_tokens_are_estimated_without_a_tokenizer(text: str, tokens: list[str]) -> None:
    assert [text[start:end] for start, end in estimate_tokens(text)] == tokens


def test_a_long_query_is_truncated(served: ServedModel, options: RemoteOptions) -> None:
    embedder = open_model(replace(options, max_tokens=16))
    served.requests.clear()
    embedder.embed_query("word " * 100)
    assert served.requests[-1][0].split() == ["word"] * 14
