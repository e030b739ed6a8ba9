"""A page of another site cannot show the consent page or another page in a frame, and lead a person to click in it."""

from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.http_server import run_handler
from tests.support.served_application import ServedApplication, serve_application
from tests.support.uvicorn_server import run_server

BASE = "http://127.0.0.1:8765"
REDIRECT_URI = "https://agent.example.org/callback"
PATHS = ("/", "/w/alpha/", "/w/alpha/sign-in", "/w/alpha/read?page=Home", "/docs", "/api/v1/me")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    settings = {"mcp.oauth": True, "oauth.resource": BASE, "people.remember_days": 30, "serve.public": True}
    with serve_application(tmp_path_factory.mktemp("framing"), settings) as served:
        yield served


@pytest.fixture(scope="module")
def url(served: ServedApplication) -> Iterator[str]:
    with run_server(served.app) as address:
        yield address


def make_consent_path(url: str) -> str:
    """The consent page for a new agent, which asks for access to a wiki."""
    client = httpx.post(f"{url}/register", json={"redirect_uris": [REDIRECT_URI], "client_name": "Agent"}).json()
    fields = {
        "client_id": client["client_id"],
        "redirect_uri": REDIRECT_URI,
        "explicit": "1",
        "scope": "read write",
        "code_challenge": "c" * 43,
        "resource": f"{BASE}/w/alpha/mcp",
    }
    return f"/oauth/consent?{urlencode(fields)}"


def show_in_frames(browser: Browser, target: str) -> tuple[list[str], list[str]]:
    """Load a page of another site that shows `target` in frames of all kinds.

    Returns the addresses of the pages in the frames, and what the console says.
    """
    link = escape(target)
    body = f'<iframe src="{link}"></iframe><iframe sandbox="allow-forms" src="{link}"></iframe>'
    body += f'<object data="{link}" type="text/html"></object><embed src="{link}" type="text/html">'

    class Attacker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><title>Win a prize</title>{body}".encode())

        def log_message(self, *_: object) -> None:
            pass

    with run_handler(Attacker) as port:
        page = browser.new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        try:
            page.goto(f"http://localhost:{port}/", wait_until="load")
            shown = [frame.url for frame in page.frames[1:]]
        finally:
            page.close()
    return shown, messages


def test_no_page_is_shown_in_a_frame_of_another_site(url: str, browser: Browser) -> None:
    for path in (make_consent_path(url), *PATHS):
        shown, messages = show_in_frames(browser, f"{url}{path}")
        assert sum("frame-ancestors 'none'" in message for message in messages) == 4, path
        assert set(shown) <= {"", "chrome-error://chromewebdata/"}, path


def test_the_frames_of_this_test_show_a_page_that_allows_it(browser: Browser) -> None:
    shown, _ = show_in_frames(browser, "data:text/html,<p>text")
    assert shown == ["data:text/html,<p>text"] * 4


def test_the_consent_page_is_shown_alone(url: str, browser: Browser) -> None:
    page = browser.new_page()
    try:
        page.goto(f"{url}{make_consent_path(url)}")
        assert page.get_by_role("button", name="Approve").is_visible()
        page.fill("#key", "wrong")
        page.get_by_role("button", name="Approve").click()
        assert "This key is unknown" in page.get_by_role("alert").inner_text()
    finally:
        page.close()


def test_a_form_of_another_site_approves_nothing_without_the_key(url: str, browser: Browser) -> None:
    path = make_consent_path(url)
    fields = dict(httpx.QueryParams(path.partition("?")[2])) | {"action": "approve", "key": ""}
    inputs = "".join(f'<input name="{name}" value="{escape(text)}">' for name, text in fields.items())
    page = browser.new_page()
    try:
        page.set_content(f'<form method="post" action="{url}/oauth/consent">{inputs}<button>Win</button></form>')
        with page.expect_navigation():
            page.click("button")
        assert page.get_by_role("alert").is_visible()
        assert page.url == f"{url}/oauth/consent"
    finally:
        page.close()
