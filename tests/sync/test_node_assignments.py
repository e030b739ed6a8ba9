"""A scheduler on one of several nodes: it syncs its assigned wikis, and sends messages for the others."""

from collections.abc import Callable, Iterator, Set
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import DatabaseUnavailable
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
