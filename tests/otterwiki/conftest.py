from collections.abc import Iterator

import pytest
from otter_ground import OtterwikiServer, wait_until
from otter_readers import READERS_WIKI
from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def readers(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A wiki that everybody may read and an administrator looks after, for tests in a browser; indexed."""
    settings = {"EMAIL_NEEDS_CONFIRMATION": False}
    with OtterwikiServer.start(tmp_path_factory.mktemp("readers") / "wiki", settings=settings, pages=READERS_WIKI) as started:
        wait_until(lambda: started.find_paths("okapi"), started.read_log)
        yield started
