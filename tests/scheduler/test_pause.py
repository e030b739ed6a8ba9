"""A sync that lets others go first, or has to stop: what it committed stays, no page is half there."""

from collections.abc import Callable

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture, make_pages
from wikiholt.indexing.batch import Pause, SyncPaused

CHUNKS_PER_PAGE = 9


def make_long_pages(count: int) -> dict[str, str | bytes | None]:
    sections = [
        f"## Part {part}\n\n" + " ".join(f"word{part}x{n}" for n in range(60)) for part in range(CHUNKS_PER_PAGE)
    ]
    return {f"p{page:03}.md": f"# Page {page}\n\n" + "\n\n".join(sections) for page in range(count)}


def make_pause(calls: int, pause: Pause) -> Callable[[], Pause]:
    """Go on so many times, then say this."""
    left = iter(range(calls))
    return lambda: Pause.CONTINUE if next(left, None) is not None else pause


@pytest.mark.slow
@pytest.mark.parametrize("then", [Pause.AFTER_BATCH, Pause.NOW])
def test_a_paused_sync_leaves_whole_pages_and_the_next_goes_on(ground: SchedulerFixture, then: Pause) -> None:
    ground.create_repository("garden", make_long_pages(150))
    ground.register_wikis("garden")
    wiki = ground.service.get_handle("garden")
    with pytest.raises(SyncPaused):
        wiki.sync(pause=make_pause(4, then))
    state = wiki.get_status().state
    assert state is not None
    assert 0 < state.pages < 150
    assert state.revision is None
    assert state.problems == 0
    assert wiki.check() == []
    embedded = len(ground.embedder.embedded)
    report = wiki.sync()
    assert (report.added, report.unchanged) == (150 - state.pages, state.pages)
    assert wiki.check() == []
    # At most the texts of pages that were half done come once more.
    assert len(ground.embedder.embedded) - len(set(ground.embedder.embedded)) <= 2 * CHUNKS_PER_PAGE
    assert embedded < len(ground.embedder.embedded)


def test_a_sync_that_always_has_to_pause_still_comes_to_its_end(ground: SchedulerFixture) -> None:
    ground.create_repository("garden", make_pages(400, "garden"))
    ground.register_wikis("garden")
    wiki = ground.service.get_handle("garden")
    for turn in range(20):
        try:
            wiki.sync(pause=lambda: Pause.AFTER_BATCH)
        except SyncPaused:
            assert turn < 10
        else:
            break
    assert wiki.get_indexed_revision() is not None
    assert len(ground.embedder.embedded) == len(set(ground.embedder.embedded)) == 400


def test_a_sync_stopped_before_its_first_page_changes_nothing(ground: SchedulerFixture) -> None:
    ground.create_repository("garden", make_pages(100, "garden"))
    ground.register_wikis("garden")
    wiki = ground.service.get_handle("garden")
    with pytest.raises(SyncPaused):
        wiki.sync(pause=lambda: Pause.NOW)
    assert wiki.check() == []
    assert wiki.sync().added == 100


def test_a_paused_reindexing_leaves_the_old_index_serving_and_is_gone_on_with(ground: SchedulerFixture) -> None:
    ground.create_repository("garden", make_pages(200, "garden"))
    ground.register_wikis("garden")
    wiki = ground.service.get_handle("garden")
    wiki.sync()
    ground.embedder.embedded.clear()
    with pytest.raises(SyncPaused):
        wiki.reindex(pause=make_pause(3, Pause.AFTER_BATCH))
    before = wiki.get_status().state
    assert before is not None
    assert (before.generation, before.pages) == (1, 200)
    assert wiki.sync().unchanged == 200
    report = wiki.reindex()
    assert report.rebuilt
    now = wiki.get_status().state
    assert now is not None
    assert (now.generation, now.pages) == (2, 200)
    assert len(ground.embedder.embedded) == 200
