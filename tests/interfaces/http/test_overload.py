"""More requests than the threads can answer: a bounded number waits, the others get 503 at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import anyio.to_thread
import httpx
import pytest

from tests.interfaces.http.test_server import RunningServer
from tests.support.served_application import serve_application
from tests.support.wait import TIMEOUT_S, wait_until

WAITING = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with serve_application(tmp_path, {"limit.waiting_requests": WAITING}) as served:
        running = RunningServer(served)
        yield running
        assert running.stop()


@pytest.mark.slow
def test_requests_beyond_the_limit_are_refused_and_the_service_recovers(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, release = 40, Event()
    service, started = server.application.application.service, []
    original = type(service).get_handle_of

    def wait_for_release(*arguments: object) -> object:
        started.append(1)
        release.wait(2 * TIMEOUT_S)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(service), "get_handle_of", wait_for_release)
    path = "/w/alpha/api/v1/search?q=printer"
    with ThreadPoolExecutor(threads + WAITING) as pool:
        accepted = [pool.submit(server.get, path) for _ in range(threads)]
        wait_until(lambda: len(started) >= threads)
        refused: list[httpx.Response] = []
        accepted += [pool.submit(server.get, path) for _ in range(WAITING)]
        wait_until(lambda: _is_refused(server, path, refused))
        assert refused[0].headers["Retry-After"] == "1"
        assert refused[0].json()["code"] == "overloaded"
        assert server.get("/healthz").status_code == 200
        release.set()
        statuses = [response.result().status_code for response in accepted]
    assert set(statuses[:threads]) == {200}
    # A probe that came first may have taken the place of one of the others.
    assert set(statuses[threads:]) <= {200, 503}
    assert server.get(path).status_code == 200


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
