"""Chroma beside a data directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.caches.chroma.chroma_fixtures import ChromaFixture
from tests.support.wait import TIMEOUT_S
from wikiholt.caches.chroma import hosts, rest_api


@pytest.fixture(autouse=True, scope="module")
def released_children() -> Iterator[None]:
    """An engine that is closed waits until its child process has exited, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rest_api, "_LEAVE_TIMEOUT_S", 60.0)
        patch.setattr(hosts, "_RELEASE_TIMEOUT_S", TIMEOUT_S)
        yield


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ChromaFixture]:
    made = ChromaFixture(tmp_path)
    yield made
    made.close()
