"""HTTP client for servers with an OpenAI-compatible `/chat/completions`, whose replies are read as they come."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from wikiholt.errors import ModelError, ModelMismatch
from wikiholt.models.model_server import TRANSPORT_ERRORS, ModelServer, describe_failure

_TEST_TIMEOUT_S = 60.0
_MAX_LINE_BYTES = 1 << 20
_MAX_ERROR_BYTES = 1 << 16
_HINT = "ask.url must be the address before /chat/completions of an OpenAI-compatible server, such as …/v1"
Message = dict[str, str]


class ChatServer(ModelServer):
    """One language model of one server. Safe to use from many threads."""

    kind = "language model server"
    prefix = "ask"
    endpoint = "/chat/completions"
    max_reply_bytes = 1 << 23

    def stream_text(self, messages: Sequence[Message], timeout_s: float) -> Generator[str]:
        """The parts of the reply as they arrive.

        Raises ModelError, also after some parts: ModelUnavailable if the server does not answer or ends too early,
        ModelMismatch for a reply that is no stream of text.
        """
        document = {"messages": list(messages), "stream": True, "temperature": 0}
        try:
            with self.open_stream(document, timeout_s) as (status, parts):
                if status // 100 != 2:
                    raise self.make_status_error(status, _read_start(parts))
                has_ended = False
                for event in _iter_events(parts):
                    if event == "[DONE]":
                        return
                    text, is_last = self._parse(event)
                    has_ended = has_ended or is_last
                    if text:
                        yield text
        except TRANSPORT_ERRORS as error:
            raise self.make_silence_error(describe_failure(error)) from error
        if not has_ended:
            raise self.make_silence_error("the reply ended too early")

    def run_self_test(self) -> None:
        """Raise ModelError unless the model writes something."""
        with closing(self.stream_text([{"role": "user", "content": "Say OK."}], _TEST_TIMEOUT_S)) as parts:
            if next(parts, None) is None:
                raise self.make_silence_error("it writes nothing")

    def _parse(self, event: str) -> tuple[str, bool]:
        """The text of an event, and whether it is the last one."""
        try:
            document: Any = json.loads(event)
            if document.get("error"):
                raise self.make_silence_error("it reports an error")
            if not document["choices"]:  # usage
                return "", False
            choice = document["choices"][0]
            text, reason = (choice.get("delta") or {}).get("content"), choice.get("finish_reason")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise self._make_format_error() from error
        if not isinstance(text, str | None):
            raise self._make_format_error()
        if reason == "length":
            raise self.make_silence_error("the reply was cut at its maximum length", "let the server write more tokens")
        return (text or "").encode("utf-8", "replace").decode(), bool(reason)  # JSON may have half a character

    def _make_format_error(self) -> ModelError:
        return ModelMismatch(f"The reply of {self.address} is not a stream of text", hint=_HINT)


def _iter_events(parts: Iterator[bytes]) -> Iterator[str]:
    """The data of server-sent events. Raises ModelMismatch for another kind of text."""
    rest, has_event = b"", False
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            break
        for line in lines:
            if line.startswith(b"data:"):
                has_event = True
                yield line.removeprefix(b"data:").strip().decode("utf-8", "replace")
    if not has_event:
        raise ModelMismatch("The language model server does not send a stream of events", hint=_HINT)


def _read_start(parts: Iterator[bytes]) -> bytes:
    body = b""
    for part in parts:
        body += part
        if len(body) > _MAX_ERROR_BYTES:
            break
    return body
