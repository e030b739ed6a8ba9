from collections.abc import Iterator

import pytest

from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """Two wikis for one test module; every test writes to its own pages."""
    with serve_application(tmp_path_factory.mktemp("mcp")) as served:
        yield served


@pytest.fixture(scope="module")
def base(served: ServedApplication) -> Iterator[str]:
    with run_server(served.app) as address:
        yield address


@pytest.fixture(scope="module")
def url(base: str) -> str:
    return f"{base}/mcp"
