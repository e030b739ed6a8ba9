"""Mermaid diagrams: drawn in a frame that cannot reach the wiki, and shown as images."""

import gzip
import hashlib
from importlib.resources import files

import pytest
from playwright.sync_api import Page, Route, expect

from tests.interfaces.web.browser.conftest import ManagedServer
from tests.interfaces.web.browser.test_appearance import check_accessibility
from tests.support.browser import OpenTab
from tests.support.wait import wait_until
from wikiholt.interfaces.web.diagram_view import MERMAID

pytestmark = pytest.mark.model

MERMAID_SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
"""Of `dist/mermaid.min.js` in the npm package."""
FLOW = "flowchart LR\n  accTitle: How a page is saved\n  A[Edit] --> B{Saved?}\n  B -- yes --> C[Done]\n"
OTHERS = (
    "sequenceDiagram\n  Reader->>Wiki: search\n  Wiki-->>Reader: hits\n",
    'pie title Pages\n  "guides" : 3\n  "notes" : 5\n',
    "mindmap\n  root\n    one\n    two\n",
)
HOSTILE = (
    'flowchart LR\n  A["<img src=x onerror=alert(1)>"] --> B["<script>alert(1)</script>"]\n',
    'flowchart LR\n  A --> B\n  click A "javascript:alert(1)"\n  click B call alert("1")\n',
    '%%{init: {"securityLevel": "loose", "flowchart": {"htmlLabels": true}, '
    '"themeCSS": "@import url(//x.example/x.css); * { background: url(//x.example/x.png) }"}}%%\n'
    "flowchart LR\n  A[\"<iframe srcdoc='<script>alert(1)</script>'></iframe>\"]\n",
    "---\nconfig:\n  securityLevel: loose\n---\nflowchart LR\n  A@{ img: 'https://x.example/x.png', label: 'x' }\n",
    'sequenceDiagram\n  participant A\n  link A: Go @ javascript:alert(1)\n  A->>A: <svg onload="alert(1)">\n',
    'gantt\n  section <b onmouseover="alert(1)">x</b>\n  a :a1, 2026-01-01, 3d\n  click a1 href "javascript:alert(1)"',
)
ESCAPE = """
const attempts = {
  document: () => parent.document.body, storage: () => localStorage.length, cookie: () => document.cookie,
  navigation: () => { top.location.href = "https://x.example/"; },
  dialog: () => { if (alert(1) === undefined) throw 0; },
  window: () => { if (!open("https://x.example/")) throw 0; },
};
const succeeds = ([, attempt]) => { try { attempt(); return true; } catch { return false; } };
const reached = Object.entries(attempts).filter(succeeds);
fetch(new URL("/api/v1/wikis", location.href)).then(() => "fetch", () => "").then((fetched) => {
  addEventListener("message", ({ data }) => {
    const error = `reached ${[...reached.map(([name]) => name), fetched].join(" ")}.`;
    parent.postMessage(data.id ? { id: data.id, error } : { id: 0, svg:
      '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="alert(1)"><script>alert(1)</script>'
      + '<image href="https://x.example/x.png"/></svg>' }, "*");
  });
  parent.postMessage({ ready: true }, "*");
});
"""


def format_page(diagrams: tuple[str, ...]) -> bytes:
    blocks = "\n\n".join(f"```mermaid\n{diagram}```" for diagram in diagrams)
    return f"# Diagrams\n\n{blocks}\n".encode()


@pytest.fixture(scope="module")
def wiki(managed: ManagedServer) -> ManagedServer:
    managed.commit("Diagrams.md", format_page((FLOW, *OTHERS)))
    managed.commit("Hostile.md", format_page(HOSTILE))
    managed.commit("Broken.md", format_page(("flowchart LR\n  A[ --> \n",)))
    wait_until(lambda: managed.server.is_indexed("runbook", managed.tokens["read"]), "the diagrams are indexed")
    return managed


def open_page(wiki: ManagedServer, visit: OpenTab, name: str, **options: object) -> Page:
    return wiki.open(visit, "read", f"read?page={name}", "h1", **options).page


def wait_until_drawn(page: Page) -> None:
    expect(page.locator("iframe")).to_have_count(0)


def test_diagrams_are_images_with_their_text_below(wiki: ManagedServer, visit: OpenTab) -> None:
    page = open_page(wiki, visit, "Diagrams")
    pictures = page.locator("img.diagram")
    expect(pictures).to_have_count(4)
    expect(pictures.first).to_have_attribute("alt", "How a page is saved")
    expect(pictures.nth(1)).to_have_attribute("alt", "Diagram, described by the text below")
    wait_until_drawn(page)
    assert all(page.evaluate("[...document.querySelectorAll('img.diagram')].map((image) => image.naturalHeight > 40)"))
    expect(page.locator(".code-title")).to_have_count(0)
    page.get_by_text("Text of the diagram").first.click()
    expect(page.locator("pre").first).to_contain_text("flowchart LR")
    check_accessibility(page)


def test_a_diagram_has_the_colours_of_the_page(wiki: ManagedServer, visit: OpenTab) -> None:
    page = open_page(wiki, visit, "Diagrams", color_scheme="light")
    expect(page.locator("img.diagram")).to_have_count(4)
    light = page.locator("img.diagram").first.get_attribute("src")
    wait_until_drawn(page)
    page.get_by_role("button", name="Use dark colours").click()
    expect(page.locator("img.diagram").first).not_to_have_attribute("src", light or "")
    wait_until_drawn(page)


def test_the_preview_beside_the_results_draws_diagrams(wiki: ManagedServer, visit: OpenTab) -> None:
    page = wiki.open(visit, "read", "?page=Diagrams", ".preview .page").page
    expect(page.locator(".preview img.diagram")).to_have_count(4)


def test_a_diagram_with_an_error_stays_text(wiki: ManagedServer, visit: OpenTab) -> None:
    page = open_page(wiki, visit, "Broken")
    expect(page.locator(".code-title")).to_contain_text("Mermaid diagram, as text: Parse error")
    expect(page.locator("pre")).to_be_visible()


def test_hostile_diagrams_run_and_load_nothing(wiki: ManagedServer, visit: OpenTab) -> None:
    """The tab fails for a dialog and for a request to another server."""
    tab = wiki.sign_in(visit, "read", expected=("Content Security Policy", "sandboxed", "x.example", "@import"))
    refused: list[str] = []
    tab.page.on("requestfailed", lambda request: refused.append(request.url) if request.failure == "csp" else None)
    tab.page.goto(f"{wiki.server.url}w/runbook/read?page=Hostile")
    expect(tab.page.locator("img.diagram, .code-title:has-text(':')")).to_have_count(len(HOSTILE))
    wait_until_drawn(tab.page)
    # The browser also reports requests that the policy of the frame refuses.
    tab.requests[:] = [request for request in tab.requests if request not in refused]


def test_a_frame_that_is_taken_over_reaches_nothing(wiki: ManagedServer, visit: OpenTab) -> None:
    def take_over(route: Route) -> None:
        route.fulfill(
            body=ESCAPE, content_type="text/javascript", headers={"Cross-Origin-Resource-Policy": "cross-origin"}
        )

    tab = wiki.sign_in(visit, "read", expected=("Content Security Policy", "sandboxed", "x.example", "Unsafe attempt"))
    tab.page.route("**/diagram/*/diagram_frame.js", take_over)
    tab.page.goto(f"{wiki.server.url}w/runbook/read?page=Diagrams")
    expect(tab.page.locator(".code-title").first).to_have_text("Mermaid diagram, as text: reached .")
    expect(tab.page.locator("img.diagram")).to_have_count(1)
    wait_until_drawn(tab.page)
    assert tab.page.url.startswith(wiki.server.url)


def test_only_a_page_with_a_diagram_loads_the_library(wiki: ManagedServer, visit: OpenTab) -> None:
    tab = wiki.open(visit, "read", "read?page=Services/Ledger", ".related")
    assert not [request for request in tab.requests if "diagram" in request]


def test_the_library_is_the_published_one() -> None:
    file = files("wikiholt.interfaces.web").joinpath("vendor", f"{MERMAID}.gz")
    assert hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest() == MERMAID_SHA256
