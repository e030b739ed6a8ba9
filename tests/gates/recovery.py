"""What must hold at the next start, whatever happened before it."""

import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from acknowledged import UNSURE, Acknowledged
from damage import LEFTOVER, files_below, kind_of, unknown
from farm import REAL, SlowEmbedder, product
from gate_server import Visitor, serve
from history import EVERYWHERE
from processes import PATIENCE, Child

from wikiholt import embedding
from wikiholt.errors import BackupNotFound, IndexFault, SourceError, SyncFailed, WikiholtError, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.model import Answer, Filter, Floats, Mode, SyncReport, WordQuery
from wikiholt.pages import Pipeline
from wikiholt.ports import Embedder, WikiIndex
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.sync import Syncer
from wikiholt.text.words import parse_query

FRESH = "ffffffffffffffffffff"
_CACHES = ("wikiholt.vectors", "wikiholt.words", "wikiholt.search")


@dataclass(slots=True)
class Recovered:
    """How the next start went."""

    registry: str = ""
    before: str = ""
    way: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Start:
    """All that the next start is judged by."""

    data: Path
    scratch: Path
    spare: Path
    """A registry as it was when the gate began, for when the product has no good backup of its own."""
    subject: str
    model: str
    expected: Acknowledged
    operator: str
    harmed: dict[str, str] = field(default_factory=dict)
    """Files that were damaged, with what was done to them."""
    served: bool = False

    def harmed_kinds(self) -> set[str]:
        return {told.split(" ", 1)[1] for told in self.harmed.values()}


def recover(start: Start) -> dict[str, object]:
    """Start, search, converge, and compare with an index that was built from nothing; says how it went."""
    log = Log()
    logging.getLogger("wikiholt").addHandler(log)
    logging.getLogger("wikiholt").propagate = False
    assert not unknown(start.data), f"files of a kind the gate does not know: {unknown(start.data)}"
    _let_time_pass(start)
    done, began = Recovered(), time.monotonic()
    service = product(start.data, start.model)
    done.registry = _registry(service, start)
    removal = start.expected.wikis[start.subject]
    try:
        wiki = service.wiki(start.subject)
    except WikiNotFound:
        assert removal in (None, UNSURE), "the wiki is gone though nobody removed it"
        done.way = "was removed"
        _gone(service, start)
        return asdict(done)
    done.before = searched(wiki)
    wiki.status()
    if removal is UNSURE:
        service.remove(start.subject)
        done.way = "removed again"
        _gone(service, start)
        return asdict(done)
    if start.served:
        service.close()
        log.lines += served(start, wiki)
    report = synced(wiki, again=any(kind.startswith("mirror") for kind in start.harmed_kinds()))
    done.seconds = time.monotonic() - began
    assert not (start.served and report.rebuilt) or start.model == "other", (
        "the service said it was whole, and a sync built it anew"
    )
    done.way = log.way(rebuilt=report.rebuilt, new=start.model == "other")
    assert start.harmed or done.way not in ("restored", "rebuilt"), f"nobody harmed it, and it was {done.way}"
    converged(start, wiki, report.revision)
    _backups_are_good(service, wiki, start)
    service.close()
    return asdict(done)


def _let_time_pass(start: Start) -> None:
    """What was left behind is an hour old: some of it may be cleared only when nobody can still be writing it."""
    for file in files_below(start.data):
        if kind_of(file, start.data) == LEFTOVER:
            os.utime(file, (time.time() - 3600,) * 2)


def synced(wiki: WikiHandle, *, again: bool) -> SyncReport:
    """Fetch and sync; where a mirror was harmed, the first time may only notice, and the second must mend it."""
    if again:
        with suppress(SourceError, SyncFailed):
            wiki.fetch()
            wiki.sync()
    wiki.fetch()
    return wiki.sync()


class Log(logging.Handler):
    """Keeps what the product said on the way, to tell which way it went."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")

    def way(self, *, rebuilt: bool, new: bool) -> str:
        if any("takes its place" in line for line in self.lines):
            return "restored"
        if any("built again from git" in line for line in self.lines) or (rebuilt and not new):
            return "rebuilt"
        if any(line.startswith(_CACHES) for line in self.lines):
            return "cache rebuilt"
        return "new generation" if rebuilt else "as it was"


def _registry(service: Service, start: Start) -> str:
    """The registry answers with what it was told, or with an error; then the newest backup is restored."""
    tampered = any(kind.startswith("registry") and kind != "registry backup" for kind in start.harmed_kinds())
    try:
        service.wikis()
        if not tampered:
            start.expected.check_registry(service.registry)
            return "whole"
        start.expected.check_registry(service.registry, since_backup="registry-wal" in start.harmed_kinds())
        return "whole though harmed"
    except IndexFault as error:
        if not tampered:
            raise AssertionError(f"the registry, which nobody harmed, says: {error.message}") from error
    try:
        service.registry.backups.restore()
        outcome = "restored"
    except BackupNotFound:
        assert "registry backup" in start.harmed_kinds(), "there is no good backup of the registry"
        service.registry.close()
        for file in start.data.glob("*registry.sqlite*"):
            file.unlink()
        shutil.copy(start.spare, start.data / "registry.sqlite")
        outcome = "no backup left"
    found = {wiki.slug for wiki in service.wikis()}
    assert {"bystander", "mirror"} <= found, f"the restored registry knows only {found}"
    assert service.registry.keys.check(start.operator) is not None
    return outcome


def served(start: Start, wiki: WikiHandle) -> list[str]:
    """Let a real service start on what is there and wait until it says that all is well; what it logged."""
    said, told = start.scratch / "said", start.scratch / "told"
    said.unlink(missing_ok=True)
    child = Child(start.scratch / "server", lambda _: serve(start.data, start.model, 0.0, said, told))
    visitor = Visitor(said, start.operator, child.poll)
    assert visitor.arrive(), f"the service did not start: {child.join()} {told.read_text()}"
    until, status = time.monotonic() + PATIENCE / 2, {}
    head = GitSource(Path(wiki.wiki.source)).head()
    while time.monotonic() < until:
        code, answer = visitor.ask("GET", f"/w/{start.subject}/api/v1/search?q={EVERYWHERE}")
        assert code != 200 or answer["results"], "a silently empty list"
        _, status = visitor.ask("GET", f"/w/{start.subject}/api/v1/status")
        if code == 200 and not answer["stale"] and not answer["degraded"] and answer["indexed_revision"] == head:
            break
        time.sleep(0.05)
    else:
        child.kill(group=True)
        raise AssertionError(f"the service did not come to HEAD: {status} {told.read_text()}")
    child.kill(signal.SIGTERM)
    ended = child.join()
    assert ended["outcome"] == "done", f"the service did not end well: {ended} {told.read_text()}"
    return [line for line in told.read_text().splitlines() if "wikiholt" in line]


def _backups_are_good(service: Service, wiki: WikiHandle, start: Start) -> None:
    """Every backup that is listed can be restored, but for those that were harmed; and what was left is cleared."""
    harmed = {Path(file).name.rpartition("-")[0] for file in start.harmed}
    for backup in (*wiki.backups.verified(), *service.registry.backups.list()):
        assert not backup.fault or backup.name in harmed, f"{backup.name}: {backup.fault}"
    taken = wiki.backups.take()
    assert taken.state is not None
    assert taken.state.revision == wiki.status().head
    service.registry.backups.follow()
    left = [str(file) for file in files_below(start.data) if kind_of(file, start.data) == LEFTOVER]
    left = [file for file in left if file not in start.harmed]
    assert not left, f"left behind and never cleared: {left}"


def _gone(service: Service, start: Start) -> None:
    service.registry.backups.follow()  # what was removed by who was killed goes with the next look at the registry
    others = {wiki.id for wiki in service.wikis()}
    service.close()
    nothing_left(start, others)


def searched(wiki: WikiHandle) -> str:
    """Search in every mode; an answer has hits, an error is one of ours."""
    seen = set()
    for mode in Mode:
        try:
            answer = wiki.search(Request(EVERYWHERE, mode=mode))
        except WikiholtError as error:
            seen.add(error.code)
        else:
            assert answer.hits, f"a silently empty list: {answer}"
            seen.add("degraded" if answer.degraded else "answered")
    return "/".join(sorted(seen))


def nothing_left(start: Start, others: set[str]) -> None:
    """None but files of other wikis holds a removed wiki's words, slug or id; a registry that was set aside may."""
    for file in files_below(start.data):
        if not others & set(file.parts) and kind_of(file, start.data) != "registry set aside":
            content = file.read_bytes()
            for trace in (b"unique1", b"victim"):
                assert trace not in content, f"{file} holds {trace!r} of a removed wiki"


def converged(start: Start, wiki: WikiHandle, revision: str) -> None:
    """The index is whole, stands for HEAD, and answers as one built from nothing does."""
    source = wiki._parts.source
    fresh_place = start.scratch / "fresh"
    shutil.rmtree(fresh_place, ignore_errors=True)
    store = SqliteStore(fresh_place)
    embedder = embedding.load("all-MiniLM-L6-v2") if start.model == REAL else SlowEmbedder(start.model, 0.0)
    Syncer(FRESH, store, source, embedder, Pipeline(max_bytes=200_000), 1).sync()
    fresh, index = store.open(FRESH), wiki._workshop.store.open(wiki.wiki.id)
    try:
        assert not (faults := index.check()), faults
        assert index.state().revision == source.head() == revision
        tree = {file: entry.blob for file, entry in source.tree(revision).items()}
        assert dict(index.pages()) | {problem.file: problem.blob for problem in index.problems()} == tree
        assert index.problems() == fresh.problems()
        _same_content(index, fresh)
        _same_answers(wiki, index, fresh, embedder)
    finally:
        fresh.close()
        index.close()


def _same_content(one: WikiIndex, other: WikiIndex) -> None:
    first, second = _content(one), _content(other)
    assert first.keys() == second.keys()
    for key, (shown, vector) in first.items():
        assert shown == second[key][0]
        np.testing.assert_allclose(vector, second[key][1], atol=1e-6)


def _content(index: WikiIndex) -> dict[tuple[str, int], tuple[object, Floats]]:
    with index.snapshot() as snapshot:
        rows = [row for block in snapshot.blocks() for row in zip(block.chunk_ids.tolist(), block.vectors, strict=True)]
    chunks = index.stored_chunks([chunk_id for chunk_id, _ in rows])
    pages = index.stored_pages(sorted({chunk.page_id for chunk in chunks.values()}))
    found = {}
    for chunk_id, vector in rows:
        chunk = chunks[chunk_id]
        page = pages[chunk.page_id]
        shown = (page.path, page.name, page.category, page.tags, chunk.text, chunk.heading_path, chunk.anchor)
        found[page.file, chunk.index] = (shown, np.asarray(vector))
    return found


def _same_answers(wiki: WikiHandle, index: WikiIndex, fresh: WikiIndex, embedder: Embedder) -> None:
    """Words and meaning give what the fresh index gives, whether caches answer or not."""
    words = [EVERYWHERE, "boiler violin", "saunas", "ledg", *_unique_words(fresh)]
    for text in words:
        query = parse_query(text, "english")
        expected = _by_words(fresh, query)
        assert _by_words(index, query) == expected
        _agrees(wiki.search(Request(text, n=100, mode=Mode.KEYWORD)), set(expected))
        near = fresh.nearest(embedder.query(text), 1, None)
        hits = wiki.search(Request(text, n=3, mode=Mode.SEMANTIC)).hits
        told = [(hit.path, hit.distance) for hit in hits]
        assert abs((hits[0].distance or 0) - float(near.distances[0])) < 1e-4, f"{text}: {told}, not {near}"


def _by_words(index: WikiIndex, query: WordQuery) -> dict[str, float]:
    hits = index.words(query, 10_000, Filter())
    pages = index.stored_pages([hit.page_id for hit in hits])
    return {pages[hit.page_id].path: round(hit.score, 4) for hit in hits}


def _agrees(answer: Answer, expected: set[str]) -> None:
    found = {hit.path for hit in answer.hits}
    assert found <= expected
    assert len(found) == min(100, len(expected)), f"{answer.query}: {len(found)} of {len(expected)} pages"


def _unique_words(index: WikiIndex) -> list[str]:
    numbers = sorted(file.split("page-")[1].removesuffix(".md") for file in index.pages() if "page-" in file)
    return [f"unique{number}" for number in numbers[:: max(1, len(numbers) // 4)]]
