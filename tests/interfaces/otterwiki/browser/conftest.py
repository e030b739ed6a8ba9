from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.interfaces.otterwiki.reader_wiki import READERS_WIKI
from tests.support.wait import wait_until


@pytest.fixture(scope="session")
def readers(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """An indexed public wiki with an administrator, for browser tests."""
    settings = {"EMAIL_NEEDS_CONFIRMATION": False}
    with OtterwikiServer.start(
        tmp_path_factory.mktemp("readers") / "wiki", settings=settings, pages=READERS_WIKI
    ) as server:
        wait_until(lambda: server.find_paths("okapi"), server.read_log)
        yield server
