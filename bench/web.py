"""The weight of the web page in a real browser, beside budgets like those of Lighthouse, and search as you type.

    python -m bench.web [--corpus BUNDLE] [--only-typing] [--write]

Bytes, requests and elements do not depend on the machine. Times do; they are medians of five loads.

Search as you type: in a wiki with 10,000 chunks, titles of its pages are typed with a key every 120 ms, and then deleted. The
time of a key is that from its event to the paint of results that know it, so a key whose own results are never painted
counts until those of a later key. Keys whose results the page holds back, because nothing is relevant while the user types,
are left out.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Response, sync_playwright

from bench.corpus import make_smaller, open_clone
from bench.http.__main__ import get_free_port, run_server
from bench.report import DATA, make_head, make_parser, publish
from tests.support.browser import find_chromium
from tests.support.web_server import run_web_server
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import PageFilter

VIEWS = {
    "search": ("w/runbook/?q=database", ".card"),
    "start of a wiki": ("w/runbook/", ".card"),
    "preview": ("w/runbook/?q=ledger&page=Services/Ledger", ".related section"),
    "page": ("w/runbook/read?page=Services/Ledger", ".related"),
    "wikis": ("", ".tiles small:not(:empty)"),
    "status": ("w/runbook/status", ".figures"),
    "without script": ("w/runbook/find?q=database", ".card"),
}
LOADS = 5
METRICS = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return { paint: paint ? paint.startTime : 0, shift: window.layoutShift || 0, blocked: window.blockedMs || 0,
    elements: document.getElementsByTagName("*").length };
}"""
OBSERVERS = """
  new PerformanceObserver((list) => { for (const each of list.getEntries()) if (!each.hadRecentInput) window.layoutShift = (window.layoutShift || 0) + each.value; }).observe({ type: "layout-shift", buffered: true });
  new PerformanceObserver((list) => { for (const each of list.getEntries()) window.blockedMs = (window.blockedMs || 0) + each.duration - 50; }).observe({ type: "longtask", buffered: true });
"""
BUDGETS = {"kilobytes": 100, "requests": 40, "elements": 1500, "paint_ms": 1800, "shift": 0.1, "blocked_ms": 200}
"""Lighthouse calls a page good up to these values; bytes and requests are ours."""


KEY_DELAY_MS, TYPED_TITLES, TYPING_PAGES = 120, 12, 850
TYPING_WATCHER = """
  window.keys = []; window.paints = []; window.withheld = new Set();
  addEventListener("input", (event) => window.keys.push([event.timeStamp, event.target.value]), true);
  addEventListener("DOMContentLoaded", () => {
    new MutationObserver(() => {
      const query = document.title.split(" · ")[0];
      requestAnimationFrame(() => { const { port1, port2 } = new MessageChannel(); port1.onmessage = () => window.paints.push([performance.now(), query]); port2.postMessage(0); });
    }).observe(document.getElementById("app.results"), { childList: true });
  });
  const realFetch = window.fetch;
  window.fetch = async (...request) => {
    const response = await realFetch(...request), url = new URL(request[0], location.href);
    if (url.pathname.endsWith("/search")) response.clone().json().then((body) => { if (body.nothing_relevant) window.withheld.add(url.searchParams.get("q")); });
    return response;
  };
"""
"""Notes when keys are pressed, and when the results of a query, which the title has, are painted: in the first task after an
animation frame."""


@dataclass(frozen=True, slots=True)
class PageWeight:
    """What one load of a view took."""

    kilobytes: float
    requests: int
    elements: int
    paint_ms: float
    shift: float
    blocked_ms: float


def load(browser: Browser, url: str, wait: str) -> PageWeight:
    """Load a view in a new profile, without a cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, service_workers="block")
    page = context.new_page()
    page.add_init_script(OBSERVERS)
    responses: list[Response] = []
    page.on("response", lambda response: responses.append(response))  # noqa: PLW0108 - it cannot wrap a built-in method
    page.goto(url)
    page.wait_for_selector(wait)
    page.wait_for_load_state("networkidle")
    found = page.evaluate(METRICS)
    files = [response for response in responses if "/api/" not in response.url]
    weight = PageWeight(
        sum(len(response.body()) for response in files) / 1000,
        len(responses),
        found["elements"],
        found["paint"],
        found["shift"],
        found["blocked"],
    )
    context.close()
    return weight


def measure() -> list[str]:
    lines = [
        make_head("| View | Kilobytes | Requests | Elements | First paint, ms | Layout shift | Blocked, ms |"),
        "| *budget* | {kilobytes} | {requests} | {elements} | {paint_ms} | {shift} | {blocked_ms} |".format(**BUDGETS),
    ]
    with (
        tempfile.TemporaryDirectory() as place,
        run_web_server(Path(place), settings=["limit.address_per_minute=0"]) as (server, _),
        sync_playwright() as playwright,
    ):
        program = find_chromium()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, (address, wait) in VIEWS.items():
            weights = [load(browser, server.url + address, wait) for _ in range(LOADS)]
            middle = {field: statistics.median(getattr(each, field) for each in weights) for field in BUDGETS}
            over = [field for field, budget in BUDGETS.items() if middle[field] > budget]
            values = (
                f"{middle['kilobytes']:.0f}", f"{middle['requests']:.0f}", f"{middle['elements']:.0f}",
                f"{middle['paint_ms']:.0f}", f"{middle['shift']:.3f}", f"{middle['blocked_ms']:.0f}",
            )  # fmt: skip
            lines.append(f"| {name}{' (over: ' + ', '.join(over) + ')' if over else ''} | {' | '.join(values)} |")
        browser.close()
    return lines


def measure_typing(corpus: Path) -> list[str]:
    """The time from a key to its painted results."""
    wiki = make_smaller(open_clone(corpus), DATA / "typing.git", TYPING_PAGES)
    service = open_service(DATA / "typing")
    if not service.list_wikis():
        service.add("mdn", str(wiki.path.resolve()), {})
    service.get_handle("mdn").sync()
    with service.get_handle("mdn").open_contents() as (index, _, _):
        chunks, pages = index.get_state().chunks, index.list_pages(PageFilter(), None)[1]
    service.close()
    titles = [page.name for page in pages if 8 <= len(page.name) <= 30][:: len(pages) // TYPED_TITLES][:TYPED_TITLES]
    port = get_free_port()
    command = [sys.executable, "-m", "wikiholt", "--data", str(DATA / "typing"), "serve", "--port", str(port)]
    taken: list[float] = []
    with run_server(command, port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(TYPING_WATCHER)
        page.goto(f"http://127.0.0.1:{port}/w/mdn/")
        page.wait_for_selector(".card")
        for number, title in enumerate([*titles[:2], *titles]):  # the first two are for warming up
            page.evaluate("window.keys = []; window.paints = []; window.withheld.clear()")
            page.fill(r"#app\.q", "")
            page.keyboard.type(title, delay=KEY_DELAY_MS)
            for _ in title[1:]:
                page.keyboard.press("Backspace", delay=KEY_DELAY_MS)
            page.wait_for_timeout(1500)
            if number >= 2:
                keys, paints, withheld = page.evaluate("[window.keys, window.paints, [...window.withheld]]")
                taken += list_key_times(keys, paints, set(withheld))
        browser.close()
    spread = statistics.quantiles(taken, n=20)
    return [
        f"Search as you type, {chunks:,} chunks, {len(taken)} keys: p50 {statistics.median(taken):.0f} ms, "
        f"p95 {spread[18]:.0f} ms, slowest {max(taken):.0f} ms."
    ]


def list_key_times(
    keys: list[tuple[float, str]], paints: list[tuple[float, str]], withheld: set[str]
) -> Iterator[float]:
    """The milliseconds of each key whose results were shown."""
    for number, (pressed_at, query) in enumerate(keys):
        later = {text.strip() for _, text in keys[number:]}
        painted = [at for at, text in paints if at >= pressed_at and text in later]
        if query.strip() and query not in withheld and painted:
            yield painted[0] - pressed_at


def main() -> None:
    parser = make_parser(__doc__, "web", "corpus")
    parser.add_argument("--only-typing", action="store_true", help="leave out the weight of the pages")
    arguments = parser.parse_args()
    note = "Chromium, 1280 × 800, no cache, without compression; bytes do not include data of the API."
    rows = [] if arguments.only_typing else measure()
    load = f"Load of the machine at the start of typing: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    rows += ["", *measure_typing(arguments.corpus), load]
    publish("web", __doc__, rows, write=arguments.write and not arguments.only_typing, note=note)


if __name__ == "__main__":
    main()
