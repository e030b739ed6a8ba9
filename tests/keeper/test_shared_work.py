"""A keeper that shares the work with others: it does its own part, and calls them for theirs."""

import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from git_repository import Repository
from keeper_ground import Ground, WatchedEmbedder, many, until

from wikiholt.errors import DatabaseAway, LockTimeout, WikiNotFound
from wikiholt.keeper import JobState, Keeper, Pace
from wikiholt.keeper import turns as turns_module
from wikiholt.keeper.entries import Entry
from wikiholt.ports import Call


class Rota:
    """Shifts as a test wants them."""

    def __init__(self) -> None:
        self.own: set[str] = set()
        self.woken: list[tuple[str, Call]] = []
        self.away = False
        self.called: Callable[[str, Call], None] = lambda _, __: None
        self.closed = False

    def mine(self) -> Set[str]:
        return frozenset(self.own)

    def wake(self, wiki_id: str, why: Call) -> None:
        if self.away:
            raise DatabaseAway("away")
        self.woken.append((wiki_id, why))

    def begin(self, called: Callable[[str, Call], None]) -> None:
        self.called = called

    def close(self) -> None:
        self.closed = True

    def have(self, *wiki_ids: str) -> None:
        self.own = set(wiki_ids)
        self.called("", Call.SHIFTS)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path, WatchedEmbedder())
    yield made
    made.close()


@pytest.fixture
def rota() -> Rota:
    return Rota()


@pytest.fixture
def keeper(ground: Ground, rota: Rota) -> Keeper:
    """A keeper that looks by itself once an hour only."""
    made = Keeper(ground.service, Pace(1, 0.1, 3600.0, lambda _: 3600.0), ground.find, shifts=rota)
    ground.keepers.append(made)
    return made


def two(ground: Ground) -> tuple[str, str]:
    for slug in ("mine", "theirs"):
        ground.repository(slug, {"Home.md": f"# Home\n\nAbout {slug}\n"})
    mine, theirs = ground.registered("mine", "theirs")
    return mine, theirs


def indexed(ground: Ground, wiki_id: str) -> int:
    """How many pages its index has."""
    with closing(ground.store.open(wiki_id)) as index:
        return len(index.pages())


def test_only_wikis_of_this_node_are_looked_after(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    mine, theirs = two(ground)
    keeper.start()
    rota.have(mine)
    until(lambda: ground.finds("mine", "about", "Home"))
    assert keeper.counters().wikis == 1
    assert ground.store.published(theirs) is None
    rota.have(theirs)
    until(lambda: ground.finds("theirs", "about", "Home"))
    until(lambda: keeper.counters().wikis == 1)
    assert keeper.stop(30)
    assert rota.closed


def test_a_sync_under_way_ends_early_when_its_wiki_becomes_anothers(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    ground.repository("mine", many(200, "leek"))
    (mine,) = ground.registered("mine")
    embedder = ground.embedder
    assert isinstance(embedder, WatchedEmbedder)
    gate = embedder.hold("leek")
    keeper.start()
    rota.have(mine)
    assert embedder.reached.wait(60)
    rota.have()
    until(lambda: keeper.counters().wikis == 0)
    gate.set()
    until(lambda: keeper.counters().pauses == 1)
    assert 0 < indexed(ground, mine) < 200
    # The same node may get it back, and goes on from there.
    rota.have(mine)
    until(lambda: indexed(ground, mine) == 200)


def test_what_is_asked_for_anothers_wiki_goes_to_it(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    mine, theirs = two(ground)
    keeper.start()
    rota.have(mine)
    keeper.wake(theirs)
    keeper.mend(theirs)
    for _ in range(3):
        keeper.asked(theirs)
    assert keeper.reindex(theirs).state is JobState.QUEUED
    assert [why for _, why in rota.woken] == [Call.WAKE, Call.MEND, Call.ASKED, Call.REINDEX]
    assert {wiki_id for wiki_id, _ in rota.woken} == {theirs}
    assert keeper.job(theirs).open
    with pytest.raises(WikiNotFound):
        keeper.reindex("a" * 20)


def test_calls_of_others_are_answered_for_this_nodes_wikis_only(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    mine, theirs = two(ground)
    keeper.start()
    rota.have(mine)
    until(lambda: ground.finds("mine", "about", "Home"))
    Repository(ground.wikis / "mine").commit({"Chard.md": "# Chard\n\nChard by the wall\n"})
    for why in (Call.WAKE, Call.MEND, Call.ASKED, Call.REINDEX):
        rota.called(theirs, why)
    rota.called("a" * 20, Call.WAKE)
    rota.called(mine, Call.WAKE)
    until(lambda: ground.finds("mine", "chard", "Chard"))
    assert keeper.counters().wikis == 1
    assert rota.woken == []


def test_a_node_that_cannot_be_called_costs_nobody_a_request(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    _, theirs = two(ground)
    rota.away = True
    keeper.wake(theirs)
    keeper.mend(theirs)
    keeper.asked(theirs)
    assert keeper.reindex(theirs).state is JobState.QUEUED
    assert not keeper.fresh(theirs, 0.05)


def test_who_waits_for_anothers_wiki_sees_when_its_index_has_come(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    _, theirs = two(ground)
    rota.wake = lambda wiki_id, why: ground.service.background("theirs").sync() and None  # type: ignore[assignment]
    assert keeper.fresh(theirs, 60)
    assert keeper.fresh(theirs, 0)
    Repository(ground.wikis / "theirs").commit({"New.md": "# New\n\nnew\n"})
    rota.wake = lambda wiki_id, why: None  # type: ignore[assignment]
    assert not keeper.fresh(theirs, 0.05)
    assert not keeper.fresh("a" * 20, 0.05)


def test_how_a_wiki_stands_is_told_by_its_node_and_read_by_the_others(
    ground: Ground, rota: Rota, keeper: Keeper
) -> None:
    mine, _ = two(ground)
    other = Keeper(ground.service, Pace(), ground.find, shifts=Rota())
    keeper.start()
    rota.have(mine)
    until(lambda: ground.finds("mine", "about", "Home"))
    assert other.standing(mine).error is None
    head = ground.wikis / "mine" / ".git" / "HEAD"
    kept = head.read_text()
    head.write_text("ref: refs/heads/nothing\n")
    keeper.wake(mine)
    until(lambda: other.standing(mine).failures == 1)
    told, known = other.standing(mine), keeper.standing(mine)
    assert known.error is not None
    assert told.error is not None
    assert (type(told.error), told.error.message, told.error.hint) == (
        type(known.error),
        known.error.message,
        known.error.hint,
    )
    assert told.next_try_seconds > 0
    head.write_text(kept)
    keeper.wake(mine)
    until(lambda: other.standing(mine).failures == 0)
    assert other.standing(mine).error is None


def test_a_note_that_makes_no_sense_says_nothing(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    _, theirs = two(ground)
    for text in ("", "{", "[]", "7", '{"missing": 1}', '{"error": ["x"]}'):
        ground.store.keep_note(theirs, "standing", text, make=True)
        assert keeper.standing(theirs).failures == 0


def test_the_registry_is_read_again_only_when_it_has_changed(
    ground: Ground, rota: Rota, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = two(ground)
    lists = list[int]()
    listed = ground.service.registry.list
    monkeypatch.setattr(ground.service.registry, "list", lambda: lists.append(1) or listed())
    rota.own = {mine}
    for _ in range(5):
        keeper._roots.look()
    assert len(lists) == 1
    ground.service.registry.change("mine", {"interval": "7"})
    for _ in range(5):
        keeper._roots.look()
    assert len(lists) == 2


def test_a_wiki_of_another_node_that_was_removed_is_not_found_again(ground: Ground, rota: Rota, keeper: Keeper) -> None:
    mine, _ = two(ground)
    rota.own = {mine}
    keeper._roots.look()
    ground.service.registry.remove("theirs")
    for _ in range(3):
        keeper._roots.look()
    assert [wiki.slug for wiki in ground.service.registry.list()] == ["mine"]


def test_an_idle_node_asks_the_store_for_its_wikis_seldom_and_finds_what_others_wrote_when_it_does(
    ground: Ground, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = two(ground)
    stamps = list[str]()
    stamp = ground.store.stamp
    monkeypatch.setattr(ground.store, "stamp", lambda wiki_id: stamps.append(wiki_id) or stamp(wiki_id))
    keeper = Keeper(ground.service, Pace(1, 0.1, 3600.0, lambda _: 0.01), shifts=rota)
    ground.keepers.append(keeper)
    rota.own = {mine}
    keeper.start()
    until(lambda: keeper.counters().syncs == 1 and not keeper.counters().running)
    looks = keeper.counters().looks
    until(lambda: keeper.counters().looks > looks + 5)
    asked = len(stamps)
    until(lambda: keeper.counters().looks > looks + 50)
    assert len(stamps) <= asked + 2
    # Somebody else writes the index: the next turn, or the next time it asks, finds that.
    with closing(ground.service.lent("mine", ground.embedder)) as elsewhere:
        elsewhere.reindex()
    monkeypatch.setattr(turns_module, "_TRUST", 0.0)
    entry = keeper._board.get(mine)
    assert entry is not None
    entry.trusted_until = 0.0
    until(lambda: entry.stamp == stamp(mine))


def test_a_database_that_is_away_is_no_failure_of_the_wiki(
    ground: Ground, rota: Rota, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = two(ground)
    writing, tried = ground.store.writing, list[str]()

    def refused(wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        tried.append(wiki_id)
        if len(tried) < 4:
            raise DatabaseAway("away")
        return writing(wiki_id, timeout)

    monkeypatch.setattr(ground.store, "writing", refused)
    monkeypatch.setattr(turns_module, "_BUSY_DELAY", 0.01)
    keeper.start()
    rota.have(mine)
    until(lambda: ground.finds("mine", "about", "Home"))
    assert len(tried) == 4
    assert keeper.counters().failures == 0
    assert keeper.standing(mine).error is None


def test_a_wiki_that_stays_locked_in_the_database_is_tried_ever_less_often_and_then_at_once(
    ground: Ground, rota: Rota, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = two(ground)
    writing, tried, delays = ground.store.writing, list[float](), list[float]()
    schedule = keeper._board.schedule

    def refused(wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        tried.append(time.monotonic())
        if len(tried) < 5:
            raise LockTimeout("locked")
        return writing(wiki_id, timeout)

    def scheduled(entry: Entry, at: float) -> None:
        if entry.lock_timeouts > len(delays):
            delays.append(at - time.monotonic())
        schedule(entry, at)

    monkeypatch.setattr(ground.store, "writing", refused)
    monkeypatch.setattr(keeper._board, "schedule", scheduled)
    monkeypatch.setattr(turns_module, "_BUSY_DELAY", 0.1)
    monkeypatch.setattr(turns_module, "_MAX_LOCK_DELAY_S", 0.5)
    keeper.start()
    rota.have(mine)
    until(lambda: ground.finds("mine", "about", "Home"))
    assert [round(delay, 1) for delay in delays] == [0.2, 0.4, 0.5, 0.5]
    until(lambda: keeper._entry(mine).lock_timeouts == 0)
    assert keeper.counters().failures == 0
