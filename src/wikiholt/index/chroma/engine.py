"""The Chroma engine of one process: its connection, its metrics, a searcher for each wiki, and the thread that syncs.

The thread keeps Chroma running and syncs one collection at a time, so that one that crashes Chroma can be identified.
Searches ask for a sync; after a failure they get none for a time that doubles up to a minute.
"""

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from wikiholt.errors import MissingDependency, WikiholtError
from wikiholt.index.chroma.client import (
    METRIC_DESCRIPTIONS,
    ChromaClient,
    ChromaError,
    ChromaMetrics,
    ChromaTimeout,
    ChromaUnavailable,
    CollectionInfo,
    ForeignCollection,
    make_connector,
)
from wikiholt.index.chroma.collection import Cancelled, CollectionBusy
from wikiholt.index.chroma.layout import LAYOUTS
from wikiholt.index.chroma.searcher import STOP_TIMEOUT_S, ChromaSearcher
from wikiholt.index.chroma.server import OwnServer
from wikiholt.index.sqlite.index import SqliteIndex

_LOG = logging.getLogger(__name__)

_RETRY_DELAY_S, _MAX_RETRY_DELAY_S, _MAX_ERROR_RETRY_DELAY_S = 0.5, 60.0, 600.0
"""The delay after a failure doubles up to the second, and after repeated errors of one collection up to the third."""
_FAILURE_RESET_S = 120.0
"""Time without a failure after which the delay is short again."""


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
    write_timeout_s: float = 30.0
    """Timeout in seconds of a background write; a child process that takes longer is killed."""
    read_timeout_s: float = 15.0
    """The same for a background read and a health check."""


class ChromaEngine:
    """Searchers for all wikis of a process. `owner_file` stores the id that marks this installation's collections."""

    name = "chroma"

    def __init__(self, config: ChromaConfig, owner_file: Path, get_wiki_ids: Callable[[], Iterable[str]]) -> None:
        self.config = config
        self.metrics = ChromaMetrics()
        self._server = OwnServer(config.path, self.metrics) if config.path is not None else None
        self.client = ChromaClient(
            self._server.connect if self._server is not None else make_connector(config.url),
            config.url or "http://localhost",
            config.tenant,
            config.database,
            token=config.token,
            read_timeout_s=config.read_timeout_s,
            write_timeout_s=config.write_timeout_s,
        )
        self.is_closing = False
        self.layout = LAYOUTS[config.layout]
        self._owner_file = owner_file
        self._get_wiki_ids = get_wiki_ids
        self._unavailable_reason = ""
        self._instance_id: str | None = None
        self._failures = 0
        self._failed_at = 0.0
        self._server_errors = 0
        self._start_thread_state()

    def _start_thread_state(self) -> None:
        """A forked process needs its own."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[ChromaSearcher | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def open_searcher(
        self,
        index: SqliteIndex,
        directory: Path,
        wiki_id: str,
        slug: str,
        is_published: Callable[[], bool] = lambda: True,
    ) -> ChromaSearcher:
        """Return the searcher of one wiki. `is_published` tells whether searches still use this index."""
        return ChromaSearcher(self, index, directory, wiki_id, slug, is_published)

    def delete_wiki(self, wiki_id: str, slug: str) -> None:
        """Delete the collection of a wiki and its files. If Chroma is unavailable, that happens on reconnection."""
        try:
            if self._unavailable_reason:
                raise ChromaUnavailable(self._unavailable_reason)
            self._start_server()
            collection = self.client.find_collection(self.layout.format_collection_name(wiki_id, slug))
            if collection is not None and collection.metadata.get("wikiholt_wiki") == wiki_id:
                self._delete_collections([collection.name])
        except (WikiholtError, OSError) as error:
            self._instance_id = None
            _LOG.warning("the collection of a removed wiki stays in Chroma until it can be reached: %s", error)

    def get_metrics(self) -> Mapping[str, tuple[str, int]]:
        """Return each counter with its description."""
        return {name: (METRIC_DESCRIPTIONS[name], count) for name, count in self.metrics.counts.items()}

    @property
    def is_up(self) -> bool:
        """Whether the last attempt to reach Chroma succeeded."""
        return not self._unavailable_reason and self._instance_id is not None

    def check(self) -> str:
        """Return a description of the problem for the operator; empty if Chroma works."""
        try:
            self._start_server()
            self.client.check_heartbeat()
            self.client.ensure_database()
            list(self.client.iter_collections())
        except (WikiholtError, OSError) as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Stop background work, and the server of this process."""
        self.is_closing = True
        self._queue.put(None)
        if self._thread is not None and self._process_id == os.getpid():
            self._thread.join(STOP_TIMEOUT_S)
        self.client.close()
        if self._server is not None:
            self._server.close()

    @property
    def installation_id(self) -> str:
        """Marks the collections of this installation; empty if it cannot be saved."""
        return _read_installation_id(self._owner_file)

    def is_orphan(self, collection: CollectionInfo) -> bool:
        """Whether a removed wiki of this installation left the collection."""
        owner = collection.metadata.get("wikiholt_owner")
        return (
            bool(owner)
            and owner == self.installation_id
            and (collection.metadata.get("wikiholt_wiki") not in set(self._get_wiki_ids()))
        )

    # ── the thread that syncs ────────────────────────────────────────────────────────────────────

    def enqueue(self, searcher: ChromaSearcher) -> None:
        """Sync a collection in the background, unless a sync failed a moment ago. Returns at once."""
        if self._process_id != os.getpid():
            self._start_thread_state()
            searcher.idle.set()
        with self._lock:
            is_early = time.monotonic() < max(searcher.retry_at, self._failed_at + _get_delay(self._failures))
            if is_early or not searcher.idle.is_set() or searcher.is_closed or self.is_closing:
                return
            searcher.idle.clear()
            self._queue.put(searcher)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wikiholt-chroma", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (searcher := self._queue.get()) is not None:
            delay_s = 0.0 if searcher.is_closed or self.is_closing else self._sync(searcher)
            searcher.retry_at = time.monotonic() + delay_s
            searcher.idle.set()

    def _sync(self, searcher: ChromaSearcher) -> float:
        """Sync one collection. Returns the seconds before it may be tried again."""
        try:
            searcher.sync(self._connect())
        except Cancelled:
            return 0.0
        except CollectionBusy:
            return _RETRY_DELAY_S
        except Exception as error:  # noqa: BLE001 - a collection must not stop the syncs of the others
            searcher.stop_using_collection()
            searcher.errors += 1
            return self._handle_error(error, searcher.errors)
        self._unavailable_reason, self._server_errors, searcher.errors = "", 0, 0
        return 0.0

    def _handle_error(self, error: Exception, errors: int) -> float:
        """Returns the seconds before the collection may be tried again, after this many errors in a row."""
        if isinstance(error, ChromaUnavailable | MissingDependency):
            if not self._unavailable_reason:
                _LOG.warning("Chroma is unavailable; searches are exact until it is back: %s", error.message)
            self._unavailable_reason, self._instance_id = error.message, None
            self._record_failure()
            self.metrics.add_failure(error)
            if self._server is not None and isinstance(error, ChromaTimeout):
                self._server.kill()
            return 0.0
        if isinstance(error, ChromaError):  # although it was rebuilt
            _LOG.warning("a Chroma collection cannot be used; searches are exact until it is repaired: %s", error)
            self.metrics.add("failures")
            self._server_errors += error.http_status == 500
            if self._server is not None and self._server_errors >= 2:
                self._server_errors = 0
                self._server.kill(reset=True)
            return _get_delay(errors + 1, _MAX_ERROR_RETRY_DELAY_S)
        if isinstance(error, ForeignCollection):
            self._unavailable_reason = self._unavailable_reason if self._instance_id is not None else error.message
            if errors == 1:
                _LOG.error("%s (%s)", error.message, error.hint)
        elif not isinstance(error, WikiholtError | OSError):
            _LOG.error("internal error while syncing a Chroma collection", exc_info=error)
        return _MAX_RETRY_DELAY_S

    def _connect(self) -> str:
        """Start and check Chroma. Returns its instance id."""
        self._start_server()
        try:
            instance_id = self.client.check_heartbeat()
        except ChromaError as error:
            raise ChromaUnavailable(error.message) from error
        if self._instance_id != instance_id:
            if self._instance_id is not None:
                self._record_failure()  # it was restarted in the meantime: limit how often that happens
            self.client.ensure_database()
            self._delete_collections([found.name for found in self.client.iter_collections() if self.is_orphan(found)])
            self._instance_id = instance_id
        return instance_id

    def _record_failure(self) -> None:
        now = time.monotonic()
        self._failures = 1 if now - self._failed_at > _FAILURE_RESET_S else self._failures + 1
        self._failed_at = now

    def _start_server(self) -> None:
        if self._server is not None:
            self._server.start()

    def _delete_collections(self, names: Iterable[str]) -> None:
        for name in names:
            self.client.delete_collection(name)
        if names and self._server is not None:
            try:
                self._server.remove_leftovers()
            except (OSError, sqlite3.Error) as error:
                _LOG.warning("the files of a removed wiki stay in Chroma's directory: %s", error)


def _get_delay(failures: int, most_s: float = _MAX_RETRY_DELAY_S) -> float:
    return min(most_s, _RETRY_DELAY_S * 2.0 ** (failures - 1)) if failures else 0.0


def _read_installation_id(file: Path) -> str:
    """Return the id in the file, which is created if needed; empty if it cannot be saved."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(secrets.token_hex(16), "utf-8")
            try:
                with suppress(FileExistsError):
                    file.hardlink_to(draft)
            finally:
                draft.unlink()
        return file.read_text("utf-8").strip()
    except OSError as error:
        _LOG.warning("the id for collections in Chroma cannot be saved: %s", error.strerror or error)
        return ""
