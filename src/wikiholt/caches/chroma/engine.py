"""The Chroma engine of one process: its connection, its metrics, and a cache for each wiki."""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.caches.chroma.chroma_cache import ChromaVectorCache
from wikiholt.caches.chroma.client import (
    METRIC_DESCRIPTIONS,
    ChromaError,
    ChromaHttpClient,
    ChromaMetrics,
    ChromaUnavailable,
    build_token_headers,
    get_host_header,
)
from wikiholt.caches.chroma.collection import CollectionOwner
from wikiholt.caches.chroma.hosts import ChildProcess, ChromaHost, ChromaServerHost
from wikiholt.caches.chroma.record_layout import LAYOUTS
from wikiholt.caches.chroma.rest_api import ChromaApi
from wikiholt.caches.chroma.sync_worker import CollectionSyncWorker
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import WikiholtError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChromaConfig:
    """How to reach and use Chroma. Either `url` or `path` is set."""

    url: str = ""
    path: Path | None = None
    tenant: str = "default_tenant"
    database: str = "default_database"
    layout: str = "id"
    timeout_s: float = 2.0
    token: str = ""
    background_timeout_s: float = 30.0
    """Timeout in seconds of a background write; a child process that takes longer is killed."""
    heartbeat_timeout_s: float = 15.0
    """The same for a background read and a health check."""


class ChromaEngine:
    """Caches for all wikis of a process. `owner_file` stores the id that marks the collections of this installation."""

    name = "chroma"

    def __init__(self, config: ChromaConfig, owner_file: Path, get_wiki_ids: Callable[[], Iterable[str]]) -> None:
        self._config = config
        self._owner_file = owner_file
        self._get_wiki_ids = get_wiki_ids
        self._layout = LAYOUTS[config.layout]
        self._metrics = ChromaMetrics()
        host: ChromaHost = (
            ChromaServerHost(config.url) if config.path is None else ChildProcess(config.path, self._metrics)
        )
        self._client = ChromaHttpClient(
            host.connect,
            build_token_headers(config.token),
            "localhost" if host.is_own_child else get_host_header(config.url),
        )
        write_s, read_s = config.background_timeout_s, min(config.heartbeat_timeout_s, config.background_timeout_s)
        api = ChromaApi(self._client, config.tenant, config.database, write_s, read_s)
        self._worker = CollectionSyncWorker(
            host,
            api,
            self._metrics,
            get_wiki_ids=get_wiki_ids,
            on_connected=self._delete_orphans,
            heartbeat_timeout_s=read_s,
        )

    def open_cache(
        self,
        index: WikiIndex,
        directory: Path,
        wiki_id: str,
        slug: str,
        is_published: Callable[[], bool] = lambda: True,
    ) -> ChromaVectorCache:
        """Return the cache of one wiki. `is_published` tells whether searches still use this index."""
        owner = CollectionOwner(wiki_id, slug, self._get_installation_id(), self._layout)
        timeout_s = self._config.timeout_s
        return ChromaVectorCache(index, directory, owner, self._worker, timeout_s=timeout_s, is_published=is_published)

    def delete_wiki(self, wiki_id: str, slug: str) -> None:
        """Delete the collection of a wiki and its files. If Chroma is unavailable, that happens on reconnection."""
        name = self._layout.format_collection_name(wiki_id, slug)
        try:
            if self._worker.unavailable_reason:
                raise ChromaUnavailable(self._worker.unavailable_reason)
            self._delete_collections(wiki_id, (name, f"{name}.new"))
        except (WikiholtError, OSError) as error:
            self._worker.reset_connection()
            _LOG.warning("the collection of a removed wiki stays in Chroma until it can be reached: %s", error)

    def _delete_collections(self, wiki_id: str, names: Iterable[str]) -> None:
        api, host = self._worker.api, self._worker.host
        host.start()
        for name in names:
            collection = api.find_collection(name)
            if collection is not None and collection.metadata.get("wikiholt_wiki") == wiki_id:
                api.delete_collection(name)
        if host.is_own_child:
            api.remove_leftovers()

    def get_metrics(self) -> Mapping[str, tuple[str, int]]:
        """Return each counter with its description."""
        return {name: (METRIC_DESCRIPTIONS[name], count) for name, count in self._metrics.get_counts().items()}

    @property
    def is_up(self) -> bool:
        """Whether the last attempt to reach Chroma succeeded."""
        return self._worker.is_up

    def check(self) -> str:
        """Return a description of the problem for the operator; empty if Chroma works."""
        try:
            self._worker.host.start()
            self._worker.api.check_heartbeat(self._config.heartbeat_timeout_s)
            self._worker.api.ensure_database()
            for _ in self._worker.api.iter_collections():
                pass
        except (WikiholtError, OSError) as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Stop background work and release the child process, which exits unless other processes use it."""
        self._worker.close()
        ending = False
        if self._worker.host.is_own_child:
            try:
                ending = self._worker.api.release_child()
            except ChromaUnavailable as error:
                if error.timed_out:  # it hangs, or its operation takes long
                    self._worker.host.terminate()
            except ChromaError:
                pass
        self._client.close()
        self._worker.host.close(ending=ending)

    def _get_installation_id(self) -> str:
        """Return the id that marks the collections of this installation; empty if it cannot be saved."""
        with suppress(OSError):
            return self._owner_file.read_text("utf-8").strip()
        installation_id = secrets.token_hex(16)
        try:
            self._owner_file.parent.mkdir(parents=True, exist_ok=True)
            with self._owner_file.open("x", encoding="utf-8") as file:
                file.write(installation_id)
        except FileExistsError:
            return self._owner_file.read_text("utf-8").strip()
        except OSError as error:
            _LOG.warning("the id for collections in Chroma cannot be saved: %s", error.strerror or error)
            return ""
        return installation_id

    def _delete_orphans(self, api: ChromaApi) -> None:
        """Delete collections of this installation whose wiki was removed while Chroma was unavailable."""
        installation_id, wiki_ids = self._get_installation_id(), set(self._get_wiki_ids())
        orphans = [
            collection.name
            for collection in api.iter_collections()
            if installation_id
            and collection.metadata.get("wikiholt_owner") == installation_id
            and collection.metadata.get("wikiholt_wiki") not in wiki_ids
        ]
        for name in orphans:
            api.delete_collection(name)
        if orphans and self._worker.host.is_own_child:
            api.remove_leftovers()
