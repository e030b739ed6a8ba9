"""Answers searches of commands on this machine while `serve` runs; see `local_client`."""

import json
import os
import socket
import socketserver
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from wikiholt.app.bootstrap import Application
from wikiholt.domain.search import SearchInterface, SearchResult
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.cli.folder_scope import is_home_or_above
from wikiholt.interfaces.cli.local_client import (
    MAX_LINE_BYTES,
    SOCKET_NAME,
    SearchQuestion,
    decode,
    encode_line,
    encode_wiki,
    fingerprint_settings,
)
from wikiholt.interfaces.cli.selection import find_wikis_of_folder
from wikiholt.interfaces.cli.serve_command import open_local_listener
from wikiholt.interfaces.schemas.search_schemas import build_result_document
from wikiholt.wikis.multi_search import search_wikis

_READ_TIMEOUT_S = 5.0
_PEER_CREDENTIALS = struct.Struct("3i")
_DECLINED = {"declined": True}


@contextmanager
def serve_local_searches(application: Application, listener: socket.socket | None = None) -> Iterator[None]:
    """Answer searches at the socket in the data directory, or at this one. Without a socket, commands search by
    themselves."""
    with ExitStack() as stack:
        if listener is None:
            listener = stack.enter_context(open_local_listener(application.settings.data / SOCKET_NAME))
        if listener is None:
            yield
            return
        server = _SearchServer(listener, application)
        Thread(target=server.serve_forever, name="local-search", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


class _SearchServer(socketserver.ThreadingUnixStreamServer):
    """Answers at a socket that listens already and that the caller closes."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, application: Application) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.application = application


class _Handler(socketserver.StreamRequestHandler):
    """Answers one question."""

    timeout = _READ_TIMEOUT_S

    def handle(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):  # a client that goes away or sends something else
            if get_peer_user(self.request) != os.geteuid():
                return
            assert isinstance(self.server, _SearchServer)
            question = json.loads(self.rfile.readline(MAX_LINE_BYTES))
            answer = _answer(self.server.application, question)
            self.wfile.write(encode_line(answer))


def get_peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    user: int = _PEER_CREDENTIALS.unpack(credentials)[1]
    return user


def _answer(application: Application, question: Mapping[str, Any]) -> Mapping[str, Any]:
    if question["settings"] != fingerprint_settings(application.settings):
        return _DECLINED
    search: SearchQuestion = decode(SearchQuestion, question["search"])
    wikis = _find_wikis(application, search)
    if not wikis:
        return _DECLINED
    try:
        result = _run(application, search, wikis)
    except WikiholtError as error:
        return {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}}
    document = build_result_document(result) if search.as_json else None
    return {"result": result, "document": document, "wikis": [encode_wiki(wiki) for wiki in wikis]}


def _find_wikis(application: Application, search: SearchQuestion) -> list[Wiki]:
    """The wikis of a search; empty if the command has something to do first: register, index, or report an error."""
    known = {wiki.slug: wiki for wiki in application.service.list_wikis()}
    if search.wikis:
        wikis = [known[slug] for slug in dict.fromkeys(search.wikis) if slug in known]
        complete = len(wikis) == len(set(search.wikis))
    else:
        folder = Path(search.folder)
        complete = not (len(search.words) > 1 and search.words[0] in known)
        wikis = find_wikis_of_folder(list(known.values()), folder)
        if not wikis and is_home_or_above(folder):
            return list(known.values()) if complete else []
    is_indexed = all(application.service.has_index(wiki.id) for wiki in wikis)
    return wikis if complete and is_indexed else []


def _run(application: Application, search: SearchQuestion, wikis: list[Wiki]) -> SearchResult:
    handles = [application.service.get_handle(wiki.slug) for wiki in wikis]
    for wiki in wikis:
        application.scheduler.touch(wiki.id)
        if not search.no_sync:
            application.scheduler.wait_until_fresh(wiki.id, application.settings.search_fresh_timeout)
    if len(handles) == 1:
        return handles[0].search(search.request, interface=SearchInterface.CLI)
    return search_wikis(handles, search.request, interface=SearchInterface.CLI)
