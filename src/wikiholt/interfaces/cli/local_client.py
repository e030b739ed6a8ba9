"""Asks a running `serve` of the same data directory for a search, over HTTP on its Unix socket.

The service has the model in memory, so this takes less time. Whatever it does not answer, the command does by itself.
"""

import json
import socket
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from wikiholt.api.filter_params import FILTER_PARAMS
from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Wiki
from wikiholt.interfaces.cli.folder_scope import is_home_or_above
from wikiholt.interfaces.cli.selection import find_wikis_of_folder
from wikiholt.interfaces.http.local_owner import INTERFACE_HEADER, SETTINGS_HEADER, SOCKET_NAME, fingerprint_settings

if TYPE_CHECKING:
    from wikiholt.api.documents.search_documents import SearchResultDocument
    from wikiholt.api.settings.definitions import Settings

_MAX_REPLY_BYTES = 64 * 1024 * 1024
_CONNECT_TIMEOUT_S = 0.5
_REPLY_TIMEOUT_S = 60.0


class LocalService:
    """The service that answers at the socket in the data directory."""

    def __init__(self, settings: "Settings", interface: SearchInterface = SearchInterface.CLI) -> None:
        self._path = settings.data / SOCKET_NAME
        self._headers = f"{SETTINGS_HEADER}: {fingerprint_settings(settings)}\r\n{INTERFACE_HEADER}: {interface}"

    def get(self, path: str, params: Sequence[tuple[str, object]] = (), slug: str = "") -> Any:
        """The JSON document at this path of the HTTP API, or of that of one wiki; None if there is no service, or if it
        does not answer so."""
        target = f"{f'/w/{slug}' if slug else ''}/api/v1/{path}?{urlencode(params)}"
        # Importing a client takes longer than the request.
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{self._headers}\r\n\r\n"
        with suppress(OSError, ValueError), connect(self._path) as connection:
            connection.settimeout(_REPLY_TIMEOUT_S)
            connection.sendall(request.encode("ascii"))
            with connection.makefile("rb") as stream:
                head, _, body = stream.read(_MAX_REPLY_BYTES).partition(b"\r\n\r\n")
            return json.loads(body) if head.startswith(b"HTTP/1.1 200 ") else None
        return None


def connect(path: Path) -> socket.socket:
    """A connection to this Unix socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def search_in_service(
    settings: "Settings", arguments: Namespace, path: str = "search"
) -> "tuple[SearchResultDocument, list[Wiki]] | None":
    """The result document of a search, and the wikis that were searched; only one with another path.

    None without a service, or if the command has something to do first: register, index, or report an error.
    """
    service = LocalService(settings)
    listed = service.get("wikis", [("limit", 10_000)])
    wikis = _find_wikis(list(map(_parse_wiki, listed["wikis"])), arguments) if listed else []
    if not wikis:
        return None
    params = _build_params(arguments)
    if path != "search":
        document = service.get(path, [*params, ("at", arguments.at)], wikis[0].slug) if len(wikis) == 1 else None
        return (document, wikis) if document is not None else None
    document = service.get(path, [*params, *(("wiki", wiki.slug) for wiki in wikis)])
    is_complete = document is not None and len(document["wikis"] or wikis) == len(wikis)
    return (document, wikis) if is_complete else None


def _find_wikis(wikis: list[Wiki], arguments: Namespace) -> list[Wiki]:
    """The wikis of a search; empty if the service cannot know them."""
    known = {wiki.slug: wiki for wiki in wikis}
    if arguments.wiki:
        slugs = dict.fromkeys(arguments.wiki)
        return [known[slug] for slug in slugs] if known.keys() >= slugs.keys() else []
    if len(arguments.words) > 1 and arguments.words[0] in known:
        return []
    folder = Path.cwd().resolve()
    return find_wikis_of_folder(wikis, folder) or (wikis if is_home_or_above(folder) else [])


def _build_params(arguments: Namespace) -> list[tuple[str, object]]:
    """The query parameters of the HTTP API for these arguments of `search`."""
    names = ("n", "mode", "sort", "offset")
    params: list[tuple[str, object]] = [("q", " ".join(arguments.words)), *((n, getattr(arguments, n)) for n in names)]
    for param in FILTER_PARAMS:
        value = getattr(arguments, param.option[2:].replace("-", "_"))
        params += [(param.name, item) for item in (value if param.is_list else [value]) if item is not None]
    params += [("facets", name) for name in arguments.facets]
    flags = {
        "rerank": arguments.rerank,
        "fresh": not arguments.no_sync,
        "explain": arguments.explain or None,
        "collapse": arguments.collapse,
    }
    return params + [(name, str(flag).lower()) for name, flag in flags.items() if flag is not None]


def _parse_wiki(document: Mapping[str, Any]) -> Wiki:
    created_at = datetime.fromisoformat(document["created_at"])
    return Wiki("", document["slug"], document["source"], created_at, document["settings"])
