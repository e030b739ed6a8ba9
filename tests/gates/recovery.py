"""What must hold at the next start, whatever happened before it."""

import shutil
from pathlib import Path

import numpy as np
from farm import open_farm
from history import EVERYWHERE

from wikiholt.errors import IndexFault, WikiholtError, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.model import Answer, Filter, Floats, Mode, WordQuery
from wikiholt.pages import Pipeline
from wikiholt.ports import WikiIndex
from wikiholt.registry import Registry
from wikiholt.search import Request
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.sync import Syncer
from wikiholt.testing import FakeEmbedder
from wikiholt.text.words import parse_query

FRESH = "ffffffffffffffffffff"


def registry_outcome(data: Path, spare: Path, known: dict[str, str], *, removal: bool) -> str:
    """The registry answers with what it was told, or with an error; then it is put back from the spare copy."""
    registry = Registry(data / "registry.sqlite")
    service = open_farm(data)
    try:
        found = {wiki.slug: wiki.id for wiki in service.wikis()}
        if removal:
            known.setdefault("victim", "")
            found.setdefault("victim", known["victim"])
        assert found == known, f"the registry says {found} where {known} was written"
        return "whole"
    except IndexFault as error:
        outcome = f"refused: {error.code()}"
    finally:
        registry.close()
        service.close()
    for file in data.glob("*registry.sqlite*"):
        file.unlink()
    shutil.copy(spare, data / "registry.sqlite")
    return outcome


def recover(data: Path, model: str, *, removal: bool, scratch: Path) -> str:
    """Start, search, sync once, and compare with an index that was built from nothing; says how it went."""
    service = open_farm(data, model=model)
    try:
        wiki = service.wiki("victim")
    except WikiNotFound:
        assert removal, "the wiki is gone though nobody removed it"
        service.close()
        return "was removed"
    before = searched(wiki)
    wiki.status()
    if removal:
        service.remove("victim")
        nothing_left(data, wiki.wiki.id, {other.id for other in service.wikis()})
        service.close()
        return "removed again"
    report = wiki.sync()
    converged(data, wiki, report.revision, scratch, model)
    service.close()
    return f"{before}, then {'built anew' if report.rebuilt else 'synced'}"


def searched(wiki: WikiHandle) -> str:
    """Search in every mode; an answer has hits, an error is one of ours."""
    seen = set()
    for mode in Mode:
        try:
            answer = wiki.search(Request(EVERYWHERE, mode=mode))
        except WikiholtError as error:
            seen.add(error.code())
        else:
            assert answer.hits, f"a silently empty list: {answer}"
            seen.add("answered")
    return "/".join(sorted(seen))


def nothing_left(data: Path, wiki_id: str, others: set[str]) -> None:
    """No file bears the id of a removed wiki, and none but those of other wikis holds its words, slug or id."""
    for file in data.rglob("*"):
        assert wiki_id not in str(file), f"{file} is left of a removed wiki"
        if file.is_file() and not others & set(file.parts):
            content = file.read_bytes()
            for trace in (b"unique1", b"victim", wiki_id.encode()):
                assert trace not in content, f"{file} holds {trace!r} of a removed wiki"


def converged(data: Path, wiki: WikiHandle, revision: str, scratch: Path, model: str) -> None:
    """The index is whole, stands for HEAD, and answers as one built from nothing does."""
    source = GitSource(Path(wiki.wiki.source))
    shutil.rmtree(scratch, ignore_errors=True)
    store = SqliteStore(scratch)
    embedder = FakeEmbedder(name=model)
    Syncer(FRESH, store, source, embedder, Pipeline(max_bytes=200_000), 1).sync()
    fresh, index = store.open(FRESH), SqliteStore(data / "wikis").open(wiki.wiki.id)
    try:
        assert index.check() == []
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


def _same_answers(wiki: WikiHandle, index: WikiIndex, fresh: WikiIndex, embedder: FakeEmbedder) -> None:
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
