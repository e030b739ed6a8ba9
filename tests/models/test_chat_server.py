"""A language model and a reranker on a server, over real HTTP: text as it comes, keys, and replies that are wrong."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.language_model import ScriptedModel, serve_model
from tests.support.wait import TIMEOUT_S
from wikiholt.errors import ModelError, ModelMismatch, ModelMissing, ModelSelfTestFailed, ModelUnavailable
from wikiholt.models.chat_server import ChatServer
from wikiholt.models.remote_reranker import RemoteReranker

SECRET = "sk-canary"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with serve_model() as served:
        yield served


def read(model: ScriptedModel, timeout_s: float = TIMEOUT_S) -> list[str]:
    return list(ChatServer(model.url, "m", lambda: "").stream_text([{"role": "user", "content": "hi"}], timeout_s))


def test_parts_arrive_before_the_reply_has_ended_and_the_key_is_sent(model: ScriptedModel) -> None:
    model.parts, model.key, model.gate = ["One ", "two."], SECRET, threading.Event()
    stream = ChatServer(model.url, "m", lambda: SECRET).stream_text([{"role": "user", "content": "hi"}], TIMEOUT_S)
    assert next(stream) == "One "
    model.gate.set()
    assert list(stream) == ["two."]
    assert model.requests[0]["model"] == "m"
    assert model.requests[0]["stream"] is True


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (401, ModelUnavailable, "401"),
        (404, ModelMissing, "404"),
        (302, ModelMismatch, "redirects"),
        (400, ModelMismatch, "400"),
        (503, ModelMismatch, "503"),
    ],
)
def test_a_refusal_says_what_to_set(model: ScriptedModel, status: int, error: type[ModelError], message: str) -> None:
    model.status = status
    with pytest.raises(error) as caught:
        read(model)
    assert message in f"{caught.value} {caught.value.hint}"
    assert "ask." in caught.value.hint
    assert len(model.requests) == 1, "a redirect is not followed"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"<html>no stream</html>", ModelMismatch),
        (b"data: {broken\n\n", ModelMismatch),
        (b'data: {"choices": "x"}\n\n', ModelMismatch),
        (b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', ModelMismatch),
        (b"data: " + b"[" * 100_000 + b"\n\n", ModelMismatch),
        (b"x" * (2 << 20), ModelMismatch),
        (b'data: {"error": {"message": "secret"}}\n\n', ModelUnavailable),
        (b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}\n\n', ModelUnavailable),
    ],
)
def test_a_reply_that_is_no_stream_of_text_is_an_error(
    model: ScriptedModel, raw: bytes, error: type[ModelError]
) -> None:
    model.raw = raw
    with pytest.raises(error) as caught:
        read(model)
    assert "secret" not in f"{caught.value}{caught.value.hint}"


def test_an_empty_error_and_half_a_character_are_read(model: ScriptedModel) -> None:
    model.raw = b'data: {"error": null, "choices": [{"delta": {"content": "a\\ud800"}}]}\n\ndata: [DONE]\n\n'
    assert read(model) == ["a?"]


def test_a_reply_that_ends_too_early_or_never_is_an_error_after_what_was_read(model: ScriptedModel) -> None:
    model.parts, model.cuts_off = ["One."], True
    stream = ChatServer(model.url, "m", lambda: "").stream_text([], TIMEOUT_S)
    assert next(stream) == "One."
    with pytest.raises(ModelUnavailable, match="too early"):
        next(stream)
    model.parts, model.gate = ["One.", "Two."], threading.Event()
    stream = ChatServer(model.url, "m", lambda: "").stream_text([], 0.3)
    assert next(stream) == "One."
    with pytest.raises(ModelUnavailable, match="TimeoutError"):
        next(stream)
    model.gate.set()


def test_a_server_that_is_down_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ModelUnavailable, match=f"127.0.0.1:{port}"):
        list(ChatServer(f"http://127.0.0.1:{port}/v1", "m", lambda: "").stream_text([], TIMEOUT_S))


def test_the_self_test_wants_a_text(model: ScriptedModel) -> None:
    server = ChatServer(model.url, "m", lambda: "")
    with pytest.raises(ModelUnavailable, match="nothing"):
        server.run_self_test()
    model.parts = ["OK"]
    server.run_self_test()


# Rerankers.


def test_probabilities_and_logits_are_scores(model: ScriptedModel) -> None:
    reranker = RemoteReranker(model.url, "m", lambda: "")
    model.scores = [0.5, 0.99]
    low, high = reranker.score("q", ["a", "b"], TIMEOUT_S) or ()
    assert low == pytest.approx(0.0)
    assert high > 4
    assert model.requests[-1] == {
        "model": "m",
        "query": "q",
        "documents": ["a", "b"],
        "top_n": 2,
        "return_documents": False,
    }
    model.scores = [-3.5, 7.25]
    assert reranker.score("q", ["a", "b"], TIMEOUT_S) == [-3.5, 7.25]
    with pytest.raises(ModelSelfTestFailed, match="unrelated"):
        reranker.run_self_test()
    model.scores = [0.9, 0.1]
    reranker.run_self_test()


def test_scores_that_are_missing_or_refused_are_errors(model: ScriptedModel) -> None:
    reranker = RemoteReranker(model.url, "m", lambda: "")
    for scores in (None, [0.5], [0.5, float("nan")]):
        model.scores = scores
        with pytest.raises(ModelMismatch):
            reranker.score("q", ["a", "b"], TIMEOUT_S)
    model.status = 404
    with pytest.raises(ModelMissing) as caught:
        reranker.score("q", ["a", "b"], TIMEOUT_S)
    assert "rerank.url" in caught.value.hint


def test_scores_and_places_that_are_too_large_are_bounded_or_refused(model: ScriptedModel) -> None:
    reranker = RemoteReranker(model.url, "m", lambda: "")
    model.scores = [-1e308, 1e308]
    assert reranker.score("q", ["a", "b"], TIMEOUT_S) == [-1000, 1000]
    model.raw = b'{"results": [{"index": 1e999, "relevance_score": 1}]}'
    with pytest.raises(ModelMismatch):
        reranker.score("q", ["a"], TIMEOUT_S)
