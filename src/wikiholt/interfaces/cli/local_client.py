"""A search as it was typed, and asking a running `serve` of the same data directory for its result.

The service has the model in memory, so this takes less time. Question and answer are one line of JSON each, over a Unix
socket that only the owner of the data directory can open.
"""

import json
import socket
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from wikiholt import __version__
from wikiholt.domain.search import SearchMode, SortOrder, Span
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.schemas.filter_params import build_filter
from wikiholt.search.request import SearchRequest

if TYPE_CHECKING:
    from wikiholt.app.settings.definitions import Settings

SOCKET_NAME = "search.sock"
MAX_LINE_BYTES = 64 * 1024 * 1024
_CONNECT_TIMEOUT_S = 0.5
_ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A search, and what the service needs to find its wikis."""

    request: SearchRequest
    words: list[str]
    wikis: list[str]
    folder: str
    no_sync: bool
    as_json: bool
    """Whether the answer is printed as JSON, so that a document is enough."""

    @classmethod
    def from_arguments(cls, arguments: Namespace, *, as_json: bool) -> "SearchQuestion":
        """The question of `wikiholt search`. Raises InvalidQuery."""
        request = SearchRequest(
            " ".join(arguments.words),
            arguments.n,
            SearchMode(arguments.mode),
            build_filter(lambda param: getattr(arguments, param.option[2:].replace("-", "_"))),
            rerank=arguments.rerank,
            offset=arguments.offset,
            sort=SortOrder(arguments.sort),
            facets=tuple(arguments.facets),
        )
        return cls(request, arguments.words, arguments.wiki, str(Path.cwd().resolve()), arguments.no_sync, as_json)


class ServiceError(WikiholtError):
    """An error that the service reported for a search."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]


def fingerprint_settings(settings: "Settings") -> str:
    """Identifies the settings on which a search depends. A service with other settings does not answer."""
    values = {item.name: str(getattr(settings, item.name)) for item in fields(settings)}
    relevant = {name: value for name, value in values.items() if not name.startswith(("serve_", "log_"))}
    return sha256(json.dumps([__version__, relevant]).encode()).hexdigest()


def ask_service(settings: "Settings", question: SearchQuestion) -> Mapping[str, Any] | None:
    """The answer of the running service to this question; None if there is none, or if it declines.

    Raises ServiceError if the search failed.
    """
    path = settings.data / SOCKET_NAME
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
        connection.settimeout(_ANSWER_TIMEOUT_S)
        connection.sendall(encode_line({"search": question, "settings": fingerprint_settings(settings)}))
        with connection.makefile("rb") as stream:
            answer: Mapping[str, Any] = json.loads(stream.readline(MAX_LINE_BYTES))
        if "error" in answer:
            raise ServiceError(**answer["error"])
        return answer if "declined" not in answer else None
    return None


def is_socket_usable(path: Path) -> bool:
    """Whether something answers at this socket."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
        return True
    return False


# Messages as JSON. The fields of the dataclasses are the format, because both ends have the same version.


def encode_line(message: Mapping[str, Any]) -> bytes:
    """The message as one line. It may contain dataclasses and dates."""
    return json.dumps(message, default=_to_json).encode() + b"\n"


def _to_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else asdict(value)


def encode_wiki(wiki: Wiki) -> dict[str, Any]:
    """What the client needs to name the files of a wiki. Not its other settings, which may be secret."""
    settings = {name: wiki.settings[name] for name in ("subdirectory", "kind") if name in wiki.settings}
    return {"slug": wiki.slug, "source": wiki.source, "settings": settings}


def decode_wiki(document: Mapping[str, Any]) -> Wiki:
    return Wiki("", document["slug"], document["source"], datetime.min, document["settings"])  # noqa: DTZ901 - not used


_get_field_types = cache(get_type_hints)


def decode(kind: Any, value: Any) -> Any:
    """The value of this type that `encode_line` encoded."""
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is tuple:
        return tuple(decode(get_args(kind)[0], item) for item in value)
    if kind is Span:
        return Span(*value)
    if is_dataclass(kind):
        assert isinstance(kind, type)
        types = _get_field_types(kind)
        return kind(**{name: decode(types[name], item) for name, item in value.items()})
    if kind is datetime:
        return datetime.fromisoformat(value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value
