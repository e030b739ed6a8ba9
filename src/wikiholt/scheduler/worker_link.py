"""The link between the worker processes of a service and its scheduler process: a pipe and a file.

Workers write one line per message into the pipe. The process that started them keeps both ends open, so messages wait
while the scheduler is replaced. The scheduler writes its counters into the file, which every worker reads.
"""

import json
import os
import select
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import Busy
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.wiki_records import SchedulerCounters

_READ_BYTES = 65536
_INTERVAL_S = 0.5
"""Seconds between two looks at the counters."""


class SchedulerLink:
    """`NodeAssignments` of a worker: no wiki is assigned to it, and its messages go to the scheduler process."""

    def __init__(self, pipe: int, counters_file: Path) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._counters_file = counters_file

    def get_assigned(self) -> Set[str]:
        return frozenset()

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        """Send a message. Raises Busy if the scheduler has not read for a long time."""
        try:
            os.write(self._pipe, f"{message.value} {wiki_id}\n".encode())
        except OSError as error:
            raise Busy("the scheduler process does not answer", hint="see the log of the service") from error

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        """Do nothing: a worker gets no messages."""

    def close(self) -> None:
        """Do nothing: the pipe ends with the process."""

    def get_counters(self) -> SchedulerCounters:
        """The last counters of the scheduler process; zero before there are any."""
        try:
            return SchedulerCounters(**json.loads(self._counters_file.read_text()))
        except (OSError, ValueError, TypeError):
            return SchedulerCounters()


class WorkerRequests:
    """Receives the messages of the workers, and publishes the counters, in one thread of the scheduler process."""

    def __init__(self, pipe: int, counters_file: Path, scheduler: Scheduler) -> None:
        self._pipe = pipe
        self._counters_file = counters_file
        self._scheduler = scheduler
        self._published: SchedulerCounters | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="worker-requests", daemon=True)

    def start(self) -> None:
        self._publish_counters()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rest = b""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while not self._stop.is_set():
            if poll.poll(_INTERVAL_S * 1000):
                received = os.read(self._pipe, _READ_BYTES)
                if not received:  # no process writes any more, and the pipe stays ready
                    self._stop.wait(_INTERVAL_S)
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._handle_line(line)
            self._publish_counters()

    def _handle_line(self, line: bytes) -> None:
        """Handle a message. The first one after a crash of the scheduler may be incomplete, and is ignored."""
        word, _, wiki_id = line.decode("utf-8", "replace").partition(" ")
        with suppress(ValueError):
            self._scheduler.handle_request(wiki_id, NodeMessage(word))

    def _publish_counters(self) -> None:
        counters = self._scheduler.get_counters()
        if counters == self._published:
            return
        temporary = self._counters_file.with_suffix(".new")
        with suppress(OSError):  # the next change is written again
            temporary.write_text(json.dumps(asdict(counters)))
            temporary.replace(self._counters_file)
            self._published = counters
