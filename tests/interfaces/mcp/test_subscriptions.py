"""Clients are notified of pages that change, and only of those of their wiki."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from tests.interfaces.mcp.mcp_client import TIMEOUT_S, run_over_http
from tests.support.served_application import ServedApplication
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.mcp import resources
from wikiholt.interfaces.mcp.resources import format_uri


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "POLL_INTERVAL_S", 0.1)


def listen_for(
    url: str, token: str, change: Callable[[], object], count: int, *, uris: list[str], list_changed: bool = True
) -> list[Any]:
    """Listen, make the change, and return the first events."""

    async def work(client: Client) -> list[Any]:
        events: list[Any] = []
        with anyio.fail_after(TIMEOUT_S):
            async with client.listen(resource_subscriptions=uris, resources_list_changed=list_changed) as stream:
                await to_thread.run_sync(change)
                async for event in stream:
                    events.append(event)
                    if len(events) == count:
                        break
        return events

    return run_over_http(url, token, work)


def test_a_subscriber_gets_the_pages_that_changed(served: ServedApplication, url: str) -> None:
    uri = format_uri("Equipment/Printer")

    def change() -> None:
        served.beta.commit({"Equipment/Printer.md": "# Of beta\n", "Home.md": "# Beta 2\n"})
        served.alpha.commit({"Coffee.md": "# Coffee\n\nNobody asked for this page.\n"})
        served.alpha.commit({"Equipment/Printer.md": "# Printer\n\nNew.\n", "Appeared.md": "# New\n"})

    events = listen_for(url, served.tokens["read"], change, 2, uris=[uri])
    assert events[0] == ResourceUpdated(uri)
    assert isinstance(events[1], ResourcesListChanged)


def test_a_stream_ends_when_its_key_is_revoked(
    served: ServedApplication, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_AUTHORIZATION_INTERVAL_S", 0.1)
    registry = served.application.service.registry
    key, token = registry.keys.create(registry.get("alpha").id, Scope.READ, "soon revoked")

    async def work(client: Client) -> list[Any]:
        with anyio.fail_after(TIMEOUT_S):
            async with client.listen(resource_subscriptions=[format_uri("Home")]) as stream:
                registry.keys.revoke(key.id)
                return [event async for event in stream]

    assert run_over_http(url, token, work) == []


def test_too_many_resources_and_streams_are_refused(
    served: ServedApplication, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, uris in (("_MAX_URIS", ["wiki://page/A", "wiki://page/B"]), ("_MAX_STREAMS", [])):
        monkeypatch.setattr(resources, name, 1 if uris else 0)
        with pytest.raises((MCPError, ExceptionGroup)):
            listen_for(url, served.tokens["read"], lambda: None, 1, uris=uris)


def test_unknown_changes_concern_every_subscriber(served: ServedApplication, tmp_path: Path) -> None:
    session = served.application.service.get_handle("alpha")

    class Wiki:
        handle = session

    detector = resources.ChangeDetector(Wiki())  # type: ignore[arg-type]
    assert detector.find_events(["wiki://page/A"]) == []
    detector._head = "0" * 40
    assert detector.find_events(["wiki://page/A"]) == [ResourceUpdated("wiki://page/A"), ResourcesListChanged()]
