from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.http_server import run_handler
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, run_oidc_provider
from tests.support.web_server import WebServer, run_web_server


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="session")
def other_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The origin of another web site, and the directory that it serves."""
    directory = tmp_path_factory.mktemp("site")
    with run_handler(partial(QuietHandler, directory=str(directory))) as port:
        yield f"http://127.0.0.1:{port}", directory


@pytest.fixture(scope="session")
def server(
    browser: Browser, other_site: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebServer]:
    """The demo wikis, open to local clients and to the other site; tests only read them."""
    settings = ["limit.address_per_minute=0", f"serve.cors_origins={other_site[0]}"]
    with run_web_server(tmp_path_factory.mktemp("open"), settings=settings) as (server, _):
        yield server


@pytest.fixture(scope="session")
def locked(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, str]]:
    """The private demo wikis, and a key that reads the allotment."""
    place = tmp_path_factory.mktemp("locked")
    with run_web_server(place, settings=["limit.address_per_minute=0"], key_for="allotment") as server_and_key:
        yield server_and_key


@pytest.fixture(scope="session")
def sign_in_server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, str]]:
    """The private demo wikis, with sign-in by a remembered key and at an OpenID provider, and a key."""
    with run_oidc_provider({"ada": {"name": "Ada Ash", "groups": ["gardeners"]}}) as provider:
        settings = [
            "limit.address_per_minute=0",
            "people.remember_days=30",
            f"people.oidc_issuer={provider.issuer}",
            f"people.oidc_client_id={CLIENT_ID}",
            f"people.oidc_client_secret={CLIENT_SECRET}",
            "people.oidc_name=Example",
            "people.groups=gardeners=allotment:read",
        ]
        place = tmp_path_factory.mktemp("sign-in")
        with run_web_server(place, settings=settings, key_for="allotment") as server_and_key:
            yield server_and_key
