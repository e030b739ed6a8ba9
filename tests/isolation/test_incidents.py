"""Known incidents of other systems as tests: the recall loss in a shared index (2026-04-22), and five problems of a
search plugin that was made for one wiki and used for many."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.git_repository import Repository
from tests.support.services import make_cached_service, read_all_files
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import Application, open_application
from wikiholt.api.documents.admin_documents import build_status_document
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import IndexMissing, ModelSelfTestFailed, NoPages, NothingIndexed, WikiholtError, WikiNotFound
from wikiholt.index.sqlite.faiss_codes import make_codes_choice
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

HUGE_PAGE_COUNT, TINY_PAGE_COUNT, QUERY_COUNT = choose(3000, 500), 7, choose(60, 10)
OBJECTS = ("pump", "valve", "boiler", "filter", "gauge", "rotor", "intake")
ACTIONS = ("restart", "drain", "inspect", "replace", "calibrate", "seal")


def make_procedure(number: int) -> str:
    """Pages that differ in a few words, as in wikis that were created from one template."""
    rng = Random(number)
    thing, doing = OBJECTS[number % len(OBJECTS)], ACTIONS[number // len(OBJECTS) % len(ACTIONS)]
    steps = " ".join(rng.choice(OBJECTS + ACTIONS) for _ in range(6))
    return f"---\ntags: [{thing}]\n---\n# To {doing} the {thing}\n\nThe night shift may {doing} the {thing}. {steps}."


@pytest.fixture(scope="module", params=["exact", "faiss"])
def two_sizes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WikiService]:
    """A tiny wiki and a huge one with thousands of very similar pages."""
    directory = tmp_path_factory.mktemp("sizes")
    service = make_cached_service(directory / "data", choose_codes=make_codes_choice(request.param, 0))
    for slug, numbers in (
        ("huge", range(HUGE_PAGE_COUNT)),
        ("tiny", range(HUGE_PAGE_COUNT, HUGE_PAGE_COUNT + TINY_PAGE_COUNT)),
    ):
        repository = Repository(directory / slug)
        repository.commit({f"page-{n}.md": make_procedure(n) for n in numbers})
        service.add(slug, str(repository.path), {})
        service.get_handle(slug).sync()
    yield service
    service.close()


def read_vectors(service: WikiService, slug: str) -> tuple[IntArray, FloatArray, dict[int, str]]:
    """The stored data of a wiki: page and vector of each chunk, and the paths of the pages."""
    index = service.components.store.open(service.get_handle(slug).wiki.id)
    try:
        with index.open_vector_snapshot() as snapshot:
            blocks = list(snapshot.iter_blocks())
        page_ids = np.concatenate([block.page_ids for block in blocks])
        stored = index.get_pages([int(page_id) for page_id in set(page_ids)])
        paths = {page_id: page.path for page_id, page in stored.items()}
        return page_ids, np.concatenate([block.vectors for block in blocks]), paths
    finally:
        index.close()


def find_nearest_pages(
    page_ids: IntArray, vectors: FloatArray, paths: dict[int, str], query: str
) -> list[tuple[str, float]]:
    """Every page with its distance, computed without the search code."""
    distances = 1 - vectors @ FakeEmbedder().embed_query(query)
    best: dict[str, float] = {}
    for page_id, distance in zip(page_ids, distances, strict=True):
        path = paths[int(page_id)]
        best[path] = min(best.get(path, 9.0), float(distance))
    return sorted(best.items(), key=lambda item: item[1])


def make_queries() -> list[str]:
    rng = Random(5)
    return [f"{rng.choice(ACTIONS)} {rng.choice(OBJECTS)} {rng.choice(OBJECTS)}" for _ in range(QUERY_COUNT)]


def test_2026_04_22_semantic_search_in_a_tiny_wiki_next_to_a_huge_one_returns_its_nearest_pages(
    two_sizes: WikiService,
) -> None:
    truth = read_vectors(two_sizes, "tiny")
    for query in make_queries():
        for n in (1, 3, 5, 100):
            answer = two_sizes.get_handle("tiny").search(SearchRequest(query, n, SearchMode.SEMANTIC, rerank=False))
            exact = find_nearest_pages(*truth, query)[:n]
            assert not answer.degraded
            assert [hit.distance for hit in answer.hits] == pytest.approx([distance for _, distance in exact], abs=1e-4)
            assert len(answer.hits) == min(n, TINY_PAGE_COUNT)


def test_2026_04_22_keyword_search_in_a_tiny_wiki_next_to_a_huge_one_returns_every_match(
    two_sizes: WikiService,
) -> None:
    pages = {
        f"page-{n}": set(re.findall(r"\w+", make_procedure(n)))
        for n in range(HUGE_PAGE_COUNT, HUGE_PAGE_COUNT + TINY_PAGE_COUNT)
    }
    for query in make_queries():
        answer = two_sizes.get_handle("tiny").search(SearchRequest(query, 100, SearchMode.KEYWORD))
        matching = {path for path, words in pages.items() if words & set(query.split())}
        assert {hit.path for hit in answer.hits} == matching


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.SEMANTIC])
def test_2026_04_22_a_tiny_wiki_returns_as_many_pages_as_requested(two_sizes: WikiService, mode: SearchMode) -> None:
    for query in make_queries():
        found = [
            hit.path for hit in two_sizes.get_handle("tiny").search(SearchRequest(query, TINY_PAGE_COUNT, mode)).hits
        ]
        assert sorted(found) == [f"page-{n}" for n in range(HUGE_PAGE_COUNT, HUGE_PAGE_COUNT + TINY_PAGE_COUNT)]
        few = two_sizes.get_handle("tiny").search(SearchRequest(query, 5, mode)).hits
        assert [hit.path for hit in few] == found[:5]
        thing = PageFilter(tags=(OBJECTS[HUGE_PAGE_COUNT % len(OBJECTS)],))
        assert len(two_sizes.get_handle("tiny").search(SearchRequest(query, 5, mode, thing)).hits) == 1


def test_2026_04_22_a_shared_index_loses_these_pages(two_sizes: WikiService) -> None:
    """A check of the tests above: a shared index that filters the fifty nearest of all wikis loses pages."""
    page_ids, vectors, paths = read_vectors(two_sizes, "huge")
    own_ids, own_vectors, own_paths = read_vectors(two_sizes, "tiny")
    shared_ids = np.concatenate([page_ids, own_ids + HUGE_PAGE_COUNT * 10])
    shared = np.concatenate([vectors, own_vectors])
    names = paths | {page_id + HUGE_PAGE_COUNT * 10: path for page_id, path in own_paths.items()}
    recalls = []
    for query in make_queries():
        top = find_nearest_pages(shared_ids, shared, names, query)[:50]
        recalls.append(len([path for path, _ in top if int(path.removeprefix("page-")) >= HUGE_PAGE_COUNT][:5]) / 5)
    assert sum(recalls) / len(recalls) < 0.5


# ── five problems of a plugin for one wiki ───────────────────────────────────────────────────────────────────────────


class IncidentWikis:
    """A few wikis whose pages have the same names."""

    def __init__(self, directory: Path, slugs: tuple[str, ...]) -> None:
        self.data = directory / "data"
        self.service = make_cached_service(self.data)
        self.repositories = {}
        for slug in slugs:
            repository = self.repositories[slug] = Repository(directory / slug)
            repository.commit({"Home.md": f"# Home\n\nWelcome to {slug}, where the heron stands."})
            self.service.add(slug, str(repository.path), {})

    def read_files(self, slug: str) -> dict[str, bytes]:
        return read_all_files(self.data / "wikis" / self.service.get_handle(slug).wiki.id)

    def get_home(self, slug: str) -> str:
        (hit,) = self.service.get_handle(slug).search(SearchRequest("heron home")).hits
        assert hit.path == "Home"
        return hit.snippet.text


@pytest.fixture
def wikis(tmp_path: Path) -> Iterator[IncidentWikis]:
    made = IncidentWikis(tmp_path, ("north", "south", "west"))
    yield made
    made.service.close()


def test_problem_1_two_wikis_with_a_page_home_do_not_collide(wikis: IncidentWikis) -> None:
    for slug in wikis.repositories:
        wikis.service.get_handle(slug).sync()
    for slug in wikis.repositories:
        assert slug in wikis.get_home(slug)
    wikis.repositories["south"].commit({"Home.md": None, "Start.md": "# Start\n\nThe heron left."})
    wikis.service.get_handle("south").sync()
    assert [hit.path for hit in wikis.service.get_handle("south").search(SearchRequest("heron home")).hits] == ["Start"]
    assert "north" in wikis.get_home("north")
    assert "west" in wikis.get_home("west")


@contextmanager
def run_scheduler(wikis: IncidentWikis, *roots: Path) -> Iterator[Application]:
    """An application with a running scheduler."""
    settings = load_settings(wikis.data, overrides={"discover.interval": 1, "sync.interval": 1})
    application = open_application(settings, roots, service=wikis.service)
    application.scheduler.start()
    try:
        yield application
    finally:
        assert application.scheduler.stop(TIMEOUT_S)


def can_find(wikis: IncidentWikis, slug: str, query: str) -> bool:
    try:
        return bool(wikis.service.get_handle(slug).search(SearchRequest(query, mode=SearchMode.KEYWORD)).hits)
    except (IndexMissing, NothingIndexed, WikiNotFound):
        return False


def test_problem_2_every_wiki_is_synced_and_not_only_the_first(wikis: IncidentWikis) -> None:
    with run_scheduler(wikis):
        for round_name in ("first", "second"):
            for slug, repository in wikis.repositories.items():
                repository.commit({f"{round_name}.md": f"The {round_name} stork of {slug}."})
            for slug in wikis.repositories:
                wait_until(lambda slug=slug, name=round_name: can_find(wikis, slug, f'"{name} stork of {slug}"'))
        for slug in wikis.repositories:
            assert not can_find(wikis, slug, " ".join(f'"stork of {other}"' for other in wikis.repositories))


def test_problem_4_a_new_wiki_is_indexed_automatically_with_its_existing_pages(
    wikis: IncidentWikis, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    with run_scheduler(wikis, tmp_path / "root"):
        wait_until(lambda: can_find(wikis, "north", "heron"))
        Repository(tmp_path / "root" / "late").commit({"Old.md": "A bittern that was there long before."})
        wait_until(lambda: can_find(wikis, "late", "bittern"))
        assert not can_find(wikis, "north", "bittern")


REBUILD: list[Callable[[WikiService], object]] = [
    lambda service: service.get_handle("south").sync(from_scratch=True),
    lambda service: service.get_handle("south").sync(),
    lambda service: service.remove("south"),
]


@pytest.mark.parametrize("work", REBUILD, ids=["reindex", "sync", "remove"])
def test_problem_3_reindexing_one_wiki_changes_no_byte_of_the_others(
    wikis: IncidentWikis, work: Callable[[WikiService], object]
) -> None:
    for slug in wikis.repositories:
        wikis.service.get_handle(slug).sync()
        wikis.get_home(slug)
    wikis.repositories["south"].commit({"More.md": "# More\n\nAnother page."})
    before = {slug: wikis.read_files(slug) for slug in ("north", "west")}
    own = wikis.data / "wikis" / wikis.service.get_handle("south").wiki.id
    own_before = read_all_files(own)
    work(wikis.service)
    assert {slug: wikis.read_files(slug) for slug in ("north", "west")} == before
    assert "north" in wikis.get_home("north")
    assert read_all_files(own) != own_before


class ZeroVectorEmbedder(FakeEmbedder):
    """A model that returns zero vectors without an error, like one whose files could not be downloaded."""

    def embed_passages(self, texts: object) -> FloatArray:
        return np.zeros((len(texts), self.dimensions), np.float32)  # type: ignore[arg-type]

    def run_self_test(self) -> None:
        raise ModelSelfTestFailed("known sentences gave other vectors", hint="look at the model's files")


class UndetectedZeroEmbedder(ZeroVectorEmbedder):
    """The same, with a self-test that passes."""

    def run_self_test(self) -> None:
        return


@pytest.mark.parametrize("embedder", [ZeroVectorEmbedder, UndetectedZeroEmbedder])
def test_problem_5_a_model_that_fails_silently_is_an_error_and_not_an_empty_index(
    wikis: IncidentWikis, embedder: type[FakeEmbedder]
) -> None:
    broken = embedder()
    object.__setattr__(wikis.service.components, "embedder", lambda: broken)
    handle = wikis.service.get_handle("north")
    with pytest.raises(WikiholtError) as caught:
        handle.sync()
    assert caught.value.hint
    status = json.loads(json.dumps(build_status_document(handle.get_status())))
    assert status["stale"]
    with pytest.raises((NothingIndexed, IndexMissing)):
        handle.search(SearchRequest("heron", mode=SearchMode.KEYWORD))


def test_problem_5_a_tree_without_a_page_is_an_error_and_not_a_complete_index(wikis: IncidentWikis) -> None:
    wikis.repositories["north"].commit({"Home.md": None, "picture.png": b"\x89PNG"})
    with pytest.raises(NoPages) as caught:
        wikis.service.get_handle("north").sync()
    assert caught.value.hint
    for mode in SearchMode:
        with pytest.raises((NothingIndexed, IndexMissing)):
            wikis.service.get_handle("north").search(SearchRequest("heron", mode=mode))
