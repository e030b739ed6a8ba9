"""The order of syncs: fair slices, priorities, many waiting wikis."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.sync.wiki_records import SyncPriority, WikiQueue


@pytest.mark.slow
def test_a_tiny_wiki_finishes_long_before_a_huge_one_that_started_earlier(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder(seconds=0.03)
    fixture.embedder = embedder
    gate = embedder.block("huge text 60")
    fixture.create_repository("huge", make_pages(1500, "huge"))
    scheduler = fixture.make_scheduler(workers=1)
    assert embedder.reached.wait(TIMEOUT_S)
    fixture.create_repository("tiny", {"A.md": "# A\n\ntiny text\n"})
    wait_until(lambda: "tiny" in {wiki.slug for wiki in fixture.service.registry.list_wikis()})
    wait_until(lambda: scheduler.get_sync_state(fixture.get_wiki_id("tiny")).waiting)
    gate.set()
    wait_until(lambda: fixture.service.get_handle("huge").get_indexed_revision() is not None)
    assert embedder.find_first("tiny text") < embedder.find_last("huge text") - 1000
    assert scheduler.get_counters().pauses >= 1
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 1501


@pytest.mark.slow
def test_a_huge_wiki_is_not_interrupted_if_no_other_wiki_waits(fixture: SchedulerFixture) -> None:
    fixture.embedder = RecordingEmbedder(seconds=0.03)
    fixture.create_repository("huge", make_pages(600, "huge"))
    scheduler = fixture.make_scheduler(reindex_share=0.05)
    wait_until(lambda: fixture.can_find("huge", "huge text 599", "huge-0599"))
    assert scheduler.get_counters().pauses == 0


def test_a_notified_wiki_is_synced_before_scheduled_ones(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    gate = embedder.block("first text")
    slugs = [f"w{number:02}" for number in range(12)]
    for slug in ("a-first", *slugs):
        word = slug.removeprefix("a-")
        fixture.create_repository(slug, {"A.md": f"# A\n\n{word} text\n"})
    (*_, last) = fixture.register_wikis("a-first", *slugs)
    scheduler = fixture.make_scheduler(workers=1, reindex_share=60.0)
    assert embedder.reached.wait(TIMEOUT_S)
    wait_until(lambda: scheduler.get_counters().waiting == 12)
    with scheduler._state.changed:  # without the lock, the worker for urgent wikis would take it immediately
        scheduler.notify_changed(last)
        assert scheduler._state._sync_queue.pop() == last
        scheduler._state.enqueue(scheduler._get_entry(last), SyncPriority.NOTIFIED)
    wait_until(lambda: any("w11 text" in text for text in embedder.embedded))
    gate.set()
    wait_until(lambda: scheduler.get_counters().waiting == scheduler.get_counters().running == 0)
    assert embedder.find_first("w11 text") < embedder.find_first("w00 text")


@pytest.mark.slow
def test_searched_wikis_are_indexed_first_among_fifty_that_wait(fixture: SchedulerFixture, tmp_path: Path) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    slugs = [f"w{number:02}" for number in range(50)]
    template = Repository(tmp_path / "template")
    for slug in slugs:
        template.commit({"A.md": f"# A\n\n{slug} text\n"})
        template.run_git("clone", "--quiet", ".", str(fixture.wikis / slug))
    ids = fixture.register_wikis(*slugs)
    gate = embedder.block("w00 text")
    scheduler = fixture.make_scheduler(workers=1, start=False)
    scheduler.touch(ids[37])
    scheduler.touch(ids[21])
    scheduler.start()
    assert embedder.reached.wait(TIMEOUT_S)
    wait_until(lambda: len(embedder.embedded) == 2)
    gate.set()
    wait_until(lambda: scheduler.get_counters().syncs == 50)
    order = [text.split()[-2] for text in embedder.embedded]
    assert sorted(order) == slugs
    assert {"w37", "w21"} == set(order[:2])


def test_waiting_until_fresh_includes_a_commit_made_just_before(fixture: SchedulerFixture) -> None:
    repository = fixture.create_repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    (wiki,) = fixture.register_wikis("garden")
    scheduler = fixture.make_scheduler(interval=3600.0)
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    for number in range(5):
        repository.commit({f"P{number}.md": f"# P\n\nnumber {number} came\n"})
        assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
        assert fixture.can_find("garden", f"number {number} came", f"P{number}")


def test_waiting_until_fresh_succeeds_while_every_worker_is_busy(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    gate = embedder.block("huge text 60")
    repository = fixture.create_repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    fixture.create_repository("huge", make_pages(600, "huge"))
    garden, huge = fixture.register_wikis("garden", "huge")
    scheduler = fixture.make_scheduler(workers=1, interval=3600.0)
    assert embedder.reached.wait(TIMEOUT_S)
    repository.commit({"B.md": "# B\n\nIt came.\n"})
    assert scheduler.wait_until_fresh(garden, TIMEOUT_S)
    assert fixture.can_find("garden", "it came", "B")
    assert scheduler.get_activity(huge) is not None
    gate.set()


def test_waiting_until_fresh_returns_false_on_timeout_or_failure(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    gate = embedder.block("slow text")
    broken = fixture.create_repository("broken", {"A.md": "# A\n\nOnce.\n"})
    (broken.path / ".git" / "HEAD").write_text("gone\n")
    fixture.create_repository("slow", {"A.md": "# A\n\nslow text\n"})
    slow, bad = fixture.register_wikis("slow", "broken")
    scheduler = fixture.make_scheduler()
    assert not scheduler.wait_until_fresh(slow, 0.05)
    assert not scheduler.wait_until_fresh(bad, TIMEOUT_S)
    gate.set()


# ── the queue itself ─────────────────────────────────────────────────────────────────────────────

_STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(SyncPriority)), max_size=60)


@given(_STEPS)
def test_the_queue_returns_every_wiki_once_in_order_of_priority(steps: list[tuple[str, SyncPriority]]) -> None:
    queue, best = WikiQueue(), dict[str, SyncPriority]()
    for name, priority in steps:
        queue.add(name, priority)
        best[name] = min(priority, best.get(name, priority))
    assert len(queue) == len(best)
    taken = list(iter(queue.pop, None))
    assert sorted(taken) == sorted(best)
    assert all(best[one] <= best[two] for one, two in pairwise(taken))
    assert not len(queue)


def test_no_priority_starves(fixture: SchedulerFixture) -> None:
    queue = WikiQueue()
    queue.add("patient", SyncPriority.SCHEDULED)
    for number in range(100):
        queue.add(f"urgent-{number}", SyncPriority.INTERACTIVE)
        if queue.pop() == "patient":
            break
    assert "patient" not in queue


def test_an_urgent_only_pop_ignores_scheduled_wikis() -> None:
    queue = WikiQueue()
    queue.add("due", SyncPriority.SCHEDULED)
    assert queue.pop(urgent_only=True) is None
    queue.add("woken", SyncPriority.NOTIFIED)
    assert queue.pop(urgent_only=True) == "woken"
    assert "due" in queue
