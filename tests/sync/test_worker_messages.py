"""The link between workers and the scheduler: messages through a pipe, counters through a file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wait import wait_until
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import Busy
from wikiholt.sync.nodes import SchedulerLink, WorkerRequests
from wikiholt.sync.wiki_records import SchedulerCounters


class FakeScheduler:
    def __init__(self) -> None:
        self.requests: list[tuple[str, NodeMessage]] = []
        self.counters = SchedulerCounters(wikis=2)

    def handle_request(self, wiki_id: str, message: NodeMessage) -> None:
        self.requests.append((wiki_id, message))

    def get_counters(self) -> SchedulerCounters:
        return self.counters


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_messages_wait_until_the_scheduler_reads_them(pipe: tuple[int, int], tmp_path: Path) -> None:
    scheduler, (reader, writer) = FakeScheduler(), pipe
    link = SchedulerLink(writer, tmp_path / "counters")
    assert link.get_counters() == SchedulerCounters()
    assert link.get_assigned() == frozenset()
    os.write(writer, b"anged half-a-message\n")
    for message in (NodeMessage.CHANGED, NodeMessage.REINDEX):
        link.send("the-wiki", message)
    requests = WorkerRequests(reader, tmp_path / "counters", scheduler)  # type: ignore[arg-type]
    requests.start()
    wait_until(lambda: len(scheduler.requests) == 2)
    assert scheduler.requests == [("the-wiki", NodeMessage.CHANGED), ("the-wiki", NodeMessage.REINDEX)]
    assert link.get_counters() == scheduler.counters
    scheduler.counters = SchedulerCounters(wikis=3)
    wait_until(lambda: link.get_counters().wikis == 3)
    requests.close()


def test_a_full_pipe_is_an_error_and_not_a_wait(pipe: tuple[int, int], tmp_path: Path) -> None:
    link = SchedulerLink(pipe[1], tmp_path / "counters")
    os.write(pipe[1], b"\n" * (1 << 20))  # as much as fits
    with pytest.raises(Busy):
        link.send("the-wiki", NodeMessage.CHANGED)


def test_a_pipe_without_writers_does_not_keep_a_core_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    requests = WorkerRequests(reader, tmp_path / "counters", FakeScheduler())  # type: ignore[arg-type]
    waits: list[float] = []

    def record(seconds: float) -> bool:
        waits.append(seconds)
        return requests._stop.is_set()

    monkeypatch.setattr(requests._stop, "wait", record)
    requests.start()
    wait_until(lambda: waits)
    requests.close()
    os.close(reader)
    assert min(waits) > 0
