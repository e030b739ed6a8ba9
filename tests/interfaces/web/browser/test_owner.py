"""The owner of the data directory writes in a browser on the same machine, and nobody else does."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.interfaces.web.browser.conftest import QuietHandler
from tests.support.browser import BrowserTab, OpenTab
from tests.support.http_server import run_handler
from tests.support.programs import find_free_port, run_program
from tests.support.web_server import WebServer, run_web_server

pytestmark = pytest.mark.model

COOKIE = "wikiholt_owner"
EDIT = {"content": "# Written\n\nBy the owner.\n"}


@pytest.fixture(scope="module")
def own(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """The demo wikis as one person serves them, without a key."""
    settings = ["limit.address_per_minute=0"]
    with run_web_server(tmp_path_factory.mktemp("own"), settings=settings) as (server, _):
        yield server


def read_link(server: WebServer) -> str:
    return (server.data / "owner-link").read_text()


@pytest.fixture(scope="module")
def cookie(own: WebServer) -> str:
    """The cookie of the owner's browser."""
    answer = httpx.get(read_link(own))
    assert answer.status_code == 303
    assert "SameSite=strict" in answer.headers["set-cookie"].replace("Strict", "strict")
    assert "HttpOnly" in answer.headers["set-cookie"]
    return answer.cookies[COOKIE]


def get_scope(own: WebServer, cookie: str, **headers: str) -> str | None:
    """What a request with the cookie may do in a wiki."""
    url = f"{own.url}w/allotment/api/v1/me"
    answer = httpx.get(url, headers={"Cookie": f"{COOKIE}={cookie}", **headers}, timeout=60)
    return answer.json().get("scope") if answer.status_code == 200 else None


def test_the_link_is_for_one_browser_and_its_file_for_one_user(own: WebServer) -> None:
    link = read_link(own)
    assert re.fullmatch(rf"{re.escape(own.url)}owner\?token=[\w-]{{43}}", link)
    assert (own.data / "owner-link").stat().st_mode & 0o777 == 0o600
    assert httpx.get(link).status_code == 303
    assert read_link(own) != link
    again = httpx.get(link, headers={"Accept": "text/html"})
    assert again.status_code == 401
    assert "wikiholt open" in again.text
    assert COOKIE not in again.headers.get("set-cookie", "")
    for token in ("", "x", "\u00e9", read_link(own)[:-1].partition("=")[2]):
        assert httpx.get(f"{own.url}owner", params={"token": token}).status_code == 401


def test_the_owner_writes_manages_and_signs_out(own: WebServer, visit: OpenTab) -> None:
    tab: BrowserTab = visit(read_link(own), wait=".tiles a", fresh=True)
    page = tab.page
    page.goto(f"{own.url}w/allotment/edit")
    page.get_by_label("Path").fill("Notes/From the owner")
    page.get_by_label("Text of the page, in Markdown").fill("# From the owner\n\nWritten without a key.\n")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("article h1")).to_have_text("From the owner")
    expect(page.get_by_role("link", name="Manage")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    assert all(cookie["name"] != COOKIE for cookie in page.context.cookies())


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("Via", "1.1 proxy"),
        ("X-Forwarded-Host", "localhost"),
        ("Host", "wiki.example.org"),
        ("Host", "evil.localhost"),
    ],
)
def test_a_forwarded_request_and_another_host_never_count(own: WebServer, cookie: str, header: str, value: str) -> None:
    assert get_scope(own, cookie) == "admin"
    assert get_scope(own, cookie, **{header: value}) in (None, "read")
    link = read_link(own)
    assert httpx.get(link, headers={header: value}).status_code == 403
    assert read_link(own) == link


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user_of_this_machine_is_not_the_owner_even_with_the_cookie(own: WebServer, cookie: str) -> None:
    program = (
        "import sys, urllib.request as r\n"
        "print(r.urlopen(r.Request(sys.argv[1], headers={'Cookie': sys.argv[2]}), timeout=60).read().decode())"
    )
    command = [sys.executable, "-S", "-c", program, f"{own.url}w/allotment/api/v1/me", f"{COOKIE}={cookie}"]
    assert '"scope":"admin"' in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The interpreter may be in a directory that only root can enter.
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no interpreter that another user can start")
    command[0] = python
    other = subprocess.run(command, check=True, capture_output=True, text=True, user=65534, cwd="/").stdout
    assert '"scope":"read"' in other


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {},
    ],
)
def test_a_change_must_come_from_a_page_of_the_service(own: WebServer, cookie: str, headers: dict[str, str]) -> None:
    url = f"{own.url}w/allotment/api/v1/pages/Forged"
    answer = httpx.put(url, json=EDIT, headers={"Cookie": f"{COOKIE}={cookie}", **headers}, timeout=60)
    assert answer.status_code == 403
    assert httpx.get(url).status_code == 404


def test_a_hostile_page_in_the_browser_of_the_owner_changes_and_reads_nothing(
    own: WebServer, browser: Browser, tmp_path: Path
) -> None:
    url = f"{own.url}w/allotment/"
    script = f"""
      const body = '{{"content": "x"}}', headers = {{ "Content-Type": "application/json" }};
      const send = (path, options) => fetch("{url}api/v1/" + path, {{ credentials: "include", ...options }})
        .then((answer) => answer.text() || "sent", () => "refused");
      addEventListener("load", async () => {{
        window.outcomes = [
          ["put", await send("pages/Hostile", {{ method: "PUT", body, headers }})],
          ["blind", await send("pages/Hostile", {{ method: "POST", mode: "no-cors", body }})],
          ["read", await send("me")],
        ];
      }});
    """
    frame = f'<iframe src="{url}manage" width="600" height="400"></iframe>'
    (tmp_path / "index.html").write_text(f"<!doctype html><script>{script}</script>{frame}")
    with run_handler(partial(QuietHandler, directory=str(tmp_path))) as port, browser.new_context() as context:
        page = context.new_page()
        page.goto(read_link(own))
        assert COOKIE in {each["name"] for each in context.cookies()}
        page.goto(f"http://127.0.0.1:{port}/index.html")
        page.wait_for_function("window.outcomes")
        outcomes = dict(page.evaluate("window.outcomes"))
        frames = [each.url for each in page.frames[1:]]
    assert outcomes["put"] == "refused"
    assert outcomes["read"] == "refused"
    assert all(not each.startswith(url) for each in frames)
    assert httpx.get(f"{url}api/v1/pages/Hostile").status_code == 404


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx")
def test_visitors_of_nginx_with_its_default_headers_are_not_the_owner(
    own: WebServer, cookie: str, tmp_path: Path
) -> None:
    port = find_free_port()
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p;"
        f" fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {own.url}; }} }} }}\n"
    )
    with run_program(["nginx", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)], tmp_path, [port]):
        url = f"http://127.0.0.1:{port}/w/allotment/api/v1/"
        assert httpx.get(f"{url}me", timeout=60).json()["scope"] == "read"
        answer = httpx.put(f"{url}pages/Forged", json=EDIT, headers={"Sec-Fetch-Site": "same-origin"}, timeout=60)
        assert answer.status_code == 401


def test_the_first_key_does_not_lock_the_owner_out(own: WebServer, cookie: str) -> None:
    assert httpx.get(f"{own.url}w/allotment/api/v1/pages").status_code == 200
    own.run_command("key", "create", "allotment", "--scope", "read", "--json")
    assert httpx.get(f"{own.url}w/allotment/api/v1/pages").status_code == 401
    assert get_scope(own, cookie) == "admin"
    headers = {"Cookie": f"{COOKIE}={cookie}", "Sec-Fetch-Site": "same-origin"}
    answer = httpx.put(f"{own.url}w/allotment/api/v1/pages/Kept", json=EDIT, headers=headers, timeout=60)
    assert answer.status_code in (200, 201)


def test_the_setting_turns_it_off(tmp_path: Path, browser: Browser) -> None:
    with run_web_server(tmp_path, settings=["serve.owner=false"]) as (server, _):
        assert not (server.data / "owner-link").exists()
        assert httpx.get(f"{server.url}owner?token=x").status_code == 404
