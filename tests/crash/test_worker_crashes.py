"""kill -9 of each process of a service with workers: nothing that was acknowledged is lost, and the service goes on."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.support.wait import TIMEOUT_S, wait_until
from tests.support.worker_service import WorkerService, make_worker_service
from wikiholt.api.bootstrap import open_service

PAGES = {slug: {"Home.md": f"# Home\n\nThe cat of the {slug} sleeps.\n"} for slug in ("garden", "office")}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerService]:
    place = tmp_path_factory.mktemp("crashes")
    with make_worker_service(place, PAGES, **{"limit.key_per_minute": 0}) as created:
        created.start()
        yield created


def write_page(service: WorkerService, name: str) -> str:
    """Write a page that contains its name and return the acknowledged revision."""
    response = service.send("PUT", f"/w/garden/api/v1/pages/{name}", "garden", {"content": f"This is {name}.\n"})
    assert response.status_code == 201, response.text
    return str(response.json()["revision"])


def begin_write(service: WorkerService) -> socket.socket:
    """Send a write whose body is not complete, so that a worker waits for it."""
    parts = urlsplit(service.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
    head = (
        f"PUT /w/garden/api/v1/pages/Unfinished HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.tokens['garden']}\r\nContent-Length: 100\r\n\r\n"
    )
    connection.sendall(head.encode() + b'{"content": ')
    return connection


def read_until_end(connection: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))
    except ConnectionResetError:
        return b""


def test_a_worker_killed_in_a_request_is_replaced_and_its_counters_stay(service: WorkerService) -> None:
    first, second = service.list_workers()
    write_page(service, "quoll")
    with service.only(second):
        for _ in range(5):
            service.find("office", "cat")
        requests_before = service.read_counter("wikiholt_requests_total")
    with service.only(first), begin_write(service) as connection:
        assert service.send("GET", "/healthz").status_code == 200  # so it has accepted the connection before
        os.kill(first, signal.SIGKILL)
        assert read_until_end(connection) == b""
    assert service.find("garden", "quoll", fresh="true") == ["quoll"]
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not {first, second} & set(service.list_workers()))
    service.wait_for_workers()
    assert service.find("garden", "quoll") == ["quoll"]
    assert service.find("garden", "Unfinished") == []
    assert service.read_counter("wikiholt_requests_total") >= requests_before + 1
    assert f"worker 1 (process {first}) ended with signal SIGKILL; another one starts in 0 s" in service.log.read_text()


def test_messages_to_a_killed_scheduler_reach_the_next_one(service: WorkerService) -> None:
    scheduler = service.find_scheduler()
    os.kill(scheduler, signal.SIGSTOP)
    revision = write_page(service, "wombat")
    os.kill(scheduler, signal.SIGKILL)
    # The interval of checks is an hour, so only the message makes the next scheduler look.
    assert service.find("garden", "wombat", at_least=revision) in ([], ["wombat"])
    wait_until(lambda: service.find("garden", "wombat", fresh="true") == ["wombat"])
    assert service.find_scheduler() != scheduler


def test_workers_end_when_the_supervisor_is_killed(service: WorkerService) -> None:
    assert service.process is not None
    children = service.list_children()
    write_page(service, "numbat")
    service.process.kill()
    service.process.wait(TIMEOUT_S)
    wait_until(lambda: not any(_is_running(pid) for pid in children))
    service.start()
    assert service.find("garden", "numbat", fresh="true") == ["numbat"]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_after_all_processes_are_killed_nothing_is_lost(service: WorkerService) -> None:
    names = [f"dingo{number}" for number in range(5)]
    for name in names:
        write_page(service, name)
    service.kill_all()
    service.start()
    for name in names:
        assert service.find("garden", name, fresh="true") == [name]
    assert service.stop() == 0
    with closing(open_service(service.data, overrides={"model": str(service.settings["model"])})) as wikis:
        for slug in PAGES:
            assert wikis.get_handle(slug).check() == []
