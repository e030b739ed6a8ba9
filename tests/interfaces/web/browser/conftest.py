import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import BrowserTab, OpenTab
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


@dataclass(frozen=True)
class ManagedServer:
    """Private demo wikis that tests change, with a key of each kind; those with a scope are for the runbook."""

    server: WebServer
    tokens: dict[str, str]

    @property
    def runbook(self) -> Path:
        return self.server.repositories / "runbook"

    def call(
        self, method: str, path: str, body: object = None, key: str = "operator", **headers: str
    ) -> httpx.Response:
        """Call the API of the runbook."""
        headers = {"Authorization": f"Bearer {self.tokens[key]}", **headers}
        url = f"{self.server.url}w/runbook/api/v1/{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=60)

    def commit(self, file: str, content: bytes) -> None:
        """Commit a file to the runbook, as a person does."""
        path = self.runbook / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        author = ["-c", "user.name=Bo Lind", "-c", "user.email=bo@wiki.example.org"]
        for command in (["add", "."], [*author, "commit", "-qm", f"Change {file}"]):
            subprocess.run(["git", "-C", str(self.runbook), *command], check=True)

    def sign_in(
        self, visit: OpenTab, key: str, path: str = "w/runbook/manage", expected: tuple[str, ...] = (), **options: Any
    ) -> BrowserTab:
        """Open a page for administration and enter a key there. The browser sends none with an address: 401."""
        tab = visit(self.server.url + path, wait="text=Enter a key", expected=(*expected, "401"), **options)
        tab.page.get_by_role("button", name="Enter a key").click()
        tab.page.get_by_label("Your key").fill(self.tokens[key])
        tab.page.get_by_role("button", name="Use this key").click()
        expect(tab.page.locator("#app\\.key-dialog")).to_have_count(0)
        return tab

    def open(self, visit: OpenTab, key: str, path: str, wait: str, **options: Any) -> BrowserTab:
        """Open a page of the runbook with a key."""
        tab = self.sign_in(visit, key, **options)
        tab.page.goto(f"{self.server.url}w/runbook/{path}")
        tab.page.wait_for_selector(wait)
        return tab


@pytest.fixture(scope="session")
def managed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedServer]:
    settings = ["limit.address_per_minute=0", "limit.key_per_minute=0", "queries.log=true"]
    with run_web_server(tmp_path_factory.mktemp("managed"), settings=settings, key_for="runbook") as (server, token):
        operator = server.run_command("key", "create", "--operator", "--label", "operator", "--json")["token"]
        managed = ManagedServer(server, {"read": token, "operator": operator})
        for scope in ("write", "admin"):
            made = managed.call("POST", "keys", {"scope": scope, "label": f"Ines Okafor ({scope})"})
            managed.tokens[scope] = made.json()["token"]
        yield managed


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
