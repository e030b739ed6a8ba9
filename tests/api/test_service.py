"""The service: registered wikis, handles bound to one of them, many threads at once."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import Busy, IndexMissing, InvalidSource, SourceMissing, WikiExists, WikiNotFound
from wikiholt.git.source import GitSource
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


class ServiceFixture:
    """A data directory with wikis, and services that use it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = SqliteStore(directory / "data" / "wikis")
        self.embedder = FakeEmbedder()
        self.pipeline = TextPipeline()
        self.service = self.open_service()

    def open_service(self, open_wikis: int = 64) -> WikiService:
        components = Components(
            self.store,
            lambda: self.embedder,
            lambda index, wiki_id: FileKeywordCache(index, self.store.get_directory(wiki_id)),
            0.05,
        )
        return WikiService(
            Registry(self.directory / "data" / "registry.sqlite"), components, self.make_config, max_open=open_wikis
        )

    def make_config(self, wiki: Wiki) -> WikiConfig:
        return WikiConfig(GitSource(Path(wiki.source)), self.pipeline, "{path}")

    def add_wiki(self, slug: str, pages: dict[str, str | bytes | None]) -> Repository:
        repository = Repository(self.directory / slug)
        repository.commit(pages)
        self.service.add(slug, str(repository.path), {})
        return repository


@pytest.fixture
def wikis(tmp_path: Path) -> Iterator[ServiceFixture]:
    service_fixture = ServiceFixture(tmp_path)
    yield service_fixture
    service_fixture.service.close()


def find_paths(service: WikiService, slug: str, query: str) -> list[str]:
    return [hit.path for hit in service.get_handle(slug).search(SearchRequest(query)).hits]


def test_a_wiki_is_added_synced_searched_and_removed(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"home.md": "the heron stands still"})
    wikis.service.get_handle("one").sync()
    assert find_paths(wikis.service, "one", "heron") == ["home"]
    removed = wikis.service.remove("one")
    assert removed.wiki.slug == "one"
    assert removed.files
    assert len(removed.files) == len(set(removed.files))
    assert not wikis.store.get_directory(removed.wiki.id).exists()
    with pytest.raises(WikiNotFound):
        wikis.service.get_handle("one")


def test_only_an_index_without_a_wiki_is_deleted_by_its_id(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"home.md": "the heron stands still"})
    wikis.service.get_handle("one").sync()
    kept, lost = wikis.service.registry.get("one").id, "abcdefgh234567abcdef"
    being_written = shutil.ignore_patterns("*.writing")
    shutil.copytree(wikis.store.get_directory(kept), wikis.store.get_directory(lost), ignore=being_written)
    assert wikis.service.list_unregistered_indexes() == [lost]
    with pytest.raises(Busy) as caught:
        wikis.service.delete_unregistered_index(kept)
    assert caught.value.hint
    assert wikis.service.delete_unregistered_index(lost)
    assert wikis.service.list_unregistered_indexes() == []
    assert find_paths(wikis.service, "one", "heron") == ["home"]


def test_an_unreadable_repository_is_not_registered(wikis: ServiceFixture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no repository")
    for place, error in ((tmp_path / "absent", SourceMissing), (tmp_path / "file", InvalidSource)):
        with pytest.raises(error) as caught:
            wikis.service.add("bad", str(place), {})
        assert caught.value.hint
    assert wikis.service.list_wikis() == []


def test_a_path_that_is_not_text_is_refused(wikis: ServiceFixture) -> None:
    with pytest.raises(InvalidSource) as caught:
        wikis.service.add("odd", "/srv/x\udcff", {})
    assert caught.value.hint


def test_a_repository_without_a_commit_may_be_added(wikis: ServiceFixture, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "young")
    wikis.service.add("young", str(repository.path), {})
    repository.commit({"a.md": "first words"})
    wikis.service.get_handle("young").sync()
    assert find_paths(wikis.service, "young", "first") == ["a"]


def test_a_slug_is_unique(wikis: ServiceFixture) -> None:
    repository = wikis.add_wiki("one", {"a.md": "alpha"})
    with pytest.raises(WikiExists):
        wikis.service.add("one", str(repository.path), {})


def test_of_a_wiki_that_is_being_written_the_data_is_deleted_later(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    wikis.service.get_handle("one").sync()
    wiki = wikis.service.get_handle("one").wiki
    with wikis.store.write_lock(wiki.id, 0):
        assert wikis.service.remove("one").files == ()
        with pytest.raises(WikiNotFound):
            wikis.service.get_handle("one")
        assert wikis.store.exists(wiki.id)
    wikis.service.remove_leftovers()
    assert not wikis.store.exists(wiki.id)


def test_a_slug_that_was_removed_and_added_again_is_another_wiki(wikis: ServiceFixture, tmp_path: Path) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    wikis.service.get_handle("one").sync()
    before = wikis.service.get_handle("one").wiki.id
    wikis.service.remove("one")
    other = Repository(tmp_path / "other")
    other.commit({"b.md": "beta"})
    wikis.service.add("one", str(other.path), {})
    wikis.service.get_handle("one").sync()
    assert wikis.service.get_handle("one").wiki.id != before
    assert find_paths(wikis.service, "one", "alpha beta") == ["b"]


@pytest.mark.slow
def test_the_number_of_open_wikis_is_limited(wikis: ServiceFixture) -> None:
    wikis.service = wikis.open_service(open_wikis=2)
    for number in range(5):
        wikis.add_wiki(f"w{number}", {"a.md": f"animal{number}"})
        wikis.service.get_handle(f"w{number}").sync()
    for _ in range(2):
        for number in range(5):
            assert find_paths(wikis.service, f"w{number}", f"animal{number}") == ["a"]
    assert len(wikis.service._handles) <= 2


def test_changed_settings_close_the_open_index(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    before = wikis.service.get_handle("one")
    before.sync()
    assert before.search(SearchRequest("alpha")).hits
    wikis.service.registry.update_settings("one", {"language": "german"})
    assert wikis.service.get_handle("one") is not before
    assert before._live_index is None
    assert find_paths(wikis.service, "one", "alpha") == ["a"]


@pytest.mark.slow
def test_threads_search_while_generations_change(wikis: ServiceFixture) -> None:
    repository = wikis.add_wiki("one", {f"{i}.md": f"heron number {i}" for i in range(30)})
    wikis.service.get_handle("one").sync()
    writer = wikis.open_service()

    def search(turn: int) -> int:
        return len(wikis.service.get_handle("one").search(SearchRequest(f"heron {turn % 30}", n=100)).hits)

    with ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(search, turn) for turn in range(160)]
        for turn in range(4):
            wikis.pipeline = TextPipeline(target_tokens=100 + turn)
            repository.commit({f"new{turn}.md": f"heron new {turn}"})
            fresh = wikis.open_service()
            assert fresh.get_handle("one").sync().rebuilt
            fresh.close()
        counts = {future.result() for future in searches}
    assert counts <= {30, 31, 32, 33, 34}
    assert search(0) == 34
    writer.close()


def test_a_handle_survives_a_directory_that_disappears_and_returns(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    handle = wikis.service.get_handle("one")
    handle.sync()
    assert find_paths(wikis.service, "one", "alpha") == ["a"]
    place = wikis.store.get_directory(handle.wiki.id)
    place.rename(place.with_name("away"))
    with pytest.raises(IndexMissing):
        handle.search(SearchRequest("alpha"))
    place.with_name("away").rename(place)
    assert find_paths(wikis.service, "one", "alpha") == ["a"]


def test_running_searches_outlive_their_generation(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    handle = wikis.service.get_handle("one")
    handle.sync()
    index = wikis.store.open(handle.wiki.id)
    recipe = TextPipeline(target_tokens=90).build_recipe(wikis.embedder)
    building = wikis.store.create_generation(handle.wiki.id, recipe)
    building.close()
    wikis.store.publish(handle.wiki.id, building.generation)
    with ThreadPoolExecutor(8) as pool:
        assert [list(pages) for pages in pool.map(lambda _: index.get_page_blobs(), range(32))] == [["a.md"]] * 32
    index.close()
    wikis.store.remove_old_generations(handle.wiki.id)
    assert [file.name for file in wikis.store.get_directory(handle.wiki.id).glob("g*.sqlite")] == ["g000002.sqlite"]


def test_a_sync_that_waited_during_removal_restores_nothing(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    wikis.add_wiki("two", {"b.md": "beta"})
    late = wikis.open_service().get_handle("one")
    wikis.service.remove("one")
    with pytest.raises(WikiNotFound):
        late.sync()
    assert not wikis.store.get_directory(late.wiki.id).exists()
    late.close()


def test_a_growing_wiki_gets_larger_caches(wikis: ServiceFixture) -> None:
    repository = wikis.add_wiki("one", {"a.md": "alpha"})
    handle = wikis.service.get_handle("one")
    handle.sync()
    find_paths(wikis.service, "one", "alpha")
    before = handle._live_index
    repository.commit({f"{i}.md": f"page {i}" for i in range(210)})
    handle.sync()
    find_paths(wikis.service, "one", "page")
    assert find_paths(wikis.service, "one", "alpha")[0] == "a"
    assert handle._live_index is not before


def test_a_closed_handle_is_closed_again_after_use(wikis: ServiceFixture) -> None:
    wikis.add_wiki("one", {"a.md": "alpha"})
    handle = wikis.service.get_handle("one")
    handle.sync()
    handle.close()
    assert [hit.path for hit in handle.search(SearchRequest("alpha")).hits] == ["a"]
    assert handle._live_index is None
