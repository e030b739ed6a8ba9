"""A scheduler on one of several nodes: it syncs its assigned wikis, and sends messages for the others."""

from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import DatabaseUnavailable, WikiNotFound
from wikiholt.sync import tasks, wiki_records
from wikiholt.sync.reindex_job import ReindexState
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig


class FakeAssignments:
    """Node assignments that a test controls."""

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
            raise DatabaseUnavailable("unavailable")
        self.sent.append((wiki_id, message))

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        self.on_message = on_message

    def close(self) -> None:
        self.closed = True

    def assign(self, *wiki_ids: str) -> None:
        self.assigned = set(wiki_ids)
        self.on_message("", NodeMessage.ASSIGNMENTS)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[SchedulerFixture]:
    created = SchedulerFixture(tmp_path, RecordingEmbedder())
    yield created
    created.close()


@pytest.fixture
def assignments() -> FakeAssignments:
    return FakeAssignments()


@pytest.fixture
def scheduler(fixture: SchedulerFixture, assignments: FakeAssignments) -> Scheduler:
    """A scheduler that checks its wikis only once an hour."""
    created = Scheduler(
        fixture.service,
        SchedulerConfig(1, 0.1, 3600.0, lambda _: 3600.0),
        fixture.find_repositories,
        assignments=assignments,
    )
    fixture.schedulers.append(created)
    return created


def register_two(fixture: SchedulerFixture) -> tuple[str, str]:
    for slug in ("mine", "theirs"):
        fixture.create_repository(slug, {"Home.md": f"# Home\n\nAbout {slug}\n"})
    mine, theirs = fixture.register_wikis("mine", "theirs")
    return mine, theirs


def count_indexed_pages(fixture: SchedulerFixture, wiki_id: str) -> int:
    """The number of pages in the index."""
    with closing(fixture.store.open(wiki_id)) as index:
        return len(index.get_page_blobs())


def test_only_wikis_assigned_to_this_node_are_synced(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    mine, theirs = register_two(fixture)
    scheduler.start()
    assignments.assign(mine)
    wait_until(lambda: fixture.can_find("mine", "about", "Home"))
    assert scheduler.get_counters().wikis == 1
    assert fixture.store.get_published(theirs) is None
    assignments.assign(theirs)
    wait_until(lambda: fixture.can_find("theirs", "about", "Home"))
    wait_until(lambda: scheduler.get_counters().wikis == 1)
    assert scheduler.stop(TIMEOUT_S)
    assert assignments.closed


def test_a_running_sync_pauses_when_its_wiki_is_assigned_to_another_node(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    fixture.create_repository("mine", make_pages(200, "leek"))
    (mine,) = fixture.register_wikis("mine")
    embedder = fixture.embedder
    assert isinstance(embedder, RecordingEmbedder)
    gate = embedder.block("leek")
    scheduler.start()
    assignments.assign(mine)
    assert embedder.reached.wait(TIMEOUT_S)
    assignments.assign()
    wait_until(lambda: scheduler.get_counters().wikis == 0)
    gate.set()
    wait_until(lambda: scheduler.get_counters().pauses == 1)
    handle = fixture.service.get_handle("mine")
    assert handle.get_indexed_revision() is None
    # If the wiki is assigned to the node again, the sync continues.
    assignments.assign(mine)
    wait_until(lambda: handle.get_indexed_revision() is not None)
    assert count_indexed_pages(fixture, mine) == 200


def test_requests_for_a_wiki_of_another_node_are_sent_to_that_node(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    mine, theirs = register_two(fixture)
    scheduler.start()
    assignments.assign(mine)
    scheduler.notify_changed(theirs)
    scheduler.request_repair(theirs)
    for _ in range(3):
        scheduler.touch(theirs)
    assert scheduler.reindex(theirs).state is ReindexState.QUEUED
    assert [message for _, message in assignments.sent] == [
        NodeMessage.CHANGED,
        NodeMessage.REPAIR,
        NodeMessage.TOUCH,
        NodeMessage.REINDEX,
    ]
    assert {wiki_id for wiki_id, _ in assignments.sent} == {theirs}
    assert scheduler.get_reindex_job(theirs).is_open
    with pytest.raises(WikiNotFound):
        scheduler.reindex("a" * 20)


def test_messages_are_handled_only_for_wikis_assigned_to_this_node(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    mine, theirs = register_two(fixture)
    scheduler.start()
    assignments.assign(mine)
    wait_until(lambda: fixture.can_find("mine", "about", "Home"))
    Repository(fixture.wikis / "mine").commit({"Chard.md": "# Chard\n\nChard by the wall\n"})
    for message in (NodeMessage.CHANGED, NodeMessage.REPAIR, NodeMessage.TOUCH, NodeMessage.REINDEX):
        assignments.on_message(theirs, message)
    assignments.on_message("a" * 20, NodeMessage.CHANGED)
    assignments.on_message(mine, NodeMessage.CHANGED)
    wait_until(lambda: fixture.can_find("mine", "chard", "Chard"))
    assert scheduler.get_counters().wikis == 1
    assert assignments.sent == []


def test_a_message_that_cannot_be_sent_fails_no_request(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    _, theirs = register_two(fixture)
    assignments.unavailable = True
    scheduler.notify_changed(theirs)
    scheduler.request_repair(theirs)
    scheduler.touch(theirs)
    assert scheduler.reindex(theirs).state is ReindexState.QUEUED
    assert not scheduler.wait_until_fresh(theirs, 0.05)


def test_waiting_for_a_wiki_of_another_node_ends_when_its_index_is_fresh(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    _, theirs = register_two(fixture)
    assignments.send = lambda wiki_id, message: fixture.service.get_background_handle("theirs").sync() and None  # type: ignore[assignment]
    assert scheduler.wait_until_fresh(theirs, TIMEOUT_S)
    assert scheduler.wait_until_fresh(theirs, 0)
    Repository(fixture.wikis / "theirs").commit({"New.md": "# New\n\nnew\n"})
    assignments.send = lambda wiki_id, message: None  # type: ignore[assignment]
    assert not scheduler.wait_until_fresh(theirs, 0.05)
    assert not scheduler.wait_until_fresh("a" * 20, 0.05)


def test_the_sync_state_published_by_a_node_is_read_by_the_others(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(fixture)
    monkeypatch.setattr(wiki_records, "_FIRST_RETRY_S", 600.0)
    other = Scheduler(fixture.service, SchedulerConfig(), fixture.find_repositories, assignments=FakeAssignments())
    scheduler.start()
    assignments.assign(mine)
    wait_until(lambda: fixture.can_find("mine", "about", "Home"))
    assert other.get_sync_state(mine).error is None
    head = fixture.wikis / "mine" / ".git" / "HEAD"
    original = head.read_text()
    head.write_text("ref: refs/heads/nothing\n")
    scheduler.notify_changed(mine)
    wait_until(lambda: other.get_sync_state(mine).failures == 1)
    published, known = other.get_sync_state(mine), scheduler.get_sync_state(mine)
    assert known.error is not None
    assert published.error is not None
    assert (type(published.error), published.error.message, published.error.hint) == (
        type(known.error),
        known.error.message,
        known.error.hint,
    )
    head.write_text(original)
    scheduler.notify_changed(mine)
    wait_until(lambda: other.get_sync_state(mine).failures == 0)
    assert other.get_sync_state(mine).error is None


def test_an_invalid_state_note_is_ignored(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    _, theirs = register_two(fixture)
    for text in ("", "{", "[]", "7", '{"missing": 1}', '{"error": ["x"]}'):
        fixture.store.set_note(theirs, "sync-state", text, create=True)
        assert scheduler.get_sync_state(theirs).failures == 0


def test_a_removed_wiki_of_another_node_is_not_discovered_again(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler
) -> None:
    mine, _ = register_two(fixture)
    assignments.assigned = {mine}
    scheduler._discovery.scan()
    fixture.service.registry.remove("theirs")
    for _ in range(3):
        scheduler._discovery.scan()
    assert [wiki.slug for wiki in fixture.service.registry.list_wikis()] == ["mine"]


def test_an_unavailable_database_is_not_a_failure_of_the_wiki(
    fixture: SchedulerFixture, assignments: FakeAssignments, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = register_two(fixture)
    write_lock, attempts = fixture.store.write_lock, list[str]()

    def failing_write_lock(wiki_id: str, timeout_s: float) -> AbstractContextManager[None]:
        attempts.append(wiki_id)
        if len(attempts) < 4:
            raise DatabaseUnavailable("unavailable")
        return write_lock(wiki_id, timeout_s)

    monkeypatch.setattr(fixture.store, "write_lock", failing_write_lock)
    monkeypatch.setattr(tasks, "_BUSY_RETRY_S", 0.01)
    scheduler.start()
    assignments.assign(mine)
    wait_until(lambda: fixture.can_find("mine", "about", "Home"))
    assert len(attempts) == 4
    assert scheduler.get_counters().failures == 0
    assert scheduler.get_sync_state(mine).error is None
