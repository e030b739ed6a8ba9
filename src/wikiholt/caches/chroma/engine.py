"""Chroma, as one process of Wikiholt has it: where it is, what it counts, and a cache for each wiki."""

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
    """Where Chroma is and how it is to be used. Either `url` or `path` is given."""

    url: str = ""
    path: Path | None = None
    tenant: str = "default_tenant"
    database: str = "default_database"
    layout: str = "id"
    timeout: float = 2.0
    token: str = ""
    background_timeout: float = 30.0
    """Seconds that work in the background waits for one answer; a child of ours that takes longer is ended."""
    heartbeat: float = 15.0


class ChromaEngine:
    """Caches for all wikis of a process. `known` gives their ids; `mine` is a file that says whose collections are."""

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
        tokens = {"X-Chroma-Token": config.token, "Authorization": f"Bearer {config.token}"} if config.token else {}
        self._client = ChromaHttpClient(
            host.connect, tokens, "localhost" if host.is_own_child else get_host(config.url)
        )
        api = ChromaApi(self._client, config.tenant, config.database, config.background_timeout)
        self._worker = CollectionSyncWorker(
            host,
            api,
            self._metrics,
            get_wiki_ids=get_wiki_ids,
            on_connected=self._delete_orphans,
            heartbeat=min(config.heartbeat, config.background_timeout),
        )

    def open_cache(
        self,
        index: WikiIndex,
        directory: Path,
        wiki_id: str,
        slug: str,
        is_published: Callable[[], bool] = lambda: True,
    ) -> ChromaVectorCache:
        """The cache of one wiki; `published` says whether this index is still the one it is searched by."""
        whose = CollectionOwner(wiki_id, slug, self._get_installation_id(), self._layout)
        timeout = self._config.timeout
        return ChromaVectorCache(index, directory, whose, self._worker, timeout=timeout, is_published=is_published)

    def delete_wiki(self, wiki_id: str, slug: str) -> None:
        """Remove a wiki's collection and what it left on the disk; what is away now goes when it is back."""
        name = self._layout.format_collection_name(wiki_id, slug)
        try:
            if self._worker.unavailable_reason:
                raise ChromaUnavailable(self._worker.unavailable_reason)
            self._delete_collections(wiki_id, (name, f"{name}.new"))
        except (WikiholtError, OSError) as error:
            self._worker.reset_connection()
            _LOG.warning("a removed wiki's collection is still in Chroma, until it can be reached: %s", error)

    def _delete_collections(self, wiki_id: str, names: Iterable[str]) -> None:
        api, host = self._worker.api, self._worker.host
        host.start()
        for name in names:
            found = api.find_collection(name)
            if found is not None and found.metadata.get("wikiholt_wiki") == wiki_id:
                api.delete_collection(name)
        if host.is_own_child:
            api.remove_leftovers()

    def get_metrics(self) -> Mapping[str, tuple[str, int]]:
        """Each counter with what it counts."""
        return {name: (METRIC_DESCRIPTIONS[name], count) for name, count in self._metrics.get_counts().items()}

    @property
    def is_up(self) -> bool:
        """Whether Chroma answered when it was last needed."""
        return self._worker.is_up

    def check(self) -> str:
        """What is wrong with it, in words; empty when it answers as it should. For the operator."""
        try:
            self._worker.host.start()
            self._worker.api.check_heartbeat(self._config.heartbeat)
            self._worker.api.ensure_database()
            for _ in self._worker.api.iter_collections():
                pass
        except (WikiholtError, OSError) as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Stop work in the background and let the child go, which ends unless others use it."""
        self._worker.close()
        ending = False
        if self._worker.host.is_own_child:
            with suppress(ChromaUnavailable, ChromaError):
                ending = self._worker.api.release_child()
        self._client.close()
        self._worker.host.close(ending=ending)

    def _get_installation_id(self) -> str:
        """By which collections of this installation are known; made when it is first asked for."""
        with suppress(OSError):
            return self._owner_file.read_text("utf-8").strip()
        owner = secrets.token_hex(16)
        try:
            self._owner_file.parent.mkdir(parents=True, exist_ok=True)
            with self._owner_file.open("x", encoding="utf-8") as file:
                file.write(owner)
        except FileExistsError:
            return self._owner_file.read_text("utf-8").strip()
        except OSError as error:
            _LOG.warning("collections in Chroma cannot be marked as ours: %s", error.strerror or error)
            return ""
        return owner

    def _delete_orphans(self, api: ChromaApi) -> None:
        """Remove collections of ours whose wiki is no more: it was removed while Chroma was away."""
        owner, known = self._get_installation_id(), set(self._get_wiki_ids())
        gone = [
            found.name
            for found in api.iter_collections()
            if owner
            and found.metadata.get("wikiholt_owner") == owner
            and found.metadata.get("wikiholt_wiki") not in known
        ]
        for name in gone:
            api.delete_collection(name)
        if gone and self._worker.host.is_own_child:
            api.remove_leftovers()


def get_host(url: str) -> str:
    """The host and port of a URL, as they are named in a request."""
    return url.split("://", 1)[-1].split("/", 1)[0]
