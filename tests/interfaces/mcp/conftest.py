from collections.abc import Iterator

import pytest

from tests.interfaces.mcp.mcp_client import Agent
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import TIMEOUT_S
from wikiholt.interfaces.mcp import oauth


@pytest.fixture(autouse=True)
def _wait_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a test that has the keys of an issuer may be slow on a busy machine."""
    monkeypatch.setattr(oauth, "_FETCH_TIMEOUT_S", TIMEOUT_S)


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


@pytest.fixture(scope="module")
def reader(served: ServedApplication, url: str) -> Agent:
    return Agent(url, served.tokens["read"])


@pytest.fixture(scope="module")
def writer(served: ServedApplication, url: str) -> Agent:
    return Agent(url, served.tokens["write"])
