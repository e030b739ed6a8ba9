from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.security.browser.hostile_wiki import SLUG, write_hostile_wiki
from tests.support.wait import wait_until
from tests.support.web_server import WebServer, run_web_server


@pytest.fixture(scope="session")
def hostile(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A real server on this machine, with a hostile wiki and the demo wikis."""
    directory = tmp_path_factory.mktemp("hostile")
    write_hostile_wiki(directory / "repositories")
    with run_web_server(directory, settings=["limit.address_per_minute=0"]) as (server, _):
        wait_until(lambda: not server.get_status(SLUG)["stale"])
        yield server
