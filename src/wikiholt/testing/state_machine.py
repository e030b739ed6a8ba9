"""A hypothesis state machine that drives a store like a sync and compares it with a dictionary."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from wikiholt.domain.index import IndexChange, IndexedPageMove, PageEntry, Recipe
from wikiholt.domain.page import PageProblem
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.testing.fakes import FakeEmbedder, make_entry
from wikiholt.text.links import fold_path, get_last_part

_WIKI_ID = "cccccccccccccccccccc"
_FILES = st.sampled_from(["a.md", "b.md", "dir/a.md", "dir/sub/ü.md", "A.md"])
_WORDS = st.sampled_from(["red", "green", "blue", "日本", "ütf", "x_y"])
_TEXTS = st.lists(st.lists(_WORDS, min_size=1, max_size=4).map(" ".join), max_size=4)
_LINKS = st.lists(
    st.sampled_from(["a", "dir/a", "../b.md", "a.md", "/dir/sub/Ü.md", "ü", "https://x.example"]), max_size=3
)
_EMBEDDER = FakeEmbedder()


def run_state_machine(make_store: Callable[[], IndexStore], *, examples: int = 40, steps: int = 25) -> None:
    """Run the machine on stores made by this function; each call must return an empty one."""

    class Machine(_StoreMachine):
        def create_store(self) -> IndexStore:
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
        self.store = self.create_store()
        self.index: WikiIndex = self.store.create(_WIKI_ID, Recipe(_EMBEDDER.fingerprint, _EMBEDDER.dimensions, "1"))
        self.pages: dict[str, PageEntry] = {}
        self.problems: dict[str, PageProblem] = {}
        self.revision: str | None = None

    def create_store(self) -> IndexStore:
        raise NotImplementedError

    def teardown(self) -> None:
        self.index.close()

    @rule(file=_FILES, texts=_TEXTS, tag=st.sampled_from(["t", "u"]), links=_LINKS)
    def put_page(self, file: str, texts: list[str], tag: str, links: list[str]) -> None:
        page = make_entry(file, texts, _EMBEDDER, tags=[tag], links=links)
        self.index.apply(IndexChange(pages=(page,)))
        self.pages[file] = page
        self.problems.pop(file, None)

    @rule(file=_FILES)
    def delete_page(self, file: str) -> None:
        self.index.apply(IndexChange(deleted=(file,)))
        self.pages.pop(file, None)
        self.problems.pop(file, None)

    @rule(old=_FILES, new=_FILES)
    def move_page(self, old: str, new: str) -> None:
        if old == new or old not in self.pages:
            return
        texts = [chunk.text for chunk in self.pages[old].chunks]
        page = make_entry(new, texts, _EMBEDDER)
        self.index.apply(IndexChange(pages=(page,), deleted=(old,)))
        del self.pages[old]
        self.problems.pop(new, None)
        self.pages[new] = page

    @rule(old=_FILES, new=_FILES)
    def move_page_in_place(self, old: str, new: str) -> None:
        if old not in self.pages or new in self.pages:
            return
        before = self.pages.pop(old)
        texts, links = [chunk.text for chunk in before.chunks], [link.target for link in before.page.links]
        page = make_entry(new, texts, _EMBEDDER, tags=before.page.metadata.tags, links=links)
        move = IndexedPageMove(old, new, page.page.path, page.page.name, (), None, page.terms.name, page.page.links)
        self.index.apply(IndexChange(moved=(move,)))
        self.problems.pop(new, None)
        self.pages[new] = replace(page, blob=before.blob)

    @rule(file=_FILES, reason=st.sampled_from(["binary", "too-large"]))
    def add_problem(self, file: str, reason: str) -> None:
        problem = PageProblem(file, "blob", reason, "why")
        self.index.apply(IndexChange(problems=(problem,)))
        self.pages.pop(file, None)
        self.problems[file] = problem

    @rule(revision=st.sampled_from(["r1", "r2"]))
    def set_revision(self, revision: str) -> None:
        self.index.apply(IndexChange(revision=revision))
        self.revision = revision

    @rule()
    def open_again(self) -> None:
        self.index.close()
        self.index = self.store.open(_WIKI_ID)

    @rule()
    def rebuild(self) -> None:
        """Publish a new generation with the same pages."""
        building = self.store.create_generation(_WIKI_ID, Recipe(_EMBEDDER.fingerprint, _EMBEDDER.dimensions, "2"))
        building.apply(
            IndexChange(
                tuple(self.pages.values()),
                deleted=tuple(file for file in building.get_page_blobs() if file not in self.pages),
                problems=tuple(self.problems.values()),
                revision=self.revision,
            )
        )
        self.index.close()
        self.store.publish(_WIKI_ID, building.generation)
        self.index = building

    @invariant()
    def check_pages(self) -> None:
        assert dict(self.index.get_page_blobs()) == {file: page.blob for file, page in self.pages.items()}

    @invariant()
    def check_problems(self) -> None:
        assert {problem.file: problem for problem in self.index.get_problems()} == self.problems

    @invariant()
    def check_counts(self) -> None:
        state = self.index.get_state()
        assert state.pages == len(self.pages)
        assert state.chunks == sum(len(page.chunks) for page in self.pages.values())
        assert state.revision == self.revision

    @invariant()
    def check_index(self) -> None:
        assert self.index.check() == []

    @invariant()
    def check_keyword_search(self) -> None:
        for word in ("red", "日本", "x_y"):
            hits = self.index.search_keywords(KeywordQuery(terms=(word,)), 100, PageFilter())
            files = {page.file for page in self.index.get_pages([hit.page_id for hit in hits]).values()}
            assert files == {file for file, page in self.pages.items() if word in page.terms.body.split()}

    @invariant()
    def check_vector_search(self) -> None:
        hits = self.index.search_vectors(_EMBEDDER.embed_query("red green"), 1000, None)
        assert len(set(hits.chunk_ids.tolist())) == len(hits.chunk_ids) == self.index.get_state().chunks
        assert np.all(np.diff(hits.distances) >= 0)

    @invariant()
    def check_lists_and_facets(self) -> None:
        for where, tag in ((PageFilter(), None), (PageFilter(tags=("T",)), "t")):
            expected = sorted(
                file for file, page in self.pages.items() if tag is None or tag in page.page.metadata.tags
            )
            total, listed = self.index.list_pages(where, 2, 1)
            assert total == len(expected) == self.index.get_facets(where).pages
            _, pages = self.index.list_pages(where, None)
            assert sorted(page.file for page in pages) == expected
            assert [page.path for page in pages] == sorted(page.path for page in pages)
            assert [page.file for page in listed] == [page.file for page in pages[1:3]]
            for page in pages:
                stored = self.pages[page.file].page
                assert (page.words, page.length) == (stored.words, stored.length)

    @invariant()
    def check_links(self) -> None:
        files = {page.page_id: page.file for page in self.index.list_pages(PageFilter(), None)[1]}
        stored = Counter((files[link.page_id], link.target, link.line, link.paths) for link in self.index.get_links())
        links = [(file, link) for file, page in self.pages.items() for link in page.page.links]
        assert stored == Counter((file, link.target, link.line, link.paths) for file, link in links)
        for key in ("a", "dir/a", "b", "dir/sub/ü"):
            files_by_key = {page.file for page in self.index.find_pages_by_key([key])}
            assert files_by_key == {file for file, page in self.pages.items() if key in _get_keys(page.page.path)}
            links_by_key = Counter((files[link.page_id], link.line) for link in self.index.find_links_by_key([key]))
            assert links_by_key == Counter(
                (file, link.line) for file, link in links if key in map(fold_path, link.paths)
            )

    @invariant()
    def check_page_vectors(self) -> None:
        for page in self.index.list_pages(PageFilter(), None)[1]:
            rows = self.index.get_page_vectors([page.page_id])
            np.testing.assert_array_equal(rows.vectors, self.pages[page.file].vectors)


def _get_keys(path: str) -> tuple[str, str]:
    return fold_path(path), fold_path(get_last_part(path))
