"""Appearance and accessibility: light and dark, phone, screen reader, reduced motion."""

import re
import zlib
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import OpenTab, measure_page
from tests.support.paths import ROOT
from tests.support.tiers import IS_FULL
from tests.support.wait import wait_until
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

CHECKS = (ROOT / "tests" / "support" / "accessibility.js").read_text(encoding="utf-8")
AXE = (ROOT / "tests" / "support" / "vendor" / "axe-core-4.14.0.min.js").read_text(encoding="utf-8")
IBM_CHECKER = (ROOT / "tests" / "support" / "vendor" / "accessibility-checker-engine-4.0.34.min.js").read_text(
    encoding="utf-8"
)
# A region that scrolls must be reachable by keyboard (axe-core requires it too), although it is not a widget.
IBM_EXCEPTIONS = {"element_tabbable_role_valid"}
CARDS = "#app\\.results .card"
VIEWS = {
    "search": ("w/runbook/?q=database&tag=database", CARDS),
    "start of a wiki": ("w/runbook/", CARDS),
    "nothing relevant": ("w/allotment/?q=quantum+chromodynamics", ".message"),
    "preview": ("w/runbook/?q=ledger&page=Services/Ledger#error-codes", ".related section >> nth=1"),
    "answer": ("w/allotment/?q=how+long+does+the+compost+heap+take", "#app\\.answer li"),
    "wikis": ("", ".tiles small:not(:empty)"),
    "changed pages": ("", "#app\\.changed li"),
    "status": ("w/runbook/status", ".figures"),
    "statuses": ("status", ".rows .pill"),
    "without script": ("w/runbook/find?q=database", ".card"),
    "page": ("w/runbook/read?page=Services/Ledger&q=error+codes", ".related"),
    "folders": ("w/runbook/browse", ".counts"),
    "folder": ("w/runbook/browse?path=Services", ".listing"),
    "tags": ("w/runbook/browse?tags", ".counts"),
    "pages with a tag": ("w/runbook/browse?tag=database", ".listing"),
    "history": ("w/runbook/history?page=Services/Ledger", ".commits"),
    "changes": ("w/runbook/diff?page=Services/Ledger", ".diff"),
    "several wikis": ("?q=water+the+garden", CARDS),
}
FOCUS_SCRIPT = """() => {
  const at = document.activeElement;
  if (at === document.body) return null;
  const parts = [at, at.nextElementSibling, at.closest(".box")].filter(Boolean);
  const styles = [...parts.map((each) => getComputedStyle(each)), getComputedStyle(at, "::after")];
  const outlined = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  return styles.some((style) => outlined(style) || style.boxShadow.includes("3px"));
}"""
IBM_CHECK = """async () => {
  const { results } = await new ibmChecker.Checker().check(document, ["WCAG_2_2", "IBM_Accessibility"]);
  const closed = "details:not([open]) > :not(summary)";
  const is_fault = (each) => each.value.join() === "VIOLATION,FAIL" && !each.node.closest?.(closed);
  return results.filter(is_fault).map(({ ruleId, message, snippet }) => ({ ruleId, message, snippet }));
}"""
LABELLED_ROLES = {
    "link",
    "button",
    "textbox",
    "searchbox",
    "checkbox",
    "radio",
    "heading",
    "region",
    "progressbar",
    "dialog",
}
views = pytest.mark.parametrize("view", VIEWS)


def check_accessibility(page: Page, *, with_axe: bool = True) -> None:
    result = page.evaluate(CHECKS)
    assert result["faults"] == []
    assert result["measured"] > 3
    if with_axe:
        assert run_axe(page) == []


def check_layouts(page: Page, scheme: str, widths: tuple[int, int, int] = (400, 800, 1280)) -> None:
    """Check the page at three widths, each with both checkers in the full form.

    The short form runs axe-core at the first width and IBM's checker at the last, both on a light page only: a dark one
    has the same elements, and its contrasts are measured at every width.
    """
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        check_accessibility(page, with_axe=IS_FULL or (scheme, width) == ("light", widths[0]))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
        if IS_FULL or (scheme, width) == ("light", widths[-1]):
            assert run_ibm_checker(page) == [], page.url


def run_axe(page: Page) -> list[str]:
    """The violations that axe-core finds. It is evaluated by the browser itself, so the policy of the page holds."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [f"{fault['id']}: {node['html'][:150]}" for fault in found["violations"] for node in fault["nodes"]]


def run_ibm_checker(page: Page) -> list[str]:
    """The violations that IBM's accessibility checker is sure of.

    It sees no names in a closed `<details>`, but reports what is in there.
    """
    if not page.evaluate("() => Boolean(window.ibmChecker)"):
        page.evaluate(f"{IBM_CHECKER};window.ibmChecker = ace;")
    found = page.evaluate(IBM_CHECK)
    faults = (fault for fault in found if fault["ruleId"] not in IBM_EXCEPTIONS)
    return [f"{fault['ruleId']}: {fault['message']} {fault['snippet'][:150]}" for fault in faults]


def get_names(page: Page) -> list[dict[str, Any]]:
    """The accessibility tree: role and name of every element that has one."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    return [
        {"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")}
        for node in tree["nodes"]
        if not node.get("ignored") and "role" in node
    ]


@views
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_everything_has_a_name(server: WebServer, visit: OpenTab, view: str, scheme: str) -> None:
    address, wait = VIEWS[view]
    page = visit(server.url + address, wait=wait, color_scheme=scheme).page
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    check_layouts(page, scheme)
    # On a narrow page the preview covers the rest, which comes back a moment after the page has become wide.
    landmarks = {"link", "banner", "main"}
    wait_until(lambda: landmarks <= {element["role"] for element in get_names(page)}, "a landmark is missing")
    names = get_names(page)
    assert [element for element in names if element["role"] in LABELLED_ROLES and not element["name"].strip()] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_key_dialog_and_errors_have_contrast_and_names(server: WebServer, visit: OpenTab, scheme: str) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, color_scheme=scheme, expected=("503", "500")).page
    body = {"detail": "it cannot answer", "hint": "ask the operator"}
    now: dict[str, Any] = {}
    page.route("**/api/v1/search?*", lambda route: route.fulfill(json=body, **now))
    for status, headers in ((503, {"Retry-After": "60"}), (500, {})):
        now = {"status": status, "headers": headers}
        page.fill("#app\\.q", f"status {status}")
        expect(page.locator(".problem:not(.later)" if status == 500 else ".problem.later")).to_be_visible()
        expect(page.locator("body")).not_to_have_class(re.compile("pending"))
        check_accessibility(page)
    page.locator("#app\\.key").click()
    expect(page.locator("#app\\.key-dialog")).to_be_visible()
    check_accessibility(page)
    assert [
        element for element in get_names(page) if element["role"] in LABELLED_ROLES and not element["name"].strip()
    ] == []
    page.keyboard.press("Escape")
    expect(page.locator("#app\\.key-dialog")).to_have_count(0)
    expect(page.locator("#app\\.key")).to_be_focused()


@views
def test_a_phone_needs_no_horizontal_scrolling(server: WebServer, visit: OpenTab, view: str) -> None:
    address, wait = VIEWS[view]
    size = {"width": 375, "height": 720}
    page = visit(server.url + address, wait=wait, viewport=size, has_touch=True, is_mobile=True).page
    assert page.evaluate("[document.documentElement.scrollWidth, visualViewport.width]") == [375, 375]
    assert page.evaluate(CHECKS)["faults"] == []


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(246, 245, 241)"), ("dark", "rgb(17, 21, 19)")])
def test_colours_follow_the_system_without_script(
    server: WebServer, visit: OpenTab, scheme: str, background: str
) -> None:
    page = visit(f"{server.url}w/runbook/find?q=database", java_script_enabled=False, color_scheme=scheme).page
    expect(page.locator("html")).to_have_css("background-color", background)


@pytest.mark.parametrize("view", ["search", "page", "wikis"])
def test_a_page_weighs_less_than_45_kb(server: WebServer, visit: OpenTab, view: str) -> None:
    sizes = measure_page(visit(f"{server.url}healthz").page, server.url + VIEWS[view][0])
    assert 5_000 < sum(sizes.values()) < 45_000, sizes


def test_on_a_phone_the_preview_covers_the_list_and_traps_the_focus(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=ledger", wait=CARDS, viewport={"width": 375, "height": 720}).page
    page.locator(f"{CARDS} h2 a").first.click()
    preview = page.locator("#app\\.preview")
    expect(preview).to_have_attribute("aria-modal", "true")
    box = preview.bounding_box()
    assert box is not None
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, 375, 720)
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('.found, .bar, .top')")
    page.get_by_role("button", name="Close the preview").click()
    expect(page.locator(f"{CARDS} h2 a").first).to_be_focused()


def test_filters_on_a_phone_are_collapsed_and_usable(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=CARDS, viewport={"width": 375, "height": 720}).page
    box = page.locator("input[name=category][value=incidents]")
    expect(box).to_be_hidden()
    page.get_by_text("Filters", exact=True).click()
    box.check()
    expect(page.locator("#app\\.count")).to_contain_text("4 pages searched")
    expect(page.locator("#app\\.filter-count")).to_have_text("1")


def test_the_theme_switch_changes_the_colours_and_is_remembered(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, color_scheme="light").page
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_role("button", name="Use dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Use light colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate("localStorage.length") == 0, "back to the system theme"


def test_changes_are_announced_to_screen_readers(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    live = page.locator("#app\\.count")
    expect(live).to_have_attribute("aria-live", "polite")
    expect(live).to_have_role("status")
    page.fill("#app\\.q", "database")
    expect(live).to_contain_text("14 pages searched")
    expect(page.locator("#app\\.q")).to_have_accessible_name("Search this wiki")
    expect(page.locator("#app\\.q")).to_have_accessible_description(
        "Results appear as you type. The down arrow moves to them, Enter opens one, Escape goes back."
    )


@pytest.mark.parametrize("view", ["search", "answer", "changed pages", "folders", "page"])
def test_every_tab_stop_has_a_visible_focus(server: WebServer, visit: OpenTab, view: str) -> None:
    address, wait = VIEWS[view]
    page = visit(server.url + address, wait=wait).page
    page.evaluate("document.activeElement.blur()")
    seen = 0
    for _ in range(18):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS_SCRIPT)
        assert focus is not False
        seen += bool(focus)
    assert seen > 10


def test_reduced_motion_disables_animations(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, reduced_motion="reduce").page
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((each) => {
          const style = getComputedStyle(each);
          return parseFloat(style.transitionDuration) > 0 || parseFloat(style.animationDuration) > 0;
        }).length"""
    )
    assert moving == 0


def read_pixel(page: Page, x: int, y: int) -> tuple[int, ...]:
    """The colour of a pixel: red, green and blue."""
    png = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    at = png.index(b"IDAT") + 4
    data = png[at : at + int.from_bytes(png[at - 8 : at - 4])]
    # The only row begins with the number of a filter, which changes nothing in the first pixel.
    return tuple(zlib.decompressobj().decompress(data)[1:4])


def is_similar(color: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return max(abs(a - b) for a, b in zip(color, other, strict=True)) <= 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wide_table_has_a_shade_where_there_is_more_to_scroll(server: WebServer, visit: OpenTab, scheme: str) -> None:
    size = {"width": 375, "height": 720}
    address, wait = VIEWS["page"]
    page = visit(server.url + address, wait=wait, viewport=size, color_scheme=scheme).page
    table = page.locator(".wide").first
    table.evaluate("table => table.querySelector('table').style.minWidth = '60rem'")
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    assert box is not None
    left, right, y = int(box["x"]), int(box["x"] + box["width"]) - 1, int(box["y"]) + 3

    def read_edges() -> tuple[bool, bool]:
        plain = read_pixel(page, left + 100, y)
        return is_similar(read_pixel(page, left, y), plain), is_similar(read_pixel(page, right, y), plain)

    assert read_edges() == (True, False)
    table.evaluate("table => table.scrollTo(200, 0)")
    assert read_edges() == (False, False)
    table.evaluate("table => table.scrollTo(9999, 0)")
    assert read_edges() == (False, True)
    table.evaluate("table => table.querySelector('table').style.minWidth = '0'")
    table.evaluate("table => table.querySelector('table').style.fontSize = '2px'")
    assert read_edges() == (True, True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_backdrop_of_a_dialog_reaches_the_edge(server: WebServer, visit: OpenTab, scheme: str) -> None:
    page = visit(f"{server.url}w/runbook/status", wait=".figures", color_scheme=scheme).page
    bright = read_pixel(page, 5, 790)
    assert is_similar(read_pixel(page, 1279, 790), bright)
    page.locator("#app\\.key").click()
    expect(page.locator("#app\\.key-dialog")).to_be_visible()
    dimmed = read_pixel(page, 5, 790)
    assert dimmed != bright
    assert is_similar(read_pixel(page, 1279, 790), dimmed)


def test_only_devices_with_a_keyboard_show_shortcuts(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    expect(page.locator(".tips")).to_contain_text("excludes pages, ? shows shortcuts")
    expect(page.locator(".tips kbd")).to_be_visible()
    options = {"viewport": {"width": 800, "height": 1000}, "has_touch": True, "is_mobile": True}
    page = visit(f"{server.url}w/runbook/", wait=CARDS, **options).page
    expect(page.locator(".tips")).to_be_visible()
    expect(page.locator(".tips kbd")).to_be_hidden()
    expect(page.locator(".slash")).to_be_hidden()
