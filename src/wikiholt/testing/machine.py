"""A state machine that drives a store as a sync would, and compares it with a plain dictionary."""

from collections import Counter
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from wikiholt.model import Change, Filter, PageEntry, Problem, Recipe, WordQuery
from wikiholt.ports import Store, WikiIndex
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.testing.entries import entry
from wikiholt.text.links import folded, last_part

_ID = "cccccccccccccccccccc"
_FILES = st.sampled_from(["a.md", "b.md", "dir/a.md", "dir/sub/ü.md", "A.md"])
_WORDS = st.sampled_from(["red", "green", "blue", "日本", "ütf", "x_y"])
_TEXTS = st.lists(st.lists(_WORDS, min_size=1, max_size=4).map(" ".join), max_size=4)
_LINKS = st.lists(
    st.sampled_from(["a", "dir/a", "../b.md", "a.md", "/dir/sub/Ü.md", "ü", "https://x.example"]), max_size=3
)
_EMBEDDER = FakeEmbedder()


def run_state_machine(make_store: Callable[[], Store], *, examples: int = 40, steps: int = 25) -> None:
    """Run the machine against stores this function makes; each call must give an empty one."""

    class Machine(_StoreMachine):
        def fresh_store(self) -> Store:
            return make_store()

    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
        ),
    )


class _StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = self.fresh_store()
        self.index: WikiIndex = self.store.create(_ID, Recipe(_EMBEDDER.fingerprint, _EMBEDDER.dimensions, "1"))
        self.pages: dict[str, PageEntry] = {}
        self.problems: dict[str, Problem] = {}
        self.revision: str | None = None
        self.seen: set[int] = set()
        self.seen_version = 0

    def fresh_store(self) -> Store:
        raise NotImplementedError

    def teardown(self) -> None:
        self.index.close()

    @rule(file=_FILES, texts=_TEXTS, tag=st.sampled_from(["t", "u"]), links=_LINKS)
    def put(self, file: str, texts: list[str], tag: str, links: list[str]) -> None:
        page = entry(file, texts, _EMBEDDER, tags=[tag], links=links)
        self.index.apply(Change(pages=(page,)))
        self.pages[file] = page
        self.problems.pop(file, None)

    @rule(file=_FILES)
    def delete(self, file: str) -> None:
        self.index.apply(Change(deleted=(file,)))
        self.pages.pop(file, None)
        self.problems.pop(file, None)

    @rule(old=_FILES, new=_FILES)
    def move(self, old: str, new: str) -> None:
        if old == new or old not in self.pages:
            return
        texts = [chunk.text for chunk in self.pages[old].chunks]
        page = entry(new, texts, _EMBEDDER)
        self.index.apply(Change(pages=(page,), deleted=(old,)))
        del self.pages[old]
        self.problems.pop(new, None)
        self.pages[new] = page

    @rule(file=_FILES, reason=st.sampled_from(["binary", "too-large"]))
    def fail(self, file: str, reason: str) -> None:
        problem = Problem(file, "blob", reason, "why")
        self.index.apply(Change(problems=(problem,)))
        self.pages.pop(file, None)
        self.problems[file] = problem

    @rule(revision=st.sampled_from(["r1", "r2"]))
    def finish(self, revision: str) -> None:
        self.index.apply(Change(revision=revision))
        self.revision = revision

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = self.store.open(_ID)

    @rule()
    def rebuild(self) -> None:
        """A new generation with the same pages takes over."""
        building = self.store.new_generation(_ID, Recipe(_EMBEDDER.fingerprint, _EMBEDDER.dimensions, "2"))
        building.apply(
            Change(
                tuple(self.pages.values()),
                deleted=tuple(file for file in building.pages() if file not in self.pages),
                problems=tuple(self.problems.values()),
                revision=self.revision,
            )
        )
        self.index.close()
        self.store.publish(_ID, building.generation)
        self.index = building
        self.seen, self.seen_version = set(), -1

    @rule()
    def follow(self) -> None:
        """A cache that follows by deltas holds exactly the chunks there are."""
        delta = self.index.changes_since(self.seen_version) if self.seen_version >= 0 else None
        with self.index.snapshot() as snapshot:
            truth = {i for block in snapshot.blocks() for i in block.chunk_ids.tolist()}
            version = snapshot.version
        if delta is not None:
            self.seen = (self.seen - set(delta.dropped.tolist())) | set(delta.added.chunk_ids.tolist())
            assert self.seen == truth
        self.seen, self.seen_version = truth, version

    @invariant()
    def pages_match(self) -> None:
        assert dict(self.index.pages()) == {file: page.blob for file, page in self.pages.items()}

    @invariant()
    def problems_match(self) -> None:
        assert {problem.file: problem for problem in self.index.problems()} == self.problems

    @invariant()
    def counts_match(self) -> None:
        state = self.index.state()
        assert state.pages == len(self.pages)
        assert state.chunks == sum(len(page.chunks) for page in self.pages.values())
        assert state.revision == self.revision

    @invariant()
    def index_is_whole(self) -> None:
        assert self.index.check() == []

    @invariant()
    def words_find_what_holds_them(self) -> None:
        for word in ("red", "日本", "x_y"):
            hits = self.index.words(WordQuery(terms=(word,)), 100, Filter())
            found = {page.file for page in self.index.stored_pages([hit.page_id for hit in hits]).values()}
            assert found == {file for file, page in self.pages.items() if word in page.words.body.split()}

    @invariant()
    def nearest_finds_every_chunk_once(self) -> None:
        near = self.index.nearest(_EMBEDDER.query("red green"), 1000, None)
        assert len(set(near.chunk_ids.tolist())) == len(near.chunk_ids) == self.index.state().chunks
        assert np.all(np.diff(near.distances) >= 0)

    @invariant()
    def lists_and_facets_match(self) -> None:
        for where, tag in ((Filter(), None), (Filter(tags=("T",)), "t")):
            expected = sorted(
                file for file, page in self.pages.items() if tag is None or tag in page.page.metadata.tags
            )
            total, listed = self.index.list_pages(where, 2, 1)
            assert total == len(expected) == self.index.facets(where).pages
            every = self.index.list_pages(where, None)[1]
            assert sorted(page.file for page in every) == expected
            assert [page.path for page in every] == sorted(page.path for page in every)
            assert [page.file for page in listed] == [page.file for page in every[1:3]]
            for page in every:
                stored = self.pages[page.file].page
                assert (page.words, page.length) == (stored.words, stored.length)

    @invariant()
    def links_match(self) -> None:
        files = {page.page_id: page.file for page in self.index.list_pages(Filter(), None)[1]}
        held = Counter((files[link.page_id], link.target, link.line, link.paths) for link in self.index.links())
        written = [(file, link) for file, page in self.pages.items() for link in page.page.links]
        assert held == Counter((file, link.target, link.line, link.paths) for file, link in written)
        for key in ("a", "dir/a", "b", "dir/sub/ü"):
            named = {page.file for page in self.index.named([key])}
            assert named == {f for f, p in self.pages.items() if key in _keys(p.page.path)}
            naming = Counter((files[link.page_id], link.line) for link in self.index.links_naming([key]))
            assert naming == Counter((f, link.line) for f, link in written if key in map(folded, link.paths))

    @invariant()
    def vectors_of_pages_match(self) -> None:
        for page in self.index.list_pages(Filter(), None)[1]:
            rows = self.index.page_vectors([page.page_id])
            np.testing.assert_array_equal(rows.vectors, self.pages[page.file].vectors)


def _keys(path: str) -> tuple[str, str]:
    return folded(path), folded(last_part(path))
