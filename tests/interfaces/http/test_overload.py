"""More requests than can be answered at once: few searches run, a bounded number waits, the others get 503 at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import anyio.to_thread
import httpx
import pytest

from tests.interfaces.http.test_server import RunningServer
from tests.support.git_repository import Repository, hang_git
from tests.support.served_application import serve_application
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import Application
from wikiholt.git import process
from wikiholt.interfaces.http import middleware

WAITING = 3
SLOTS = middleware.count_slots(1)
SEARCH = "/w/alpha/api/v1/search?q=printer"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with serve_application(tmp_path, {"limit.waiting_requests": WAITING}) as served:
        running = RunningServer(served)
        yield running
        assert running.stop()


@dataclass
class BlockedSearches:
    """Searches that do not end before `release`; `started` has an entry for each that runs."""

    server: RunningServer
    release: Event = field(default_factory=Event)
    started: list[int] = field(default_factory=list)

    def wait_until_started(self, count: int) -> None:
        wait_until(lambda: len(self.started) >= count)


@pytest.fixture
def blocked(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedSearches]:
    searches = BlockedSearches(server)
    service = type(server.application.application.service)
    original = service.get_handle_of

    def wait_for_release(*arguments: object) -> object:
        searches.started.append(1)
        searches.release.wait(2 * TIMEOUT_S)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "get_handle_of", wait_for_release)
    yield searches
    searches.release.set()


@pytest.mark.slow
def test_only_as_many_searches_run_as_there_are_slots(
    blocked: BlockedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_COUNTED_S", 10 * TIMEOUT_S)
    server = blocked.server
    with ThreadPoolExecutor(SLOTS + WAITING + 1) as pool:
        accepted = [pool.submit(server.get, SEARCH) for _ in range(SLOTS)]
        blocked.wait_until_started(SLOTS)
        answers = [pool.submit(server.get, SEARCH) for _ in range(WAITING)]
        wait_until(lambda: _is_refused(server, SEARCH, []))
        assert len(blocked.started) == SLOTS
        blocked.release.set()
        assert {answer.result().status_code for answer in accepted} == {200}
        assert {answer.result().status_code for answer in answers} <= {200, 503}


def test_a_search_that_waits_for_the_index_needs_no_slot(
    blocked: BlockedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_COUNTED_S", 10 * TIMEOUT_S)
    with ThreadPoolExecutor(SLOTS + 2) as pool:
        for _ in range(SLOTS):
            pool.submit(blocked.server.get, SEARCH)
        blocked.wait_until_started(SLOTS)
        answers = [
            pool.submit(blocked.server.get, f"{SEARCH}&{waits}") for waits in ("fresh=true", "at_least=" + "a" * 40)
        ]
        blocked.wait_until_started(SLOTS + 2)
        blocked.release.set()
        assert [answer.result().status_code for answer in answers] == [200, 200]


def test_a_search_that_does_not_end_leaves_its_slot_to_others(
    blocked: BlockedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_COUNTED_S", 0.01)
    with ThreadPoolExecutor(2 * SLOTS) as pool:
        answers = []
        for number in range(2 * SLOTS):
            answers.append(pool.submit(blocked.server.get, SEARCH))
            blocked.wait_until_started(number + 1)
        blocked.release.set()
        assert {answer.result().status_code for answer in answers} == {200}


def test_searches_that_do_not_end_are_refused_when_all_threads_have_one(
    blocked: BlockedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_COUNTED_S", 0.01)
    monkeypatch.setattr(middleware, "_MAX_THREADS", 2 * SLOTS)
    with ThreadPoolExecutor(2 * SLOTS + WAITING) as pool:
        for number in range(2 * SLOTS):
            pool.submit(blocked.server.get, SEARCH)
            blocked.wait_until_started(number + 1)
        for _ in range(WAITING):
            pool.submit(blocked.server.get, SEARCH)
        wait_until(lambda: _is_refused(blocked.server, SEARCH, []))
        blocked.release.set()


@pytest.mark.slow
def test_requests_beyond_the_limit_are_refused_and_the_service_recovers(
    blocked: BlockedSearches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Application, "has_local_search", False)  # as with PostgreSQL, where searches wait
    threads, server = 40, blocked.server
    with ThreadPoolExecutor(threads + WAITING) as pool:
        accepted = [pool.submit(server.get, SEARCH) for _ in range(threads)]
        blocked.wait_until_started(threads)
        refused: list[httpx.Response] = []
        accepted += [pool.submit(server.get, SEARCH) for _ in range(WAITING)]
        wait_until(lambda: _is_refused(server, SEARCH, refused))
        assert refused[0].headers["Retry-After"] == "1"
        assert refused[0].json()["code"] == "overloaded"
        assert server.get("/healthz").status_code == 200
        blocked.release.set()
        statuses = [response.result().status_code for response in accepted]
    assert set(statuses[:threads]) == {200}
    # A probe that came first may have taken the place of one of the others.
    assert set(statuses[threads:]) <= {200, 503}
    assert server.get(SEARCH).status_code == 200


def test_repositories_that_hang_leave_threads_for_searches_in_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_MAX_QUEUE_S", 1.0)
    with serve_application(tmp_path) as served, ThreadPoolExecutor(60) as pool:
        service, hanging = served.application.service, list[Repository]()
        for number in range(5):
            hanging.append(Repository(tmp_path / f"hangs{number}"))
            hanging[-1].commit({"Home.md": "# Home\n"})
            service.add(f"hangs{number}", str(hanging[-1].path), {})
            service.get_handle(f"hangs{number}").sync()
        running = RunningServer(served)
        with hang_git(hanging):
            paths = [f"/w/hangs{number % 5}/api/v1/pages/Home/history" for number in range(60)]
            answers = [pool.submit(running.get, path, "operator") for path in paths]
            wait_until(lambda: sum(answer.done() for answer in answers) >= 45)
            assert running.get(SEARCH).status_code == 200
            assert sum(not answer.done() for answer in answers) == 15
        assert {answer.result().status_code for answer in answers} == {200, 503}
        assert running.stop()


def _is_refused(server: RunningServer, path: str, refused: list[httpx.Response]) -> bool:
    try:
        response = httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=1)
    except httpx.TimeoutException:  # it waits for a thread, because others have not arrived yet, or the machine is busy
        return False
    refused.append(response)
    return response.status_code == 503


def test_the_number_of_threads_is_the_one_the_test_assumes() -> None:
    async def count() -> float:
        return anyio.to_thread.current_default_thread_limiter().total_tokens

    # In a thread of its own: a browser test may have left an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(anyio.run, count).result() == 40
