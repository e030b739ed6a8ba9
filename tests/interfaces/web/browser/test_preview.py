"""The preview in a browser: its links, headings and related pages."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import OpenTab
from tests.support.html_attacks import ATTACKS
from tests.support.web_server import WebServer
from wikiholt.domain.page import Page as WikiPage
from wikiholt.interfaces.web.renderer import render_markdown
from wikiholt.text.page_parser import parse_page

pytestmark = pytest.mark.model

PREVIEW = "#app\\.preview"
CARDS = "#app\\.results .card"


def get_position(page: Page, heading: str) -> float:
    """The distance of a heading from the top of its container."""
    return float(
        page.evaluate(
            "(id) => document.getElementById(id).getBoundingClientRect().top"
            " - document.querySelector('.preview .body').getBoundingClientRect().top",
            heading,
        )
    )


def test_a_result_opens_beside_the_list_at_its_heading(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=give+the+money+back+refund", wait=CARDS).page
    page.locator(f"{CARDS} h2 a", has_text="Duplicate payments").click()
    expect(page.locator(f"{PREVIEW} h2").first).to_have_text("Duplicate payments")
    target = page.locator(f"{PREVIEW} .target")
    expect(target).to_be_visible()
    anchor = target.get_attribute("id")
    assert anchor
    assert page.url.endswith(f"page=Incidents/Duplicate+payments#{anchor}")
    assert -5 < get_position(page, anchor) < 400
    assert page.evaluate("scrollY") == 0, "the list keeps its scroll position"
    expect(page.locator(f"{CARDS}.open")).to_have_count(1)
    expect(page.locator(CARDS).first).to_be_visible()


def test_a_shared_link_opens_page_and_heading_and_back_closes(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=ledger&page=Services/Ledger#error-codes", wait=f"{PREVIEW} .target").page
    expect(page.locator(f"{PREVIEW} .target")).to_have_text("Error codes")
    expect(page.locator(CARDS).first).to_be_visible()
    page.get_by_role("button", name="Close the preview").click()
    expect(page.locator(PREVIEW)).to_be_hidden()
    assert "page=" not in page.url
    page.go_back()
    expect(page.locator(f"{PREVIEW} .target")).to_have_text("Error codes")


def test_links_between_pages_open_their_preview(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?page=Home", wait=f"{PREVIEW} .page a").page
    page.locator(f"{PREVIEW} .page a", has_text="Duplicate payments").click()
    expect(page.locator("#app\\.preview-name")).to_have_text("Duplicate payments")
    assert "page=Incidents/Duplicate+payments" in page.url
    page.go_back()
    page.locator(f"{PREVIEW} .page a", has_text="Deploying").click()
    expect(page.locator("#app\\.preview-name")).to_have_text("Deploying")
    expect(page.locator(f"{PREVIEW} .page")).to_contain_text("Undo first and understand later")


def test_similar_pages_and_backlinks_are_shown_below(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?page=Incidents/Duplicate+payments", wait=".related section >> nth=1").page
    backlinks = page.locator(".related section", has_text="Linked from")
    expect(backlinks.get_by_role("link", name="Ledger")).to_be_visible()
    similar = page.locator(".related section", has_text="Similar pages")
    expect(similar.get_by_role("link")).to_have_count(5)
    backlinks.get_by_role("link", name="Ledger").click()
    expect(page.locator("#app\\.preview-name")).to_have_text("Ledger")


def test_a_tag_in_the_preview_filters(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?page=Services/Gull", wait=f"{PREVIEW} a.tag").page
    page.locator(f"{PREVIEW} a.tag", has_text="mail").click()
    expect(page.locator("#app\\.count")).to_have_text("1 page with these filters")
    expect(page.locator(PREVIEW)).to_be_hidden()


def test_the_preview_follows_the_arrow_keys(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=2").page
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    first = page.locator(f"{CARDS} h2").nth(0).inner_text()
    expect(page.locator("#app\\.preview-name")).to_have_text(first)
    page.keyboard.press("ArrowDown")
    second = page.locator(f"{CARDS} a[data-page]").nth(1)
    name = second.evaluate("(link) => link.closest('.card').querySelector('h2').textContent")
    expect(page.locator("#app\\.preview-name")).to_have_text(name)
    expect(second).to_be_focused()


def test_a_missing_page_is_an_error_with_a_hint(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?page=No/such+page", expected=("404",)).page
    expect(page.locator(f"{PREVIEW} [role=alert]")).to_contain_text("No/such page")
    expect(page.locator(CARDS).first).to_be_visible()


def test_typing_keeps_the_scroll_position(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=ledger&page=Services/Ledger#error-codes", wait=f"{PREVIEW} .target").page
    page.locator(f"{PREVIEW} .body").evaluate("(body) => { body.scrollTop = 3; }")
    page.fill("#app\\.q", "ledger sweeper")
    page.wait_for_url("**q=ledger+sweeper**")
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    assert page.locator(f"{PREVIEW} .body").evaluate("(body) => body.scrollTop") == 3
    page.locator(f"{PREVIEW} .body").evaluate("(body) => { body.scrollTop = 0; }")
    page.locator(f"{CARDS} h2 a", has_text="Ledger").first.click()
    page.wait_for_function("() => document.querySelector('.preview .body').scrollTop > 0")


def test_the_outline_leads_to_headings(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?page=Practices/On-call", wait=f"{PREVIEW} .outline").page
    page.get_by_text("On this page").click()
    page.locator(".outline").get_by_role("link", name="Handing over").click()
    expect(page.locator(f"{PREVIEW} .target")).to_have_text("Handing over")
    assert page.url.endswith("#handing-over")


def test_preview_html_is_set_in_one_place_only(server: WebServer, visit: OpenTab) -> None:
    address = f"{server.url}w/runbook/?page=Home"
    page = visit(address, wait=f"{PREVIEW} .page a", expected=("TrustedHTML",)).page
    attempt = "() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } }"
    assert page.evaluate(attempt) == "TypeError"


def test_attacks_in_a_page_do_nothing_in_a_browser(server: WebServer, visit: OpenTab) -> None:
    pages = [parse_page("a.md", "0" * 40, attack.encode(), None) for attack in ATTACKS]
    html = "".join(render_markdown(page, lambda target, _: target).html for page in pages if isinstance(page, WikiPage))
    tab = visit(f"{server.url}w/runbook/", wait=CARDS)
    page = tab.page

    def smuggled(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "html": html})

    page.route("**/api/v1/preview/**", smuggled)
    page.evaluate("() => { window.alert = () => { window.fooled = true; }; }")
    page.locator(f"{CARDS} h2 a").first.click()
    page.wait_for_selector(".related section")
    for link in page.locator(f"{PREVIEW} .page a[href]").all():
        assert link.get_attribute("href").split(":")[0] in ("https", "http", "mailto") or link.get_attribute(
            "href"
        ).startswith(("?page=", "files/", "#"))
    page.locator(f"{PREVIEW} .page summary, {PREVIEW} .page p").first.click()
    assert page.evaluate("window.fooled") is None
    assert page.evaluate(
        "[...document.querySelectorAll('.page *')].every((each) => !each.id || each.closest('h1,h2,h3'))"
    )


def test_code_is_copied_and_headings_have_links(server: WebServer, browser: Browser) -> None:
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.goto(f"{server.url}w/runbook/read?page=Practices/Backups")
        code = page.locator(".page pre").first
        code.hover()
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == code.evaluate("code => code.textContent")
        link = page.locator(".page h2 .heading-link").first
        anchor = page.locator(".page h2").first.get_attribute("id")
        assert link.get_attribute("href") == f"#{anchor}"
