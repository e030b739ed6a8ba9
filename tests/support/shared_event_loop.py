"""One event loop for the test clients of a process: a client starts a thread and a loop for every request otherwise."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi.testclient import TestClient

_portals: dict[int, BlockingPortal] = {}
"""The portal to the loop by process id: the thread of the loop does not exist in a forked child."""


@contextmanager
def share_event_loop() -> Iterator[None]:
    """Let the clients that are not in a `with` block use one loop, which starts with the first request."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        @contextmanager
        def get_portal(client: TestClient) -> Iterator[BlockingPortal]:
            if client.portal is None and os.getpid() not in _portals:
                _portals[os.getpid()] = stack.enter_context(start_blocking_portal())
            yield client.portal or _portals[os.getpid()]

        patch.setattr(TestClient, "_portal_factory", get_portal)
        yield
        _portals.clear()
