"""Checks at the next start after a failure."""

import logging
import os
import shutil
import signal
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.crash.acks import UNSURE, Acks
from tests.crash.child_process import TIMEOUT_S, ChildProcess
from tests.crash.file_damage import LEFTOVER, find_unknown_files, get_file_kind, list_files
from tests.crash.random_edits import COMMON_WORD
from tests.crash.server_process import RandomClient, run_server
from tests.support.services import SlowEmbedder, build_test_service
from tests.support.stored_bytes import read_stored_bytes
from wikiholt.domain.index import FloatArray, SyncReport
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, PageFilter, SearchMode, SearchResult
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import (
    WikiholtError,
    WikiNotFound,
)
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sync import Syncer
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

FRESH_WIKI_ID = "ffffffffffffffffffff"
_CACHE_LOGGERS = ("wikiholt.index", "wikiholt.search")


@dataclass(slots=True)
class RecoveryReport:
    """The result of the next start."""

    registry: str = ""
    search_outcome: str = ""
    recovery_path: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class RecoveryCase:
    """What the next start is checked against."""

    data: Path
    scratch: Path
    subject: str
    model: str
    expected: Acks
    operator: str
    served: bool = False


def check_recovery(case: RecoveryCase) -> dict[str, object]:
    """Start, search, sync, and compare with an index built from scratch. Returns a RecoveryReport as a dictionary."""
    log = LogCollector()
    logging.getLogger("wikiholt").addHandler(log)
    logging.getLogger("wikiholt").propagate = False
    assert not find_unknown_files(case.data), f"files of an unknown kind: {find_unknown_files(case.data)}"
    _age_files(case)
    result, began = RecoveryReport(), time.monotonic()
    service = build_test_service(case.data, case.model)
    case.expected.check_registry(service.registry)
    removal = case.expected.wikis[case.subject]
    try:
        wiki = service.get_handle(case.subject)
    except WikiNotFound:
        assert removal in (None, UNSURE), "the wiki is missing but was not removed"
        result.recovery_path = "was removed"
        _check_removed(service, case)
        return asdict(result)
    result.search_outcome = check_search(wiki)
    wiki.get_status()
    with suppress(WikiholtError):  # the daily check; a sync alone does not read unchanged pages
        health = wiki.check_integrity()
        assert health.is_ok, f"the index was not damaged, but it was found so: {health.reason}"
    if removal is UNSURE:
        service.remove(case.subject)
        result.recovery_path = "removed again"
        _check_removed(service, case)
        return asdict(result)
    if case.served:
        service.close()
        log.lines += wait_for_service(case, wiki)
    report = sync_wiki(wiki)
    result.seconds = time.monotonic() - began
    assert not (case.served and report.rebuilt) or case.model == "other", (
        "the service reported an intact index, but a sync rebuilt it"
    )
    result.recovery_path = log.get_recovery_path(rebuilt=report.rebuilt, new=case.model == "other")
    assert result.recovery_path != "rebuilt", "the index was not damaged, but it was rebuilt"
    assert_converged(case, wiki, report.revision)
    _check_backups(service, wiki, case)
    _check_views(wiki)
    service.close()
    return asdict(result)


def _age_files(case: RecoveryCase) -> None:
    """Make leftover files an hour old: some are removed only when no process can still be writing them."""
    for file in list_files(case.data):
        if get_file_kind(file, case.data) == LEFTOVER:
            os.utime(file, (time.time() - 3600,) * 2)


def sync_wiki(wiki: WikiHandle) -> SyncReport:
    """Fetch and sync."""
    wiki.fetch()
    return wiki.sync()


class LogCollector(logging.Handler):
    """Collects log messages, from which the way of recovery is determined."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")

    def get_recovery_path(self, *, rebuilt: bool, new: bool) -> str:
        if any("is quarantined as" in line for line in self.lines) or (rebuilt and not new):
            return "rebuilt"
        if any(line.startswith(_CACHE_LOGGERS) for line in self.lines):
            return "cache rebuilt"
        return "new generation" if rebuilt else "as it was"


def wait_for_service(case: RecoveryCase, wiki: WikiHandle) -> list[str]:
    """Start a real service and wait until it reports a fresh index. Returns its log lines."""
    address, log = case.scratch / "recovery-address", case.scratch / "recovery-log"
    address.unlink(missing_ok=True)
    child = ChildProcess(case.scratch / "server", lambda _: run_server(case.data, case.model, 0.0, address, log))
    client = RandomClient(address, case.operator, child.has_ended)
    assert client.wait_until_listening(), f"the service did not start: {child.wait()} {log.read_text()}"
    until, status = time.monotonic() + TIMEOUT_S / 2, {}
    head = GitSource(Path(wiki.wiki.source)).get_head()
    while time.monotonic() < until:
        code, answer = client.send_request("GET", f"/w/{case.subject}/api/v1/search?q={COMMON_WORD}")
        assert code != 200 or answer["results"], "an empty result without an error"
        _, status = client.send_request("GET", f"/w/{case.subject}/api/v1/status")
        if code == 200 and not answer["stale"] and not answer["degraded"] and answer["indexed_revision"] == head:
            break
        time.sleep(0.05)
    else:
        child.send_signal(group=True)
        raise AssertionError(f"the service did not reach HEAD: {status} {log.read_text()}")
    child.send_signal(signal.SIGTERM)
    ended = child.wait()
    assert ended["outcome"] == "done", f"the service did not exit cleanly: {ended} {log.read_text()}"
    return [line for line in log.read_text().splitlines() if "wikiholt" in line]


def _check_backups(service: WikiService, wiki: WikiHandle, case: RecoveryCase) -> None:
    """Every listed backup is intact, and leftover files are removed."""
    for backup in (*wiki.backups.list_verified(), *service.registry.backups.list()):
        assert not backup.fault, f"{backup.name}: {backup.fault}"
    taken = wiki.backups.create()
    assert taken.state is not None
    assert taken.state.revision == wiki.get_status().head
    service.registry.backups.create_if_changed()
    wiki.wait_for_caches(TIMEOUT_S)  # a cache that is being written is not a leftover
    left = [str(file) for file in list_files(case.data) if get_file_kind(file, case.data) == LEFTOVER]
    assert not left, f"leftover files were not removed: {left}"


def _check_views(wiki: WikiHandle) -> None:
    """A view that counts as complete is intact and contains its commit; any other is built again."""
    for view in wiki.past.list_views():
        wiki.past.build(view.revision)
    for view in wiki.past.list_views():
        with closing(wiki.past._open_store(view.revision).open(wiki.wiki.id)) as index:
            assert view.is_complete
            assert not (faults := index.check()), faults
            tree = {file: entry.blob for file, entry in wiki._config.source.read_tree(view.revision).items()}
            problems = {problem.file: problem.blob for problem in index.get_problems()}
            assert dict(index.get_page_blobs()) | problems == tree


def _check_removed(service: WikiService, case: RecoveryCase) -> None:
    service.remove_leftovers()  # finishes the removal that a killed process started
    others = {wiki.id for wiki in service.list_wikis()}
    service.close()
    assert_no_traces(case, others)


def check_search(wiki: WikiHandle) -> str:
    """Search in every mode. A result has hits, and every error is a WikiholtError."""
    seen = set()
    for mode in SearchMode:
        try:
            answer = wiki.search(SearchRequest(COMMON_WORD, mode=mode))
        except WikiholtError as error:
            seen.add(error.code)
        else:
            is_explained = mode is SearchMode.SEMANTIC and answer.meaning_ready < 1 and answer.degraded
            assert answer.hits or is_explained, f"an empty result without an error: {answer}"
            seen.add("degraded" if answer.degraded else "answered")
    return "/".join(sorted(seen))


def assert_no_traces(case: RecoveryCase, others: set[str]) -> None:
    """Only files of other wikis, and a quarantined registry, may contain words or the slug of a removed wiki."""
    for file in list_files(case.data):
        if not others & set(file.parts) and get_file_kind(file, case.data) != "registry set aside":
            content = read_stored_bytes(file)
            for trace in (b"unique1", b"victim"):
                assert trace not in content, f"{file} contains {trace!r} of a removed wiki"


def assert_converged(case: RecoveryCase, wiki: WikiHandle, revision: str) -> None:
    """The index is intact and at HEAD, and its results are those of an index built from scratch."""
    source = wiki._config.source
    fresh_directory = case.scratch / "fresh"
    shutil.rmtree(fresh_directory, ignore_errors=True)
    store = SqliteStore(fresh_directory)
    embedder = SlowEmbedder(case.model, 0.0)
    Syncer(FRESH_WIKI_ID, store, source, embedder, TextPipeline(max_bytes=200_000, reads_pictures=True), 1).sync()
    fresh, index = store.open(FRESH_WIKI_ID), wiki._components.store.open(wiki.wiki.id)
    try:
        assert not (faults := index.check()), faults
        assert index.get_state().revision == source.get_head() == revision
        tree = {file: entry.blob for file, entry in source.read_tree(revision).items()}
        assert dict(index.get_page_blobs()) | {problem.file: problem.blob for problem in index.get_problems()} == tree
        assert index.get_problems() == fresh.get_problems(), (index.get_problems(), fresh.get_problems())
        _assert_same_content(index, fresh)
        assert _read_aliases(index) == _read_aliases(fresh)
        _assert_same_results(wiki, index, fresh, embedder)
    finally:
        fresh.close()
        index.close()


def _assert_same_content(one: WikiIndex, other: WikiIndex) -> None:
    first, second = _read_content(one), _read_content(other)
    assert first.keys() == second.keys()
    for key, (shown, vector) in first.items():
        assert shown == second[key][0]
        np.testing.assert_allclose(vector, second[key][1], atol=5e-5)  # a step of the stored precision


def _read_content(index: WikiIndex) -> dict[tuple[str, int], tuple[object, FloatArray]]:
    with index.open_vector_snapshot() as snapshot:
        rows = [
            row for block in snapshot.iter_blocks() for row in zip(block.chunk_ids.tolist(), block.vectors, strict=True)
        ]
    chunks = index.get_chunks([chunk_id for chunk_id, _ in rows])
    pages = index.get_pages(sorted({chunk.page_id for chunk in chunks.values()}))
    found = {}
    for chunk_id, vector in rows:
        chunk = chunks[chunk_id]
        page = pages[chunk.page_id]
        shown = (page.path, page.name, page.category, page.tags, chunk.text, chunk.heading_path, chunk.anchor)
        found[page.file, chunk.number] = (shown, np.asarray(vector))
    return found


def _read_aliases(index: WikiIndex) -> dict[str, tuple[str, ...]]:
    return {page.file: page.aliases for page in index.list_pages(PageFilter(), None)[1]}


def _assert_same_results(wiki: WikiHandle, index: WikiIndex, fresh: WikiIndex, embedder: Embedder) -> None:
    """Keyword and vector search return what the fresh index returns, with and without caches."""
    words = [COMMON_WORD, "boiler violin", "saunas", "ledg", *_find_unique_words(fresh)]
    for text in words:
        query = parse_query(text, "english")
        expected = _search_keywords(fresh, query)
        found = _search_keywords(index, query)
        assert found == expected
        _assert_agrees(wiki.search(SearchRequest(text, n=100, mode=SearchMode.KEYWORD)), set(expected))
        nearest = _find_nearest_distances(fresh, embedder.embed_query(text))
        hits = wiki.search(SearchRequest(text, n=100, mode=SearchMode.SEMANTIC)).hits
        distances = {hit.path: hit.distance for hit in hits}
        wrong = {path: nearest[path] for path in distances if abs((distances[path] or 0) - nearest[path]) > 1e-4}
        assert not wrong, f"{text}: {distances}, not {wrong}"
        assert min(nearest, key=lambda path: nearest[path]) in distances, f"{text}: the nearest page is missing"


def _find_nearest_distances(index: WikiIndex, vector: FloatArray) -> dict[str, float]:
    """The path of each page, and the distance of its nearest chunk."""
    hits = index.search_vectors(vector, 10_000, None)
    pages = index.get_pages(sorted(set(hits.page_ids.tolist())))
    nearest: dict[str, float] = {}
    for page_id, distance in zip(hits.page_ids.tolist(), hits.distances.tolist(), strict=True):
        nearest.setdefault(pages[page_id].path, distance)
    return nearest


def _search_keywords(index: WikiIndex, query: KeywordQuery) -> dict[str, float]:
    hits = index.search_keywords(query, 10_000, PageFilter())
    pages = index.get_pages([hit.page_id for hit in hits])
    return {pages[hit.page_id].path: round(hit.score, 4) for hit in hits}


def _assert_agrees(answer: SearchResult, expected: set[str]) -> None:
    found = {hit.path for hit in answer.hits}
    assert found <= expected
    assert len(found) == min(100, len(expected)), f"{answer.query}: {len(found)} of {len(expected)} pages"


def _find_unique_words(index: WikiIndex) -> list[str]:
    numbers = sorted(file.split("page-")[1].removesuffix(".md") for file in index.get_page_blobs() if "page-" in file)
    return [f"unique{number}" for number in numbers[:: max(1, len(numbers) // 4)]]
