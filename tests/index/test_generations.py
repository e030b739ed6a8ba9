"""While a new generation is built, the old one answers with its own model and follows HEAD."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.damaged_wiki import DamagedWiki, GatedEmbedder, overwrite_bytes
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.errors import ModelMissing, SyncFailed
from wikiholt.index import pipeline as indexing_pipeline
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.reconciler import SyncProgress
from wikiholt.models import DEFAULT_MODEL
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.bm25 import build_page_terms
from wikiholt.text.dialect import DIALECTS


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    created = DamagedWiki(tmp_path, pages=320)
    yield created
    created.close()


def search_semantic(wiki: DamagedWiki, query: str) -> SearchResult:
    return wiki.handle.search(SearchRequest(query, mode=SearchMode.SEMANTIC))


class BlockedEmbedder:
    """A model whose batches wait until they are released."""

    def __init__(self, name: str = "newer", dimensions: int = 48) -> None:
        self.reached, self.released = Event(), Event()
        self.embedder = GatedEmbedder(dimensions, name=name)
        self.embedder.gate = self._wait

    def _wait(self) -> None:
        self.reached.set()
        assert self.released.wait(TIMEOUT_S)


def test_the_old_model_answers_and_follows_head_while_a_new_model_is_indexed(wiki: DamagedWiki) -> None:
    old = wiki.embedder
    blocked = BlockedEmbedder()
    wiki.use_model(blocked.embedder)
    sync = Thread(target=wiki.handle.sync)
    sync.start()
    assert blocked.reached.wait(TIMEOUT_S)
    answer = search_semantic(wiki, "unique7")
    assert (answer.hits[0].path, answer.degraded) == ("page-7", False)
    old.embedded.clear()
    wiki.repository.commit({"fresh.md": "# Fresh\n\nzebra crossing\n"})

    # The published generation is brought to HEAD with each report of progress, also while a batch is embedded.
    wait_until(lambda: search_semantic(wiki, "zebra crossing").hits[0].path == "fresh")
    assert sync.is_alive(), "the new generation is still being built"
    assert len(old.embedded) == 1
    state = wiki.handle.get_status().state
    assert state is not None
    assert (state.generation, state.recipe.fingerprint) == (1, old.fingerprint)
    blocked.embedder.gate = None
    blocked.released.set()
    sync.join(120)
    state = wiki.handle.get_status().state
    assert state is not None
    assert (state.generation, state.recipe.fingerprint) == (2, blocked.embedder.fingerprint)
    assert search_semantic(wiki, "zebra crossing").hits[0].path == "fresh", (
        "the new generation has the page committed during the build"
    )
    wiki.assert_healthy()


def test_a_search_uses_keywords_only_and_says_so_if_the_old_model_is_missing(wiki: DamagedWiki) -> None:
    blocked = BlockedEmbedder()
    wiki.use_model(blocked.embedder)

    def raise_missing(recipe: Recipe) -> Embedder:
        raise ModelMissing(f"there is no {recipe.fingerprint}", hint="none")

    wiki.service.components = replace(wiki.service.components, previous_model=raise_missing)
    answer = wiki.handle.search(SearchRequest("unique7"))
    assert answer.hits[0].path == "page-7"
    assert answer.degraded
    assert "keyword only" in answer.notes[0]
    with pytest.raises(ModelMissing):
        search_semantic(wiki, "unique7")
    blocked.released.set()
    wiki.handle.sync()
    wiki.assert_healthy()


def test_the_old_model_is_loaded_once_and_not_after_the_sync(wiki: DamagedWiki) -> None:
    loaded: list[str] = []
    load_previous_model = wiki.load_previous_model

    def recording_load(recipe: Recipe) -> Embedder:
        loaded.append(recipe.model)
        return load_previous_model(recipe)

    wiki.use_model(GatedEmbedder(48, name="newer"))
    wiki.service.components = replace(wiki.service.components, previous_model=recording_load)
    search_semantic(wiki, "unique7")
    search_semantic(wiki, "unique8")
    assert loaded == ["fake"], "loaded once, by the name stored in the index"
    wiki.handle.sync()
    search_semantic(wiki, "unique7")
    assert loaded == ["fake"]


def test_a_change_of_chunking_reuses_unchanged_vectors_and_searches_continue(wiki: DamagedWiki) -> None:
    wiki.settings = {"chunk.target_tokens": 100, "chunk.overlap_tokens": 10}
    wiki.reopen()
    assert search_semantic(wiki, "unique7").hits[0].path == "page-7"
    wiki.embedder.embedded.clear()
    report = wiki.handle.sync()
    assert report.rebuilt
    assert wiki.embedder.embedded == [], "short pages have the same chunks as before"
    state = wiki.handle.get_status().state
    assert state is not None
    assert state.generation == 2
    wiki.assert_healthy()


@pytest.mark.slow
def test_an_index_with_an_older_text_version_answers_until_a_new_one_is_built(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(indexing_pipeline, "TEXT_VERSION", indexing_pipeline.TEXT_VERSION - 1)
        older.setattr(
            indexing_pipeline,
            "build_page_terms",
            lambda page, language: replace(build_page_terms(page, language), name=""),
        )
        wiki.reopen()
        wiki.handle.sync(from_scratch=True)
    wiki.reopen()
    wiki.embedder.embedded.clear()
    answers: list[tuple[int, bool, bool]] = []

    def search_between_batches(_: SyncProgress) -> None:
        """Search between two batches of the new generation."""
        state = wiki.handle.get_status().state
        assert state is not None
        assert search_semantic(wiki, "unique7").hits[0].path == "page-7"
        found = wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
        assert found.hits[0].path == "page-7"
        answers.append((state.generation, found.degraded, found.stale))
        if len(answers) == 2:
            wiki.repository.commit({"fresh.md": "# Zebra\n\ncrossing\n"})

    report = wiki.handle.sync(search_between_batches)
    assert report.rebuilt
    assert len(answers) > 4
    assert answers[0] == (2, False, False)
    assert answers[-1] == (2, False, True), "the old text version is not updated; the result is marked as stale"
    assert [text for text in wiki.embedder.embedded if "zebra" not in text.lower()] == [], (
        "all other vectors are reused"
    )
    state = wiki.handle.get_status().state
    assert state is not None
    text_version = json.loads(state.recipe.pipeline)["text_version"]
    assert (state.generation, text_version) == (3, indexing_pipeline.TEXT_VERSION)
    assert [file.name for file in sorted(wiki.directory.glob("g*.sqlite"))] == ["g000003.sqlite"]
    assert wiki.handle.search(SearchRequest("zebra", mode=SearchMode.KEYWORD)).hits[0].path == "fresh", (
        "by its title, as the current text version does"
    )
    wiki.assert_healthy()


def test_a_generation_that_fails_its_check_is_never_published(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki.use_model(GatedEmbedder(48, name="newer"))
    store = wiki.service.components.store
    wiki_id = wiki.handle.wiki.id
    real_create = type(store).create_generation

    class FaultyIndex:
        """The generation, with a fault that its check reports."""

        def __init__(self, index: object) -> None:
            self._index = index

        def check(self, stop: object = None) -> list[str]:
            return ["a planted fault"]

        def __getattr__(self, name: str) -> object:
            return getattr(self._index, name)

    monkeypatch.setattr(
        type(store), "create_generation", lambda *args, **kwargs: FaultyIndex(real_create(*args, **kwargs))
    )
    with pytest.raises(SyncFailed) as caught:
        wiki.handle.sync()
    assert "keeps answering" in caught.value.message
    assert store.get_published(wiki_id) == 1
    assert search_semantic(wiki, "unique7").hits[0].path == "page-7"
    monkeypatch.undo()
    wiki.handle.sync()
    wiki.assert_healthy()


def test_damage_to_an_unpublished_generation_does_not_affect_the_published_one(wiki: DamagedWiki) -> None:
    blocked = BlockedEmbedder()
    wiki.use_model(blocked.embedder)
    failed: list[Exception] = []

    def sync() -> None:
        try:
            wiki.handle.sync()
        except Exception as error:  # noqa: BLE001 - kept for debugging
            failed.append(error)

    thread = Thread(target=sync)
    thread.start()
    assert blocked.reached.wait(TIMEOUT_S)
    wait_until((wiki.directory / "g000002.sqlite").exists)
    overwrite_bytes(wiki.directory / "g000002.sqlite", 0, bytes(30_000))
    (wiki.directory / "g000002.sqlite-wal").write_bytes(b"")
    blocked.embedder.gate = None
    blocked.released.set()
    thread.join(120)
    assert not wiki.handle.get_status().quarantined, "the published generation is not quarantined"
    assert search_semantic(wiki, "unique7").hits[0].path == "page-7"
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_pipeline_is_read_back_from_the_recipe_of_an_index() -> None:
    pipeline = TextPipeline(120, 30, "german", "otterwiki", 5000, ("/drafts", 'say "no",\n'))
    recipe = pipeline.build_recipe(FakeEmbedder())
    assert TextPipeline.from_recipe(recipe) == pipeline
    settings = json.loads(recipe.pipeline)
    for other in (settings | {"text_version": 1}, settings | {"another": 1}, settings | {"dialect": "unknown"}, ["a"]):
        assert TextPipeline.from_recipe(replace(recipe, pipeline=json.dumps(other))) is None
    for other in ("anything", ""):
        assert TextPipeline.from_recipe(replace(recipe, pipeline=other)) is None


def test_the_detected_dialect_of_an_index_of_another_version_is_kept() -> None:
    detected = TextPipeline(dialect=DIALECTS["obsidian"], detects_dialect=True).build_recipe(FakeEmbedder())
    older = replace(detected, pipeline=json.dumps(json.loads(detected.pipeline) | {"text_version": 1}))
    assert TextPipeline(detects_dialect=True).with_detected(older).dialect.name == "obsidian"
    assert TextPipeline().with_detected(older) == TextPipeline()


@pytest.mark.model
def test_the_old_generation_answers_during_a_change_of_the_real_model(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    subjects = ["sourdough bread", "bicycle repair", "the tides", "mountain huts", "printing presses"]
    repository.commit(
        {f"{n}.md": f"# {subjects[n % 5]} {n}\n\nNotes on {subjects[n % 5]}, part {n}.\n" for n in range(100)}
    )
    before = bootstrap.build_service(load_settings(tmp_path / "data"))
    before.add("notes", str(repository.path), {})
    before.get_handle("notes").sync()
    expected = before.get_handle("notes").search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
    before.close()

    service = bootstrap.build_service(load_settings(tmp_path / "data", overrides={"model": "bge-small-en-v1.5"}))
    handle = service.get_handle("notes")
    done: list[object] = []
    rebuild = Thread(target=lambda: done.append(handle.sync()))
    first = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
    assert [(hit.path, hit.distance) for hit in first.hits] == [(hit.path, hit.distance) for hit in expected.hits]
    rebuild.start()
    answers = 0
    while rebuild.is_alive():
        answer = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
        assert not answer.degraded, answer.notes
        assert "sourdough" in answer.hits[0].name
        answers += 1
    rebuild.join()
    assert len(done) == 1
    assert answers
    state = handle.get_status().state
    assert state is not None
    assert state.recipe.model == "bge-small-en-v1.5" != DEFAULT_MODEL
    after = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
    assert "sourdough" in after.hits[0].name
    assert after.hits[0].distance != expected.hits[0].distance, "by the new weights"
    assert handle.check() == []
    service.close()


@pytest.mark.slow
def test_the_old_generation_follows_head_between_the_slices_of_a_rebuild(wiki: DamagedWiki) -> None:
    wiki.use_model(GatedEmbedder(48, name="newer"))
    paused = 0
    while True:
        try:
            report = wiki.handle.sync(pause=lambda: Pause.AFTER_BATCH)
            break
        except SyncPaused:
            paused += 1
        state = wiki.handle.get_status().state
        assert state is not None
        assert (state.generation, state.revision) == (1, wiki.repository.get_head())
        wiki.assert_healthy()
        if paused < 4:
            wiki.repository.commit({f"later-{paused}.md": f"# Later\n\nzebra{paused}\n"})
    assert paused > 4
    assert report.rebuilt
    assert {f"later-{n}" for n in (1, 2, 3)} <= {page.path for page in wiki.handle.pages.list(limit=1000).pages}
    wiki.assert_healthy()
