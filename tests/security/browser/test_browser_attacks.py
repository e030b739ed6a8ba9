"""Nothing in a page, a name or a URL becomes markup or script: checked in a real browser, on every web page."""

from urllib.parse import quote, urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.security.browser.hostile_wiki import ADDRESS, IN_ATTRIBUTE, MARKERS, PAYLOAD, SLUG, WORD
from tests.support.browser import OpenTab
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

CARDS = "#app\\.results .card"
PREVIEW = "#app\\.preview"
FOREIGN = "img, iframe, object, embed, base, style, form[action^='//'], [style], [srcdoc], [formaction], [ping]"
ACTIVE_ATTRIBUTES_SCRIPT = (
    "[...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => a.name.startsWith('on')))"
)


def assert_unharmed(page: Page) -> None:
    """The document has no foreign elements. The fixture checks for dialogs, requests to other hosts and errors."""
    assert page.locator(FOREIGN).count() == 0
    assert page.evaluate(f"{ACTIVE_ATTRIBUTES_SCRIPT}.map((e) => e.outerHTML)") == []
    own = "[...document.scripts].filter((s) => !s.src.startsWith(location.origin)).length"
    assert page.evaluate(own) == 0
    bad = "[...document.links].map((a) => a.protocol).filter((p) => !['http:', 'https:', 'mailto:'].includes(p))"
    assert page.evaluate(bad) == []


def list_paths(server: WebServer) -> list[str]:
    listed = httpx.get(f"{server.url}w/{SLUG}/api/v1/pages", timeout=60).json()["pages"]
    assert len(listed) >= 5
    return [page["path"] for page in listed]


def test_results_filters_and_previews_show_payloads_as_text(hostile: WebServer, visit: OpenTab) -> None:
    page = visit(f"{hostile.url}w/{SLUG}/?q={WORD}", wait=f"{CARDS} >> nth=3").page
    assert page.locator(CARDS, has_text=PAYLOAD).count() >= 3
    page.wait_for_selector("#app\\.filter-form label")
    assert_unharmed(page)
    for card in page.locator(f"{CARDS} h2 a").all():
        card.hover()
        card.click()
        page.wait_for_selector(f"{PREVIEW} .related section")
        assert_unharmed(page)
    page.goto(f"{hostile.url}w/{SLUG}/?q={WORD}")
    box = page.locator("#app\\.filter-form label", has_text="<img").first
    box.click()
    expect(page.locator("#app\\.active-filters")).to_contain_text("<img")
    assert_unharmed(page)


def test_no_page_executes_its_payloads(hostile: WebServer, visit: OpenTab) -> None:
    page = visit(f"{hostile.url}w/{SLUG}/", wait=CARDS).page
    for path in list_paths(hostile):
        page.goto(f"{hostile.url}w/{SLUG}/?{urlencode({'page': path})}")
        page.wait_for_selector(f"{PREVIEW} .related", state="attached")
        page.wait_for_load_state("networkidle")
        for summary in page.locator(f"{PREVIEW} summary").all():
            summary.click()
        page.locator(f"{PREVIEW} .body").hover()
        assert_unharmed(page)
        hrefs = [link.get_attribute("href") or "" for link in page.locator(f"{PREVIEW} .page a[href]").all()]
        assert all(href.startswith(("?page=", "#", "http://", "https://", "mailto:")) for href in hrefs)


@pytest.mark.parametrize("payload", MARKERS)
def test_payloads_in_a_url_are_shown_as_text(hostile: WebServer, visit: OpenTab, payload: str) -> None:
    text = urlencode({"q": payload, "tag": payload, "category": payload, "path": payload, "page": payload})
    url = f"{hostile.url}w/{SLUG}/?{text}&mode={quote(payload)}#{quote(payload)}"
    page = visit(url, expected=("404", "422")).page
    expect(page.locator(f"{PREVIEW} [role=alert]")).to_be_visible()
    expect(page.locator("#app\\.q")).to_have_value(payload)
    assert_unharmed(page)


def test_a_payload_as_a_slug_is_shown_as_text(hostile: WebServer, visit: OpenTab) -> None:
    for payload in (PAYLOAD.replace("/", "%2F"), IN_ATTRIBUTE, ADDRESS):
        for view in ("", "status"):
            page = visit(f"{hostile.url}w/{quote(payload, safe='%')}/{view}", expected=("404", "422")).page
            page.wait_for_load_state("networkidle")
            expect(page.locator("main")).to_have_count(1)
            if "%2F" in payload:
                expect(page.locator("h1")).to_have_text("Not found")
            assert_unharmed(page)


def test_status_and_the_list_of_wikis_show_payloads_as_text(hostile: WebServer, visit: OpenTab) -> None:
    page = visit(f"{hostile.url}w/{SLUG}/status", wait="#app\\.status *").page
    expect(page.locator("#app\\.status")).to_contain_text("<img src=x onerror=alert(10)>link.md")
    assert_unharmed(page)
    for view, shown in (("", "#app\\.wikis a"), ("status", "#app\\.status li")):
        page = visit(f"{hostile.url}{view}", wait=shown).page
        page.wait_for_load_state("networkidle")
        assert_unharmed(page)


@pytest.mark.parametrize("script", [True, False])
def test_server_rendered_pages_show_payloads_as_text(hostile: WebServer, visit: OpenTab, script: bool) -> None:
    addresses = [f"find?{urlencode({'q': text, 'mode': text})}" for text in (WORD, *MARKERS)]
    addresses += [f"read?{urlencode({'page': path})}" for path in (*list_paths(hostile), PAYLOAD)]
    page = visit(f"{hostile.url}w/{SLUG}/find?q={WORD}", expected=("404", "422"), java_script_enabled=script).page
    for address in addresses:
        page.goto(f"{hostile.url}w/{SLUG}/{address}")
        assert page.locator("main").count() == 1
        assert_unharmed(page)


def test_api_responses_are_not_rendered_as_pages(hostile: WebServer, visit: OpenTab) -> None:
    page = visit(f"{hostile.url}docs").page
    page.wait_for_load_state("networkidle")
    assert page.locator("script, img").count() == 0
    for path in (f"pages/{quote(PAYLOAD)}", f"search?q={quote(PAYLOAD)}&{quote(PAYLOAD)}=1", "changelog", "facets"):
        page = visit(f"{hostile.url}w/{SLUG}/api/v1/{path}", expected=("404", "422")).page
        assert page.evaluate("document.contentType") in ("application/json", "application/problem+json")
        assert page.locator("img, script, svg").count() == 0
