"""The link between workers and the scheduler: messages through a pipe, counters through a file."""

import os
from pathlib import Path

import pytest

from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import Busy
from wikiholt.sync.nodes import SchedulerLink, handle_worker_requests, publish_counters
from wikiholt.sync.wiki_records import SchedulerCounters


class FakeScheduler:
    def __init__(self) -> None:
        self.requests: list[tuple[str, NodeMessage]] = []

    def handle_request(self, wiki_id: str, message: NodeMessage) -> None:
        self.requests.append((wiki_id, message))


def test_messages_wait_until_the_scheduler_reads_them_and_reading_ends_with_the_last_writer(tmp_path: Path) -> None:
    scheduler, (reader, writer) = FakeScheduler(), os.pipe()
    link = SchedulerLink(writer, tmp_path / "counters")
    assert link.get_assigned() == frozenset()
    os.write(writer, b"anged half-a-message\n")
    for message in (NodeMessage.CHANGED, NodeMessage.REINDEX):
        link.send("the-wiki", message)
    os.close(writer)
    handle_worker_requests(reader, scheduler)  # type: ignore[arg-type]
    assert scheduler.requests == [("the-wiki", NodeMessage.CHANGED), ("the-wiki", NodeMessage.REINDEX)]


def test_a_full_pipe_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    link = SchedulerLink(writer, tmp_path / "counters")
    os.write(writer, b"\n" * (1 << 20))  # as much as fits
    with pytest.raises(Busy):
        link.send("the-wiki", NodeMessage.CHANGED)
    os.close(reader)
    os.close(writer)


def test_workers_read_the_counters_of_the_scheduler(tmp_path: Path) -> None:
    link = SchedulerLink(os.open(os.devnull, os.O_WRONLY), tmp_path / "counters")
    assert link.get_counters() == SchedulerCounters()
    for count in (2, 3):
        publish_counters(tmp_path / "counters", SchedulerCounters(wikis=count))
        assert link.get_counters() == SchedulerCounters(wikis=count)
    os.close(link._pipe)
