"""Signing in and out in a browser."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.interfaces.web.browser.test_appearance import check_layouts
from tests.support.browser import TIMEOUT_MS, OpenTab
from tests.support.web_server import WebServer
from wikiholt.interfaces.http.sign_in import COOKIE_NAME

pytestmark = pytest.mark.model

CARDS = "#app\\.results .card"


def sign_in_with_key(page: Page, token: str, *, remember: bool) -> None:
    page.get_by_label("Your key").fill(token)
    if remember:
        page.get_by_label("Remember on this device").check()
    page.get_by_role("button", name="Sign in with the key").click()


def test_a_key_is_remembered_until_sign_out(sign_in_server: tuple[WebServer, str], visit: OpenTab) -> None:
    server, token = sign_in_server
    page = visit(f"{server.url}w/allotment/?q=compost", wait=".problem", expected=("401",)).page
    problem = page.locator(".problem")
    expect(problem.locator(".title")).to_have_text("You are not signed in.")
    hint, link = problem.locator(".hint").bounding_box(), problem.get_by_role("link", name="Sign in").bounding_box()
    assert hint is not None
    assert link is not None
    assert link["y"] >= hint["y"] + hint["height"]
    problem.get_by_role("link", name="Sign in").click()
    sign_in_with_key(page, token, remember=True)
    expect(page.locator(CARDS).first).to_contain_text("Compost")
    assert page.url.endswith("/w/allotment/?q=compost")
    assert page.evaluate("document.cookie + Object.keys({...sessionStorage, ...localStorage}).join()") == ""
    (cookie,) = (cookie for cookie in page.context.cookies() if cookie["name"] == COOKIE_NAME)
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/w/allotment/")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("You are signed out")
    page.goto(f"{server.url}w/allotment/?q=compost")
    expect(page.locator(".problem")).to_contain_text("You are not signed in.")


def test_a_page_is_saved_with_the_cookie_of_a_sign_in(sign_in_server: tuple[WebServer, str], visit: OpenTab) -> None:
    server, _ = sign_in_server
    writer = server.run_command("key", "create", "allotment", "--scope", "write", "--label", "Ines Okafor", "--json")
    page = visit(f"{server.url}w/allotment/sign-in", wait=".sign-in", expected=("401", "404")).page
    sign_in_with_key(page, writer["token"], remember=True)
    expect(page.locator(CARDS).first).to_be_visible()
    page.goto(f"{server.url}w/allotment/edit?page=Notes/Written+with+a+cookie")
    page.fill("#app\\.text", "# Written with a cookie\n\nThe wheelbarrow has a new wheel.\n")
    with page.expect_response(lambda response: response.request.method == "PUT") as saved:
        page.click("#app\\.save")
    assert saved.value.status == 201
    assert "authorization" not in saved.value.request.headers
    expect(page.locator("article h1")).to_have_text("Written with a cookie")
    expect(page.locator(".note.done")).to_have_text("The page was created.")
    page.get_by_role("link", name="History").click()
    expect(page.locator(".commits li").first).to_contain_text("Ines Okafor")


def test_signing_in_needs_no_script(sign_in_server: tuple[WebServer, str], visit: OpenTab) -> None:
    server, token = sign_in_server
    url = f"{server.url}w/allotment/read?page=Growing/Composting"
    page = visit(url, java_script_enabled=False, expected=("401",)).page
    page.locator("main").get_by_role("link", name="Sign in").click()
    sign_in_with_key(page, "wh_nonsense", remember=False)
    expect(page.locator(".problem")).to_contain_text("This key is unknown")
    sign_in_with_key(page, token, remember=False)
    expect(page.locator("article h1")).to_have_text("Composting")
    page.get_by_role("button", name="Sign out").click()
    page.goto(url)
    expect(page.locator("h1")).to_have_text("Sign-in is required")


def test_a_person_signs_in_at_the_provider(sign_in_server: tuple[WebServer, str], browser: Browser) -> None:
    server, _ = sign_in_server
    with browser.new_context() as context:
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.goto(f"{server.url}w/allotment/sign-in?next=/w/allotment/read%3Fpage%3DGrowing/Composting")
        page.get_by_role("link", name="Sign in with Example").click()
        page.locator("[name=login]").fill("ada")
        page.locator("[name=password]").fill("any")
        page.locator("[type=submit]").click()
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("article h1")).to_have_text("Composting")
        expect(page.locator("#app\\.account")).to_contain_text("Ada Ash")
        page.goto(f"{server.url}w/runbook/read?page=Home")
        expect(page.locator(".problem")).to_contain_text("none of your groups has access to this wiki")
        assert page.locator("dialog").count() == 0
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("link", name="Sign out there too")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_accessible(sign_in_server: tuple[WebServer, str], visit: OpenTab, scheme: str) -> None:
    server, token = sign_in_server
    page = visit(f"{server.url}w/allotment/sign-in", wait=".sign-in", color_scheme=scheme, expected=("401",)).page
    for step in ("form", "error", "signed in", "signed out"):
        if step == "error":
            sign_in_with_key(page, "wh_nonsense", remember=True)
            expect(page.locator(".problem")).to_be_visible()
        elif step == "signed in":
            sign_in_with_key(page, token, remember=True)
            expect(page.locator(CARDS).first).to_be_visible()
        elif step == "signed out":
            page.get_by_role("button", name="Sign out").click()
            expect(page.locator("h1")).to_have_text("You are signed out")
        check_layouts(page, scheme, (375, 800, 1280))
