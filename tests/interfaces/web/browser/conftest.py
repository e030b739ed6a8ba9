from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.web_server import WebServer, run_web_server


@pytest.fixture(scope="session")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """The demo wikis, open to local clients; tests only read them."""
    with run_web_server(tmp_path_factory.mktemp("open"), settings=["limit.address_per_minute=0"]) as (server, _):
        yield server


@pytest.fixture(scope="session")
def locked(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, str]]:
    """The private demo wikis, and a key that reads the allotment."""
    place = tmp_path_factory.mktemp("locked")
    with run_web_server(place, settings=["limit.address_per_minute=0"], key_for="allotment") as server_and_key:
        yield server_and_key
