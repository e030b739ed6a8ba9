"""A sync that pauses or stops: committed pages stay, and no page is incomplete."""

from collections.abc import Callable

import pytest

from tests.sync.scheduler_fixtures import SchedulerFixture, make_pages
from wikiholt.domain.search import Confidence, SearchMode
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.search.request import SearchRequest

CHUNKS_PER_PAGE = 9


def make_long_pages(count: int) -> dict[str, str | bytes | None]:
    sections = [
        f"## Part {part}\n\n" + " ".join(f"word{part}x{n}" for n in range(60)) for part in range(CHUNKS_PER_PAGE)
    ]
    return {f"p{page:03}.md": f"# Page {page}\n\n" + "\n\n".join(sections) for page in range(count)}


def make_pause(calls: int, pause: Pause) -> Callable[[], Pause]:
    """Returns CONTINUE for this number of calls, then `pause`."""
    left = iter(range(calls))
    return lambda: Pause.CONTINUE if next(left, None) is not None else pause


@pytest.mark.slow
@pytest.mark.parametrize("then", [Pause.AFTER_BATCH, Pause.NOW])
def test_a_paused_sync_leaves_complete_pages_and_the_next_one_continues(fixture: SchedulerFixture, then: Pause) -> None:
    fixture.create_repository("garden", make_long_pages(150))
    fixture.register_wikis("garden")
    wiki = fixture.service.get_handle("garden")
    with pytest.raises(SyncPaused):
        wiki.sync(pause=make_pause(2, then))
    state = wiki.get_status().state
    assert state is not None
    assert 0 < state.pages < 150
    assert state.revision is None
    assert state.problems == 0
    assert wiki.check() == []
    assert wiki.sync(words_only=True).added == 150 - state.pages
    with pytest.raises(SyncPaused):
        wiki.sync(pause=make_pause(20, then))
    state = wiki.get_status().state
    assert state is not None
    assert 0 < state.pending_chunks < state.chunks == 150 * CHUNKS_PER_PAGE
    assert state.revision is not None
    assert wiki.get_indexed_revision() is None
    assert wiki.check() == []
    embedded = len(fixture.embedder.embedded)
    report = wiki.sync()
    assert (report.added, report.unchanged) == (0, 150)
    assert wiki.check() == []
    # Only the texts of incomplete pages are embedded a second time.
    assert len(fixture.embedder.embedded) - len(set(fixture.embedder.embedded)) <= 2 * CHUNKS_PER_PAGE
    assert embedded < len(fixture.embedder.embedded)


def test_a_sync_that_pauses_after_every_batch_still_finishes(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(400, "garden"))
    fixture.register_wikis("garden")
    wiki = fixture.service.get_handle("garden")
    for attempt in range(60):
        try:
            wiki.sync(pause=lambda: Pause.AFTER_BATCH)
        except SyncPaused:
            assert attempt < 50
        else:
            break
    assert wiki.get_indexed_revision() is not None
    assert len(fixture.embedder.embedded) == len(set(fixture.embedder.embedded)) == 400


@pytest.mark.slow
def test_all_pages_are_found_by_their_words_before_one_is_embedded(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(200, "garden"))
    fixture.register_wikis("garden")
    wiki = fixture.service.get_handle("garden")
    wiki.sync(words_only=True)
    assert fixture.embedder.embedded == []
    found = wiki.search(SearchRequest("garden text 150"))
    assert found.hits[0].path == "garden-0150"
    assert (found.degraded, found.stale, found.nothing_relevant, found.meaning_ready) == (True, False, False, 0)
    assert {hit.confidence for hit in found.hits} == {Confidence.UNKNOWN}
    assert "search by meaning: 0 % ready" in found.notes
    nothing = wiki.search(SearchRequest("xylophone"))
    assert (nothing.hits, nothing.nothing_relevant) == ((), False)
    assert wiki.search(SearchRequest("garden", mode=SearchMode.SEMANTIC)).hits == ()
    assert wiki.find_similar("garden-0150").hits == ()
    # The pages that the search found are embedded first. A killed process keeps them.
    with pytest.raises(SyncPaused):
        wiki.sync(pause=make_pause(2, Pause.AFTER_BATCH))
    first = fixture.embedder.embedded[:16]
    assert any("garden text 150" in text for text in first)
    part = wiki.search(SearchRequest("garden text 150"))
    assert part.degraded
    assert 0 < part.meaning_ready < 1
    wiki.sync()
    assert len(fixture.embedder.embedded) == len(set(fixture.embedder.embedded)) == 200
    whole = wiki.search(SearchRequest("garden text 150"))
    assert (whole.degraded, whole.meaning_ready, whole.hits[0].path) == (False, 1, "garden-0150")
    assert Confidence.UNKNOWN not in {hit.confidence for hit in whole.hits}
    assert wiki.check() == []


def test_a_sync_stopped_before_its_first_page_leaves_an_intact_index(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(100, "garden"))
    fixture.register_wikis("garden")
    wiki = fixture.service.get_handle("garden")
    with pytest.raises(SyncPaused):
        wiki.sync(pause=lambda: Pause.NOW)
    assert wiki.check() == []
    assert fixture.embedder.embedded == []
    assert wiki.sync().pages == 100


def test_a_paused_reindex_keeps_the_old_index_published_and_is_continued(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(200, "garden"))
    fixture.register_wikis("garden")
    wiki = fixture.service.get_handle("garden")
    wiki.sync()
    fixture.embedder.embedded.clear()
    with pytest.raises(SyncPaused):
        wiki.sync(pause=make_pause(3, Pause.AFTER_BATCH), from_scratch=True)
    before = wiki.get_status().state
    assert before is not None
    assert (before.generation, before.pages) == (1, 200)
    assert wiki.sync().unchanged == 200
    report = wiki.sync(from_scratch=True)
    assert report.rebuilt
    now = wiki.get_status().state
    assert now is not None
    assert (now.generation, now.pages) == (2, 200)
    assert len(fixture.embedder.embedded) == 200
