"""A sync that lets others go first, or has to stop: what it committed stays, no page is half there."""

from collections.abc import Callable

import pytest
from keeper_ground import Ground, many

from wikiholt.batches import Pause, Paused

CHUNKS = 9


def long_pages(count: int) -> dict[str, str | bytes | None]:
    sections = [f"## Part {part}\n\n" + " ".join(f"word{part}x{n}" for n in range(60)) for part in range(CHUNKS)]
    return {f"p{page:03}.md": f"# Page {page}\n\n" + "\n\n".join(sections) for page in range(count)}


def after(calls: int, then: Pause) -> Callable[[], Pause]:
    """Go on so many times, then say this."""
    left = iter(range(calls))
    return lambda: Pause.GO_ON if next(left, None) is not None else then


@pytest.mark.parametrize("then", [Pause.AFTER_THIS, Pause.AT_ONCE])
def test_a_paused_sync_leaves_whole_pages_and_the_next_goes_on(ground: Ground, then: Pause) -> None:
    ground.repository("garden", long_pages(150))
    ground.registered("garden")
    wiki = ground.service.wiki("garden")
    with pytest.raises(Paused):
        wiki.sync(pause=after(4, then))
    state = wiki.status().state
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
    assert len(ground.embedder.embedded) - len(set(ground.embedder.embedded)) <= 2 * CHUNKS
    assert embedded < len(ground.embedder.embedded)


def test_a_sync_that_always_has_to_pause_still_comes_to_its_end(ground: Ground) -> None:
    ground.repository("garden", many(400, "garden"))
    ground.registered("garden")
    wiki = ground.service.wiki("garden")
    for turn in range(20):
        try:
            wiki.sync(pause=lambda: Pause.AFTER_THIS)
        except Paused:
            assert turn < 10
        else:
            break
    assert wiki.settled_at() is not None
    assert len(ground.embedder.embedded) == len(set(ground.embedder.embedded)) == 400


def test_a_sync_stopped_before_its_first_page_changes_nothing(ground: Ground) -> None:
    ground.repository("garden", many(100, "garden"))
    ground.registered("garden")
    wiki = ground.service.wiki("garden")
    with pytest.raises(Paused):
        wiki.sync(pause=lambda: Pause.AT_ONCE)
    assert wiki.check() == []
    assert wiki.sync().added == 100


def test_a_paused_reindexing_leaves_the_old_index_serving_and_is_gone_on_with(ground: Ground) -> None:
    ground.repository("garden", many(200, "garden"))
    ground.registered("garden")
    wiki = ground.service.wiki("garden")
    wiki.sync()
    ground.embedder.embedded.clear()
    with pytest.raises(Paused):
        wiki.reindex(pause=after(3, Pause.AFTER_THIS))
    before = wiki.status().state
    assert before is not None
    assert (before.generation, before.pages) == (1, 200)
    assert wiki.sync().unchanged == 200
    report = wiki.reindex()
    assert report.rebuilt
    now = wiki.status().state
    assert now is not None
    assert (now.generation, now.pages) == (2, 200)
    assert len(ground.embedder.embedded) == 200
