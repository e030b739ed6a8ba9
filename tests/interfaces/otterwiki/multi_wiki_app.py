"""One Otterwiki that serves several wikis: the host name of a request selects the storage.

STORAGE_KIND selects how. `swap` sets the attributes of Otterwiki's modules (one thread per process). `proxy` replaces
them once with a proxy to the storage of the request (any number of threads). `resolver` does the same and lets
Wikiholt call `resolve`.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import otterwiki.server
import otterwiki.wiki
from otterwiki.gitstorage import GitStorage
from werkzeug.local import LocalProxy

_WIKIS = Path(os.environ["WIKIS_DIRECTORY"])
_SWAPS_STORAGE = os.environ["STORAGE_KIND"] == "swap"
_current_storage: ContextVar[GitStorage] = ContextVar("current_storage")
_storages: dict[str, GitStorage] = {}


def _use_storage(storage: Any) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("otterwiki.") and hasattr(module, "storage"):
            module.storage = storage


def _find_repository(host: str) -> Path:
    return _WIKIS / host.partition(".")[0] / "repo"


def resolve(request: Any) -> tuple[str, str] | None:
    path = _find_repository(request.host)
    return (f"the-{path.parent.name}", str(path)) if path.is_dir() else None


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    path = _find_repository(environ.get("HTTP_HOST", ""))
    if path.is_dir():
        storage = _storages.get(str(path)) or _storages.setdefault(str(path), GitStorage(str(path)))
        _current_storage.set(storage)
        otterwiki.server.app.config["REPOSITORY"] = str(path)
        if _SWAPS_STORAGE:
            _use_storage(storage)
    answer: Iterable[bytes] = otterwiki.server.app(environ, start_response)
    return answer


_default_storage = otterwiki.server.storage
if not _SWAPS_STORAGE:
    _use_storage(LocalProxy(lambda: _current_storage.get(_default_storage)))
