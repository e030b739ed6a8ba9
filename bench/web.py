"""The weight of the web page in a real browser, beside budgets like those of Lighthouse.

    python -m bench.web [--write]

Bytes, requests and elements do not depend on the machine. Times do; they are medians of five loads.
"""

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Response, sync_playwright

from bench.report import make_head, make_parser, publish
from tests.support.browser import find_chromium
from tests.support.web_server import run_web_server

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


def main() -> None:
    parser = make_parser(__doc__, "web")
    arguments = parser.parse_args()
    note = "Chromium, 1280 × 800, no cache, without compression; bytes do not include data of the API."
    publish("web", __doc__, measure(), write=arguments.write, note=note)


if __name__ == "__main__":
    main()
