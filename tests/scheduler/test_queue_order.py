"""Who is served when: fair turns, wikis somebody waits for, many that wait."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages, wait_until
from tests.support.git_repository import Repository
from wikiholt.scheduler.wiki_queue import SyncPriority, WikiQueue


@pytest.mark.slow
def test_a_tiny_wiki_is_done_long_before_a_huge_one_that_began_earlier(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder(seconds=0.03)
    ground.embedder = embedder
    gate = embedder.block("huge text 60")
    ground.create_repository("huge", make_pages(1500, "huge"))
    keeper = ground.make_scheduler(workers=1)
    assert embedder.reached.wait(60)
    ground.create_repository("tiny", {"A.md": "# A\n\ntiny text\n"})
    wait_until(lambda: "tiny" in {wiki.slug for wiki in ground.service.registry.list_wikis()})
    wait_until(lambda: keeper.get_sync_state(ground.get_wiki_id("tiny")).waiting)
    gate.set()
    wait_until(lambda: ground.service.get_handle("huge").get_indexed_revision() is not None)
    assert embedder.find_first("tiny text") < embedder.find_last("huge text") - 1000
    assert keeper.get_counters().pauses >= 1
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 1501


@pytest.mark.slow
def test_a_huge_wiki_nobody_waits_for_others_beside_is_not_interrupted(ground: SchedulerFixture) -> None:
    ground.embedder = RecordingEmbedder(seconds=0.03)
    ground.create_repository("huge", make_pages(600, "huge"))
    keeper = ground.make_scheduler(reindex_share=0.05)
    wait_until(lambda: ground.can_find("huge", "huge text 599", "huge-0599"))
    assert keeper.get_counters().pauses == 0


@pytest.mark.slow
def test_a_woken_wiki_goes_before_those_that_are_only_due(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    gate = embedder.block("first text")
    slugs = [f"w{number:02}" for number in range(12)]
    for slug in ("a-first", *slugs):
        word = slug.removeprefix("a-")
        ground.create_repository(slug, {"A.md": f"# A\n\n{word} text\n"})
    (*_, last) = ground.register_wikis("a-first", *slugs)
    keeper = ground.make_scheduler(workers=1, reindex_share=60.0)
    assert embedder.reached.wait(60)
    wait_until(lambda: keeper.get_counters().waiting == 12)
    with keeper._state.changed:  # taken by the lane of the urgent at once, were it not held
        keeper.notify_changed(last)
        assert keeper._state._sync_queue.pop() == last
        keeper._state.enqueue(keeper._get_entry(last), SyncPriority.NOTIFIED)
    wait_until(lambda: any("w11 text" in text for text in embedder.embedded))
    gate.set()
    wait_until(lambda: keeper.get_counters().waiting == keeper.get_counters().running == 0)
    assert embedder.find_first("w11 text") < embedder.find_first("w00 text")


@pytest.mark.slow
def test_a_wiki_asked_for_first_is_indexed_first_among_fifty_that_wait(
    ground: SchedulerFixture, tmp_path: Path
) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    slugs = [f"w{number:02}" for number in range(50)]
    template = Repository(tmp_path / "template")
    for slug in slugs:
        template.commit({"A.md": f"# A\n\n{slug} text\n"})
        template.run_git("clone", "--quiet", ".", str(ground.wikis / slug))
    ids = ground.register_wikis(*slugs)
    gate = embedder.block("w00 text")
    keeper = ground.make_scheduler(workers=1, start=False)
    keeper.touch(ids[37])
    keeper.touch(ids[21])
    keeper.start()
    assert embedder.reached.wait(60)
    wait_until(lambda: any("w21 text" in text for text in embedder.embedded))
    gate.set()
    wait_until(lambda: keeper.get_counters().syncs == 50)
    order = [text.split()[-2] for text in embedder.embedded]
    assert sorted(order) == slugs
    assert {"w37", "w21"} <= set(order[:3])


def test_fresh_sees_a_commit_made_just_before(ground: SchedulerFixture) -> None:
    repository = ground.create_repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    (wiki,) = ground.register_wikis("garden")
    keeper = ground.make_scheduler(interval=3600.0)
    assert keeper.wait_until_fresh(wiki, 60)
    for number in range(5):
        repository.commit({f"P{number}.md": f"# P\n\nnumber {number} came\n"})
        assert keeper.wait_until_fresh(wiki, 60)
        assert ground.can_find("garden", f"number {number} came", f"P{number}")


def test_fresh_is_served_while_every_worker_is_at_work_on_something_large(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    gate = embedder.block("huge text 60")
    repository = ground.create_repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    ground.create_repository("huge", make_pages(600, "huge"))
    garden, huge = ground.register_wikis("garden", "huge")
    keeper = ground.make_scheduler(workers=1, interval=3600.0)
    assert embedder.reached.wait(60)
    repository.commit({"B.md": "# B\n\nIt came.\n"})
    assert keeper.wait_until_fresh(garden, 60)
    assert ground.can_find("garden", "it came", "B")
    assert keeper.get_activity(huge) is not None
    gate.set()


def test_fresh_gives_up_in_time_and_says_so(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    gate = embedder.block("slow text")
    broken = ground.create_repository("broken", {"A.md": "# A\n\nOnce.\n"})
    (broken.path / ".git" / "HEAD").write_text("gone\n")
    ground.create_repository("slow", {"A.md": "# A\n\nslow text\n"})
    slow, bad = ground.register_wikis("slow", "broken")
    keeper = ground.make_scheduler()
    assert not keeper.wait_until_fresh(slow, 0.05)
    assert not keeper.wait_until_fresh(bad, 60)
    gate.set()


# ── the line itself ──────────────────────────────────────────────────────────────────────────────

_STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(SyncPriority)), max_size=60)


@given(_STEPS)
def test_a_line_gives_everyone_once_and_better_ranks_first(steps: list[tuple[str, SyncPriority]]) -> None:
    line, best = WikiQueue(), dict[str, SyncPriority]()
    for name, rank in steps:
        line.add(name, rank)
        best[name] = min(rank, best.get(name, rank))
    assert len(line) == len(best)
    taken = list(iter(line.pop, None))
    assert sorted(taken) == sorted(best)
    assert all(best[one] <= best[two] for one, two in pairwise(taken))
    assert not len(line)


def test_no_rank_starves(ground: SchedulerFixture) -> None:
    line = WikiQueue()
    line.add("patient", SyncPriority.SCHEDULED)
    for number in range(100):
        line.add(f"urgent-{number}", SyncPriority.INTERACTIVE)
        if line.pop() == "patient":
            break
    assert "patient" not in line


def test_the_lane_of_the_urgent_leaves_the_others_alone() -> None:
    line = WikiQueue()
    line.add("due", SyncPriority.SCHEDULED)
    assert line.pop(urgent_only=True) is None
    line.add("woken", SyncPriority.NOTIFIED)
    assert line.pop(urgent_only=True) == "woken"
    assert "due" in line
