"""Who is served when: fair turns, wikis somebody waits for, many that wait."""

from itertools import pairwise
from pathlib import Path

from git_repository import Repository
from hypothesis import given
from hypothesis import strategies as st
from keeper_ground import Ground, WatchedEmbedder, many, until

from wikiholt.keeper.line import Line, Rank


def test_a_tiny_wiki_is_done_long_before_a_huge_one_that_began_earlier(ground: Ground) -> None:
    embedder = WatchedEmbedder(seconds=0.03)
    ground.embedder = embedder
    gate = embedder.hold("huge text 60")
    ground.repository("huge", many(1500, "huge"))
    keeper = ground.keeper(workers=1)
    assert embedder.reached.wait(60)
    ground.repository("tiny", {"A.md": "# A\n\ntiny text\n"})
    until(lambda: "tiny" in {wiki.slug for wiki in ground.service.registry.list()})
    until(lambda: keeper.standing(ground.id("tiny")).waiting)
    gate.set()
    until(lambda: ground.service.wiki("huge").settled_at() is not None)
    assert embedder.first("tiny text") < embedder.last("huge text") - 1000
    assert keeper.counters().pauses >= 1
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 1501


def test_a_huge_wiki_nobody_waits_for_others_beside_is_not_interrupted(ground: Ground) -> None:
    ground.embedder = WatchedEmbedder(seconds=0.03)
    ground.repository("huge", many(600, "huge"))
    keeper = ground.keeper(share=0.05)
    until(lambda: ground.finds("huge", "huge text 599", "huge-0599"))
    assert keeper.counters().pauses == 0


def test_a_woken_wiki_goes_before_those_that_are_only_due(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    gate = embedder.hold("first text")
    slugs = [f"w{number:02}" for number in range(12)]
    for slug in ("a-first", *slugs):
        word = slug.removeprefix("a-")
        ground.repository(slug, {"A.md": f"# A\n\n{word} text\n"})
    (*_, last) = ground.registered("a-first", *slugs)
    keeper = ground.keeper(workers=1, share=60.0)
    assert embedder.reached.wait(60)
    until(lambda: keeper.counters().waiting == 12)
    with keeper._board.changed:  # taken by the lane of the urgent at once, were it not held
        keeper.wake(last)
        assert keeper._board._syncs.take() == last
        keeper._board.put(keeper._entry(last), Rank.WOKEN)
    until(lambda: any("w11 text" in text for text in embedder.embedded))
    gate.set()
    until(lambda: keeper.counters().waiting == keeper.counters().running == 0)
    assert embedder.first("w11 text") < embedder.first("w00 text")


def test_a_wiki_asked_for_first_is_indexed_first_among_fifty_that_wait(ground: Ground, tmp_path: Path) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    slugs = [f"w{number:02}" for number in range(50)]
    template = Repository(tmp_path / "template")
    for slug in slugs:
        template.commit({"A.md": f"# A\n\n{slug} text\n"})
        template.git("clone", "--quiet", ".", str(ground.wikis / slug))
    ids = ground.registered(*slugs)
    gate = embedder.hold("w00 text")
    keeper = ground.keeper(workers=1, start=False)
    keeper.asked(ids[37])
    keeper.asked(ids[21])
    keeper.start()
    assert embedder.reached.wait(60)
    until(lambda: any("w21 text" in text for text in embedder.embedded))
    gate.set()
    until(lambda: keeper.counters().syncs == 50)
    order = [text.split()[-2] for text in embedder.embedded]
    assert sorted(order) == slugs
    assert {"w37", "w21"} <= set(order[:3])


def test_fresh_sees_a_commit_made_just_before(ground: Ground) -> None:
    repository = ground.repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    (wiki,) = ground.registered("garden")
    keeper = ground.keeper(interval=3600.0)
    assert keeper.fresh(wiki, 60)
    for number in range(5):
        repository.commit({f"P{number}.md": f"# P\n\nnumber {number} came\n"})
        assert keeper.fresh(wiki, 60)
        assert ground.finds("garden", f"number {number} came", f"P{number}")


def test_fresh_is_served_while_every_worker_is_at_work_on_something_large(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    gate = embedder.hold("huge text 60")
    repository = ground.repository("garden", {"A.md": "# A\n\nNothing yet.\n"})
    ground.repository("huge", many(600, "huge"))
    garden, huge = ground.registered("garden", "huge")
    keeper = ground.keeper(workers=1, interval=3600.0)
    assert embedder.reached.wait(60)
    repository.commit({"B.md": "# B\n\nIt came.\n"})
    assert keeper.fresh(garden, 60)
    assert ground.finds("garden", "it came", "B")
    assert keeper.activity(huge) is not None
    gate.set()


def test_fresh_gives_up_in_time_and_says_so(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    gate = embedder.hold("slow text")
    broken = ground.repository("broken", {"A.md": "# A\n\nOnce.\n"})
    (broken.path / ".git" / "HEAD").write_text("gone\n")
    ground.repository("slow", {"A.md": "# A\n\nslow text\n"})
    slow, bad = ground.registered("slow", "broken")
    keeper = ground.keeper()
    assert not keeper.fresh(slow, 0.05)
    assert not keeper.fresh(bad, 60)
    gate.set()


# ── the line itself ──────────────────────────────────────────────────────────────────────────────

_STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(Rank)), max_size=60)


@given(_STEPS)
def test_a_line_gives_everyone_once_and_better_ranks_first(steps: list[tuple[str, Rank]]) -> None:
    line, best = Line(), dict[str, Rank]()
    for name, rank in steps:
        line.put(name, rank)
        best[name] = min(rank, best.get(name, rank))
    assert len(line) == len(best)
    taken = list(iter(line.take, None))
    assert sorted(taken) == sorted(best)
    assert all(best[one] <= best[two] for one, two in pairwise(taken))
    assert not len(line)


def test_no_rank_starves(ground: Ground) -> None:
    line = Line()
    line.put("patient", Rank.DUE)
    for number in range(100):
        line.put(f"urgent-{number}", Rank.ASKED)
        if line.take() == "patient":
            break
    assert "patient" not in line


def test_the_lane_of_the_urgent_leaves_the_others_alone() -> None:
    line = Line()
    line.put("due", Rank.DUE)
    assert line.take(urgent_only=True) is None
    line.put("woken", Rank.WOKEN)
    assert line.take(urgent_only=True) == "woken"
    assert "due" in line
