"""A new generation is built beside the old one, which answers with the model it was built with and follows HEAD."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.damaged_wiki import DamagedWiki, GatedEmbedder, overwrite_bytes, wait_until
from tests.support.git_repository import Repository
from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.index import Recipe
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.errors import ModelMissing, SyncFailed
from wikiholt.indexing import pipeline as indexing_pipeline
from wikiholt.indexing.batch import Pause, SyncPaused
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.bm25 import build_page_terms


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[DamagedWiki]:
    made = DamagedWiki(tmp_path, pages=320)
    yield made
    made.close()


def search_by_meaning(ward: DamagedWiki, query: str) -> SearchResult:
    return ward.handle.search(SearchRequest(query, mode=SearchMode.SEMANTIC))


class BlockedEmbedder:
    """A model whose batches wait, each until it is let through."""

    def __init__(self, name: str = "newer", dimensions: int = 48) -> None:
        self.reached, self.released = Event(), Event()
        self.embedder = GatedEmbedder(dimensions, name=name)
        self.embedder.gate = self._wait

    def _wait(self) -> None:
        self.reached.set()
        assert self.released.wait(60)


def test_while_another_model_is_taken_up_the_old_one_answers_and_follows_the_wiki(ward: DamagedWiki) -> None:
    old = ward.embedder
    held = BlockedEmbedder()
    ward.use_model(held.embedder)
    sync = Thread(target=ward.handle.sync)
    sync.start()
    assert held.reached.wait(60)
    answer = search_by_meaning(ward, "unique7")
    assert (answer.hits[0].path, answer.degraded) == ("page-7", False)
    old.embedded.clear()
    ward.repository.commit({"fresh.md": "# Fresh\n\nzebra crossing\n"})

    def let_one_pass() -> bool:
        # Between two batches the generation that serves is brought to HEAD.
        held.reached.clear()
        held.released.set()
        held.released.clear()
        held.reached.wait(5)
        return search_by_meaning(ward, "zebra crossing").hits[0].path == "fresh"

    wait_until(let_one_pass)
    assert sync.is_alive(), "the new one is still being built"
    assert len(old.embedded) == 1
    state = ward.handle.get_status().state
    assert state is not None
    assert (state.generation, state.recipe.fingerprint) == (1, old.fingerprint)
    held.embedder.gate = None
    held.released.set()
    sync.join(120)
    state = ward.handle.get_status().state
    assert state is not None
    assert (state.generation, state.recipe.fingerprint) == (2, held.embedder.fingerprint)
    assert search_by_meaning(ward, "zebra crossing").hits[0].path == "fresh", (
        "what was saved meanwhile is in the new one"
    )
    ward.assert_healthy()


def test_when_the_old_model_is_gone_words_alone_answer_and_say_so(ward: DamagedWiki) -> None:
    held = BlockedEmbedder()
    ward.use_model(held.embedder)

    def gone(recipe: Recipe) -> Embedder:
        raise ModelMissing(f"there is no {recipe.fingerprint}", hint="none")

    ward.service.components = replace(ward.service.components, previous_model=gone)
    answer = ward.handle.search(SearchRequest("unique7"))
    assert answer.hits[0].path == "page-7"
    assert answer.degraded
    assert "keyword only" in answer.notes[0]
    with pytest.raises(ModelMissing):
        search_by_meaning(ward, "unique7")
    held.released.set()
    ward.handle.sync()
    ward.assert_healthy()


def test_the_old_model_is_let_go_once_nothing_needs_it(ward: DamagedWiki) -> None:
    asked: list[str] = []
    former = ward.load_previous_model

    def noted(recipe: Recipe) -> Embedder:
        asked.append(recipe.model)
        return former(recipe)

    ward.use_model(GatedEmbedder(48, name="newer"))
    ward.service.components = replace(ward.service.components, previous_model=noted)
    search_by_meaning(ward, "unique7")
    search_by_meaning(ward, "unique8")
    assert asked == ["fake"], "loaded by the name the index keeps, once"
    ward.handle.sync()
    search_by_meaning(ward, "unique7")
    assert asked == ["fake"]


def test_a_change_of_chunking_takes_over_what_is_the_same_and_searches_go_on(ward: DamagedWiki) -> None:
    ward.settings = {"chunk.target_tokens": 100, "chunk.overlap_tokens": 10}
    ward.reopen()
    assert search_by_meaning(ward, "unique7").hits[0].path == "page-7"
    ward.embedder.embedded.clear()
    report = ward.handle.sync()
    assert report.rebuilt
    assert ward.embedder.embedded == [], "short pages are cut as before"
    state = ward.handle.get_status().state
    assert state is not None
    assert state.generation == 2
    ward.assert_healthy()


@pytest.mark.slow
def test_an_index_of_an_older_version_of_the_text_answers_until_another_was_built_beside_it(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(indexing_pipeline, "TEXT_VERSION", indexing_pipeline.TEXT_VERSION - 1)
        older.setattr(
            indexing_pipeline,
            "build_page_terms",
            lambda page, language: replace(build_page_terms(page, language), name=""),
        )
        ward.reopen()
        ward.handle.reindex()
    ward.reopen()
    ward.embedder.embedded.clear()
    answers: list[tuple[int, bool, bool]] = []

    def answered(_: SyncProgress) -> None:
        """Between two batches of the new generation."""
        state = ward.handle.get_status().state
        assert state is not None
        assert search_by_meaning(ward, "unique7").hits[0].path == "page-7"
        found = ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
        assert found.hits[0].path == "page-7"
        answers.append((state.generation, found.degraded, found.stale))
        if len(answers) == 2:
            ward.repository.commit({"fresh.md": "# Zebra\n\ncrossing\n"})

    report = ward.handle.sync(answered)
    assert report.rebuilt
    assert len(answers) > 4
    assert answers[0] == (2, False, False)
    assert answers[-1] == (2, False, True), "an older way of reading is not gone on with; the answer says what it lacks"
    assert [text for text in ward.embedder.embedded if "zebra" not in text.lower()] == [], "all else is taken over"
    state = ward.handle.get_status().state
    assert state is not None
    assert (state.generation, f"text {indexing_pipeline.TEXT_VERSION}," in state.recipe.pipeline) == (3, True)
    assert [file.name for file in sorted(ward.directory.glob("g*.sqlite"))] == ["g000003.sqlite"]
    assert ward.handle.search(SearchRequest("zebra", mode=SearchMode.KEYWORD)).hits[0].path == "fresh", (
        "by names, as words are now"
    )
    ward.assert_healthy()


def test_a_generation_that_is_not_whole_never_takes_over(ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    ward.use_model(GatedEmbedder(48, name="newer"))
    store = ward.service.components.store
    wiki_id = ward.handle.wiki.id
    really = type(store).create_generation

    class Spoiled:
        """The generation, with a fault that shows when it is checked."""

        def __init__(self, index: object) -> None:
            self._index = index

        def check(self, stop: object = None) -> list[str]:
            return ["a planted fault"]

        def __getattr__(self, name: str) -> object:
            return getattr(self._index, name)

    monkeypatch.setattr(type(store), "create_generation", lambda *given, **named: Spoiled(really(*given, **named)))
    with pytest.raises(SyncFailed) as caught:
        ward.handle.sync()
    assert "keeps answering" in caught.value.message
    assert store.get_published(wiki_id) == 1
    assert search_by_meaning(ward, "unique7").hits[0].path == "page-7"
    monkeypatch.undo()
    ward.handle.sync()
    ward.assert_healthy()


def test_damage_to_the_generation_that_is_built_harms_not_the_one_that_serves(ward: DamagedWiki) -> None:
    held = BlockedEmbedder()
    ward.use_model(held.embedder)
    failed: list[Exception] = []

    def sync() -> None:
        try:
            ward.handle.sync()
        except Exception as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    thread = Thread(target=sync)
    thread.start()
    assert held.reached.wait(60)
    wait_until((ward.directory / "g000002.sqlite").exists)
    overwrite_bytes(ward.directory / "g000002.sqlite", 0, bytes(30_000))
    (ward.directory / "g000002.sqlite-wal").write_bytes(b"")
    held.embedder.gate = None
    held.released.set()
    thread.join(120)
    assert not ward.handle.get_status().quarantined, "the one that serves was never given up"
    assert search_by_meaning(ward, "unique7").hits[0].path == "page-7"
    ward.handle.sync()
    ward.assert_healthy()


def test_a_pipeline_is_read_back_from_the_recipe_of_an_index() -> None:
    pipeline = TextPipeline(120, 30, "german", "otterwiki", 5000, ("/drafts", 'say "no",\n'))
    recipe = pipeline.build_recipe(FakeEmbedder())
    assert TextPipeline.from_recipe(recipe) == pipeline
    assert (
        TextPipeline.from_recipe(replace(recipe, pipeline="text 1, english, github, up to 5 bytes, chunks 1/0")) is None
    )
    assert TextPipeline.from_recipe(replace(recipe, pipeline="anything")) is None


KILLED_SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.testing import FakeEmbedder

service = bootstrap.build_service(load_settings(Path(sys.argv[1])))
embedder = FakeEmbedder(48, name="newer")
old = FakeEmbedder()
service.components = replace(
    service.components, embedder=lambda: embedder, identity=None, previous_model=lambda _: old
)
print("ready", flush=True)
service.get_handle("notes").sync()
"""


@pytest.mark.process
def test_killed_at_any_moment_of_a_rebuild_one_of_the_two_serves(ward: DamagedWiki) -> None:
    for delay in (0.0, 0.15, 0.4, 0.8, 1.2):
        command = [sys.executable, "-c", KILLED_SCRIPT, str(ward.place / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)  # a random instant is what is tested
            os.kill(process.pid, signal.SIGKILL)
        ward.reopen()
        answer = ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
        assert answer.hits[0].path == "page-7"
    ward.use_model(GatedEmbedder(48, name="newer"))
    ward.handle.sync()
    ward.assert_healthy()


@pytest.mark.model
@pytest.mark.parametrize("reindexed", [False, True])
def test_a_change_of_precision_with_the_real_model_is_answered_throughout_by_the_old_one(
    tmp_path: Path, reindexed: bool
) -> None:
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

    service = bootstrap.build_service(load_settings(tmp_path / "data", overrides={"precision": "fp32"}))
    handle = service.get_handle("notes")
    done: list[object] = []
    work = Thread(target=lambda: done.append(handle.reindex() if reindexed else handle.sync()))
    first = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
    assert [(hit.path, hit.distance) for hit in first.hits] == [(hit.path, hit.distance) for hit in expected.hits]
    work.start()
    answers = 0
    while work.is_alive():
        answer = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
        assert not answer.degraded, answer.notes
        assert "sourdough" in answer.hits[0].name
        answers += 1
    work.join()
    assert len(done) == 1
    assert answers > 3
    state = handle.get_status().state
    assert state is not None
    assert "/fp32/" in state.recipe.fingerprint
    assert (state.recipe.model, state.recipe.precision) == ("all-MiniLM-L6-v2", "fp32")
    after = handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC))
    assert "sourdough" in after.hits[0].name
    assert after.hits[0].distance != expected.hits[0].distance, "by the new weights"
    assert handle.check() == []
    service.close()


@pytest.mark.slow
def test_a_rebuild_in_slices_lets_the_old_generation_follow_between_them(ward: DamagedWiki) -> None:
    ward.use_model(GatedEmbedder(48, name="newer"))
    paused = 0
    while True:
        try:
            report = ward.handle.sync(pause=lambda: Pause.AFTER_BATCH)
            break
        except SyncPaused:
            paused += 1
        state = ward.handle.get_status().state
        assert state is not None
        assert (state.generation, state.revision) == (1, ward.repository.get_head())
        ward.assert_healthy()
        if paused < 4:
            ward.repository.commit({f"later-{paused}.md": f"# Later\n\nzebra{paused}\n"})
    assert paused > 4
    assert report.rebuilt
    assert {f"later-{n}" for n in (1, 2, 3)} <= {page.path for page in ward.handle.pages.list(limit=1000).pages}
    ward.assert_healthy()
