"""A keeper that shares the work with others: it does its own part, and calls them for theirs."""

import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages, wait_until
from tests.support.git_repository import Repository
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import DatabaseUnavailable, LockTimeout, WikiNotFound
from wikiholt.scheduler import tasks as turns_module
from wikiholt.scheduler.reindex_job import ReindexState
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.wiki_records import SchedulerConfig, WikiEntry


class FakeAssignments:
    """Shifts as a test wants them."""

    def __init__(self) -> None:
        self.assigned: set[str] = set()
        self.sent: list[tuple[str, NodeMessage]] = []
        self.unavailable = False
        self.on_message: Callable[[str, NodeMessage], None] = lambda _, __: None
        self.closed = False

    def get_assigned(self) -> Set[str]:
        return frozenset(self.assigned)

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        if self.unavailable:
            raise DatabaseUnavailable("away")
        self.sent.append((wiki_id, message))

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        self.on_message = on_message

    def close(self) -> None:
        self.closed = True

    def assign(self, *wiki_ids: str) -> None:
        self.assigned = set(wiki_ids)
        self.on_message("", NodeMessage.ASSIGNMENTS)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[SchedulerFixture]:
    made = SchedulerFixture(tmp_path, RecordingEmbedder())
    yield made
    made.close()


@pytest.fixture
def rota() -> FakeAssignments:
    return FakeAssignments()


@pytest.fixture
def keeper(ground: SchedulerFixture, rota: FakeAssignments) -> Scheduler:
    """A keeper that looks by itself once an hour only."""
    made = Scheduler(
        ground.service, SchedulerConfig(1, 0.1, 3600.0, lambda _: 3600.0), ground.find_repositories, assignments=rota
    )
    ground.schedulers.append(made)
    return made


def register_two(ground: SchedulerFixture) -> tuple[str, str]:
    for slug in ("mine", "theirs"):
        ground.create_repository(slug, {"Home.md": f"# Home\n\nAbout {slug}\n"})
    mine, theirs = ground.register_wikis("mine", "theirs")
    return mine, theirs


def is_indexed(ground: SchedulerFixture, wiki_id: str) -> int:
    """How many pages its index has."""
    with closing(ground.store.open(wiki_id)) as index:
        return len(index.get_page_blobs())


def test_only_wikis_of_this_node_are_looked_after(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    mine, theirs = register_two(ground)
    keeper.start()
    rota.assign(mine)
    wait_until(lambda: ground.can_find("mine", "about", "Home"))
    assert keeper.get_counters().wikis == 1
    assert ground.store.get_published(theirs) is None
    rota.assign(theirs)
    wait_until(lambda: ground.can_find("theirs", "about", "Home"))
    wait_until(lambda: keeper.get_counters().wikis == 1)
    assert keeper.stop(30)
    assert rota.closed


def test_a_sync_under_way_ends_early_when_its_wiki_becomes_anothers(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    ground.create_repository("mine", make_pages(200, "leek"))
    (mine,) = ground.register_wikis("mine")
    embedder = ground.embedder
    assert isinstance(embedder, RecordingEmbedder)
    gate = embedder.block("leek")
    keeper.start()
    rota.assign(mine)
    assert embedder.reached.wait(60)
    rota.assign()
    wait_until(lambda: keeper.get_counters().wikis == 0)
    gate.set()
    wait_until(lambda: keeper.get_counters().pauses == 1)
    assert 0 < is_indexed(ground, mine) < 200
    # The same node may get it back, and goes on from there.
    rota.assign(mine)
    wait_until(lambda: is_indexed(ground, mine) == 200)


def test_what_is_asked_for_anothers_wiki_goes_to_it(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    mine, theirs = register_two(ground)
    keeper.start()
    rota.assign(mine)
    keeper.notify_changed(theirs)
    keeper.request_repair(theirs)
    for _ in range(3):
        keeper.touch(theirs)
    assert keeper.reindex(theirs).state is ReindexState.QUEUED
    assert [why for _, why in rota.sent] == [
        NodeMessage.CHANGED,
        NodeMessage.REPAIR,
        NodeMessage.TOUCH,
        NodeMessage.REINDEX,
    ]
    assert {wiki_id for wiki_id, _ in rota.sent} == {theirs}
    assert keeper.get_reindex_job(theirs).is_open
    with pytest.raises(WikiNotFound):
        keeper.reindex("a" * 20)


def test_calls_of_others_are_answered_for_this_nodes_wikis_only(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    mine, theirs = register_two(ground)
    keeper.start()
    rota.assign(mine)
    wait_until(lambda: ground.can_find("mine", "about", "Home"))
    Repository(ground.wikis / "mine").commit({"Chard.md": "# Chard\n\nChard by the wall\n"})
    for why in (NodeMessage.CHANGED, NodeMessage.REPAIR, NodeMessage.TOUCH, NodeMessage.REINDEX):
        rota.on_message(theirs, why)
    rota.on_message("a" * 20, NodeMessage.CHANGED)
    rota.on_message(mine, NodeMessage.CHANGED)
    wait_until(lambda: ground.can_find("mine", "chard", "Chard"))
    assert keeper.get_counters().wikis == 1
    assert rota.sent == []


def test_a_node_that_cannot_be_called_costs_nobody_a_request(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    _, theirs = register_two(ground)
    rota.unavailable = True
    keeper.notify_changed(theirs)
    keeper.request_repair(theirs)
    keeper.touch(theirs)
    assert keeper.reindex(theirs).state is ReindexState.QUEUED
    assert not keeper.wait_until_fresh(theirs, 0.05)


def test_who_waits_for_anothers_wiki_sees_when_its_index_has_come(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    _, theirs = register_two(ground)
    rota.send = lambda wiki_id, why: ground.service.get_background_handle("theirs").sync() and None  # type: ignore[assignment]
    assert keeper.wait_until_fresh(theirs, 60)
    assert keeper.wait_until_fresh(theirs, 0)
    Repository(ground.wikis / "theirs").commit({"New.md": "# New\n\nnew\n"})
    rota.send = lambda wiki_id, why: None  # type: ignore[assignment]
    assert not keeper.wait_until_fresh(theirs, 0.05)
    assert not keeper.wait_until_fresh("a" * 20, 0.05)


def test_how_a_wiki_stands_is_told_by_its_node_and_read_by_the_others(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    mine, _ = register_two(ground)
    other = Scheduler(ground.service, SchedulerConfig(), ground.find_repositories, assignments=FakeAssignments())
    keeper.start()
    rota.assign(mine)
    wait_until(lambda: ground.can_find("mine", "about", "Home"))
    assert other.get_sync_state(mine).error is None
    head = ground.wikis / "mine" / ".git" / "HEAD"
    kept = head.read_text()
    head.write_text("ref: refs/heads/nothing\n")
    keeper.notify_changed(mine)
    wait_until(lambda: other.get_sync_state(mine).failures == 1)
    told, known = other.get_sync_state(mine), keeper.get_sync_state(mine)
    assert known.error is not None
    assert told.error is not None
    assert (type(told.error), told.error.message, told.error.hint) == (
        type(known.error),
        known.error.message,
        known.error.hint,
    )
    assert told.next_try_seconds > 0
    head.write_text(kept)
    keeper.notify_changed(mine)
    wait_until(lambda: other.get_sync_state(mine).failures == 0)
    assert other.get_sync_state(mine).error is None


def test_a_note_that_makes_no_sense_says_nothing(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    _, theirs = register_two(ground)
    for text in ("", "{", "[]", "7", '{"missing": 1}', '{"error": ["x"]}'):
        ground.store.set_note(theirs, "standing", text, create=True)
        assert keeper.get_sync_state(theirs).failures == 0


def test_the_registry_is_read_again_only_when_it_has_changed(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(ground)
    lists = list[int]()
    listed = ground.service.registry.list_wikis
    monkeypatch.setattr(ground.service.registry, "list_wikis", lambda: lists.append(1) or listed())
    rota.assigned = {mine}
    for _ in range(5):
        keeper._discovery.scan()
    assert len(lists) == 1
    ground.service.registry.update_settings("mine", {"interval": "7"})
    for _ in range(5):
        keeper._discovery.scan()
    assert len(lists) == 2


def test_a_wiki_of_another_node_that_was_removed_is_not_found_again(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler
) -> None:
    mine, _ = register_two(ground)
    rota.assigned = {mine}
    keeper._discovery.scan()
    ground.service.registry.remove("theirs")
    for _ in range(3):
        keeper._discovery.scan()
    assert [wiki.slug for wiki in ground.service.registry.list_wikis()] == ["mine"]


def test_an_idle_node_asks_the_store_for_its_wikis_seldom_and_finds_what_others_wrote_when_it_does(
    ground: SchedulerFixture, rota: FakeAssignments, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(ground)
    stamps = list[str]()
    stamp = ground.store.get_change_token
    monkeypatch.setattr(ground.store, "get_change_token", lambda wiki_id: stamps.append(wiki_id) or stamp(wiki_id))
    keeper = Scheduler(ground.service, SchedulerConfig(1, 0.1, 3600.0, lambda _: 0.01), assignments=rota)
    ground.schedulers.append(keeper)
    rota.assigned = {mine}
    keeper.start()
    wait_until(lambda: keeper.get_counters().syncs == 1 and not keeper.get_counters().running)
    looks = keeper.get_counters().looks
    wait_until(lambda: keeper.get_counters().looks > looks + 5)
    asked = len(stamps)
    wait_until(lambda: keeper.get_counters().looks > looks + 50)
    assert len(stamps) <= asked + 2
    # Somebody else writes the index: the next turn, or the next time it asks, finds that.
    with closing(ground.service.open_with_embedder("mine", ground.embedder)) as elsewhere:
        elsewhere.reindex()
    monkeypatch.setattr(turns_module, "_TOKEN_TTL_S", 0.0)
    entry = keeper._state.get(mine)
    assert entry is not None
    entry.trusted_until = 0.0
    wait_until(lambda: entry.change_token == stamp(mine))


def test_a_database_that_is_away_is_no_failure_of_the_wiki(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(ground)
    writing, tried = ground.store.write_lock, list[str]()

    def refused(wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        tried.append(wiki_id)
        if len(tried) < 4:
            raise DatabaseUnavailable("away")
        return writing(wiki_id, timeout)

    monkeypatch.setattr(ground.store, "write_lock", refused)
    monkeypatch.setattr(turns_module, "_BUSY_RETRY_S", 0.01)
    keeper.start()
    rota.assign(mine)
    wait_until(lambda: ground.can_find("mine", "about", "Home"))
    assert len(tried) == 4
    assert keeper.get_counters().failures == 0
    assert keeper.get_sync_state(mine).error is None


def test_a_wiki_that_stays_locked_in_the_database_is_tried_ever_less_often_and_then_at_once(
    ground: SchedulerFixture, rota: FakeAssignments, keeper: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(ground)
    writing, tried, delays = ground.store.write_lock, list[float](), list[float]()
    schedule = keeper._state.schedule

    def refused(wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        tried.append(time.monotonic())
        if len(tried) < 5:
            raise LockTimeout("locked")
        return writing(wiki_id, timeout)

    def scheduled(entry: WikiEntry, at: float) -> None:
        if entry.lock_timeouts > len(delays):
            delays.append(at - time.monotonic())
        schedule(entry, at)

    monkeypatch.setattr(ground.store, "write_lock", refused)
    monkeypatch.setattr(keeper._state, "schedule", scheduled)
    monkeypatch.setattr(turns_module, "_BUSY_RETRY_S", 0.1)
    monkeypatch.setattr(turns_module, "_MAX_LOCK_DELAY_S", 0.5)
    keeper.start()
    rota.assign(mine)
    wait_until(lambda: ground.can_find("mine", "about", "Home"))
    assert [round(delay, 1) for delay in delays] == [0.2, 0.4, 0.5, 0.5]
    wait_until(lambda: keeper._get_entry(mine).lock_timeouts == 0)
    assert keeper.get_counters().failures == 0
