"""The search of a static export in a real browser, beside the served search and Pagefind.

    python -m bench.export [--pagefind DIR] [--write]

Uses the indexes of bench.quality (run that first). Each collection is exported with the defaults, and all questions are
asked to the script of the export in chromium, on a page opened from the directory. *Pagefind* gets the same pages as
HTML, each with its title, and is asked over HTTP; DIR has its npm package in `node_modules`. nDCG@10 is computed as
`wikiholt eval` does it.

The ranking has the weights of the hybrid search, which are fitted to other wikis. Only the scale of the cosines was
chosen on these collections: *held out* has, for each collection, the scale that is best for the others.

*Cold* is what a first search loads: the median over 40 questions, each in a new profile, with the script and the texts
of eight hits; *gzip* is what it is behind a host that compresses. Milliseconds are the median of all questions in one
page, whose files are loaded as the questions need them.
"""

import argparse
import gzip
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from playwright.sync_api import Browser, Page, Response, sync_playwright

from bench import collections
from bench.report import make_head, make_parser, publish
from tests.support.browser import find_chromium
from tests.support.http_server import run_handler
from wikiholt.__main__ import main as run_wikiholt
from wikiholt.api.bootstrap import open_service
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.evaluation.quality_metrics import compute_ndcg
from wikiholt.wikis.export.encoder import SCALE
from wikiholt.wikis.handle import WikiHandle

NAMES = ("cranfield", "wiki-dendron", "wiki-k8s-en", "scifact")
SCALES = (1.5, 2.0, 3.0)
DEPTH, COLD_QUESTIONS, HITS = 30, 40, 8
SEARCH = """async (question) => {
  const script = document.querySelector("script[src$='wikiholt.js']"), began = performance.now();
  const found = await script.search(question.text, { limit: question.limit, relatedCosine: question.scale });
  return { pages: found.results.map((hit) => hit.path), ms: performance.now() - began };
}"""
PAGEFIND = """async (question) => {
  const began = performance.now();
  window.pagefind ??= await import("/pagefind/pagefind.js");
  const found = await window.pagefind.search(question.text);
  const hits = await Promise.all(found.results.slice(0, question.limit).map((result) => result.data()));
  return { pages: hits.map((hit) => hit.meta.path), ms: performance.now() - began };
}"""
TITLE = "| questions | hybrid | export | of hybrid | held out | Pagefind | ms | Pagefind ms |"
COLD_TITLE = "| collection | pages | cold kB | gzip kB | Pagefind cold kB | export MB | Pagefind MB |"
Ask = Callable[[str, int], tuple[list[str], float]]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    parser = make_parser(__doc__, "export", "collections", "data")
    parser.add_argument("--pagefind", type=Path, help="a directory with the npm package pagefind")
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--scales", nargs="*", type=float, default=SCALES, help="scales of the cosines to compare")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    sizes: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        for name in arguments.only:
            found, size = measure_collection(browser, name, arguments)
            rows |= found
            print(name, found, size, flush=True)
            sizes.append(size)
    lines = [make_head(TITLE), *format_rows(rows), "", make_head(COLD_TITLE), *sizes]
    publish("export", __doc__, lines, write=arguments.write)


def measure_collection(
    browser: Browser, name: str, arguments: argparse.Namespace
) -> tuple[dict[str, dict[str, float]], str]:
    place = arguments.data / "export" / name
    quality = arguments.data / "quality"
    if run_wikiholt(["--data", str(quality), "export", str(place), "-w", name, "--url", "/{path}"]):
        raise SystemExit(f"the export of {name} failed")
    kinds = collections.read_queries(arguments.collections / name)
    texts = [text for kind in kinds for text in kind.texts.values()][:: max(1, len(kinds))][:COLD_QUESTIONS]
    service = open_service(quality)
    rows: dict[str, dict[str, float]] = {}
    with serve(place) as address, open_page(browser, (place / "index.html").as_uri()) as page:
        handle = service.get_handle(name)
        for kind in kinds:
            rows[kind.name] = {"hybrid": score(kind, partial(ask_service, handle))["ndcg"]}
            for scale in {SCALE.related, *arguments.scales}:
                found = score(kind, partial(ask_page, page, SEARCH, scale))
                rows[kind.name][f"scale {scale}"] = found["ndcg"]
                if scale == SCALE.related:
                    rows[kind.name] |= {"export": found["ndcg"], "ms": found["ms"]}
        cold, compressed = measure_cold(browser, f"{address}/index.html", SEARCH, texts)
    service.close()
    other, other_cold = "–", "–"
    if arguments.pagefind:
        site = write_site(arguments.collections / name, arguments.data / "pagefind" / name)
        command = next(arguments.pagefind.glob("node_modules/@pagefind/*/bin/pagefind_extended"))
        subprocess.run([command.resolve(), "--site", site.resolve()], check=True, capture_output=True)
        with serve(site) as address, open_page(browser, f"{address}/index.html") as page:
            for kind in kinds:
                shipped = score(kind, partial(ask_page, page, PAGEFIND, None))
                rows[kind.name] |= {"pagefind": shipped["ndcg"], "pagefind ms": shipped["ms"]}
            other_cold = f"{measure_cold(browser, f'{address}/index.html', PAGEFIND, texts)[0] / 1000:.0f}"
        other = f"{measure_size(site / 'pagefind') / 1e6:.1f}"
    pages = len(collections.read_documents(arguments.collections / name))
    size = f"{measure_size(place) / 1e6:.1f}"
    return rows, (
        f"| {name} | {pages:,} | {cold / 1000:.0f} | {compressed / 1000:.0f} | {other_cold} | {size} | {other} |"
    )


def ask_service(handle: WikiHandle, text: str, limit: int) -> tuple[list[str], float]:
    result = handle.search(SearchRequest(text, limit, rerank=False))
    return [hit.path for hit in result.hits], result.took_ms


def ask_page(page: Page, script: str, scale: float | None, text: str, limit: int) -> tuple[list[str], float]:
    found = page.evaluate(script, {"text": text, "limit": limit, "scale": scale})
    return found["pages"], found["ms"]


def score(kind: collections.Queries, ask: Ask) -> dict[str, float]:
    values, times = [], []
    for query, text in kind.texts.items():
        excluded = kind.exclude.get(query, set())
        pages, took = ask(text, DEPTH)
        ranking = list(dict.fromkeys(page for page in pages if page not in excluded))
        values.append(compute_ndcg(ranking, kind.relevant[query], 10))
        times.append(took)
    return {"ndcg": statistics.fmean(values), "ms": statistics.median(times)}


def measure_cold(browser: Browser, address: str, script: str, texts: Sequence[str]) -> tuple[float, float]:
    """The bytes of a first search, as they are and compressed; without the HTML page."""
    sizes, compressed = [], []
    for text in texts:
        context = browser.new_context(service_workers="block")
        responses = load_search(context.new_page(), address, script, text)
        bodies = [each.body() for each in responses if not each.url.endswith((".html", ".ico"))]
        sizes.append(sum(map(len, bodies)))
        compressed.append(sum(min(len(body), len(gzip.compress(body))) for body in bodies))
        context.close()
    return statistics.median(sizes), statistics.median(compressed)


def load_search(page: Page, address: str, script: str, text: str) -> list[Response]:
    """The responses of a search in this page."""
    responses: list[Response] = []
    page.on("response", lambda response: responses.append(response))  # noqa: PLW0108 - it cannot wrap a built-in method
    page.goto(address)
    page.evaluate(script, {"text": text, "limit": HITS, "scale": None})
    return responses


def write_site(directory: Path, site: Path) -> Path:
    """The pages of a collection as a site."""
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html><title>Search</title><p data-pagefind-ignore>Search</p>")
    for number, document in enumerate(collections.read_documents(directory)):
        path = collections.get_page_path(document["id"])
        body = "".join(f"<p>{escape(part)}</p>" for part in document["text"].split("\n\n"))
        (site / f"{number}.html").write_text(
            f'<!doctype html><html lang="en"><title>{escape(document["title"])}</title><body data-pagefind-body>'
            f'<h1>{escape(document["title"])}</h1><p data-pagefind-meta="path">{escape(path)}</p>{body}</body></html>'
        )
    return site


def measure_size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    with run_handler(partial(QuietHandler, directory=str(directory))) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def open_page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def choose_held_out(rows: Mapping[str, Mapping[str, float]], kind: str) -> float:
    """The result of a kind of questions with the scale that is best for the other collections."""
    name = kind.split(" ", maxsplit=1)[0]
    others = [row for other, row in rows.items() if other.split(" ")[0] != name] or list(rows.values())
    scales = [float(name.split()[1]) for name in rows[kind] if name.startswith("scale")]
    best = max(scales, key=lambda scale: statistics.fmean(row[f"scale {scale}"] / row["hybrid"] for row in others))
    return rows[kind][f"scale {best}"]


def format_rows(rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    shares = []
    for kind, row in rows.items():
        held_out = choose_held_out(rows, kind)
        shares.append((row["export"] / row["hybrid"], held_out / row["hybrid"], row.get("pagefind", 0) / row["hybrid"]))
        yield (
            f"| {kind} | {row['hybrid']:.3f} | {row['export']:.3f} | {shares[-1][0]:.1%} | {held_out:.3f} "
            f"| {row.get('pagefind', 0):.3f} | {row['ms']:.0f} | {row.get('pagefind ms', 0):.0f} |"
        )
    export, held_out, pagefind = (statistics.fmean(column) for column in zip(*shares, strict=True))
    yield f"| mean share of hybrid | | | {export:.1%} | {held_out:.1%} | {pagefind:.1%} | | |"


if __name__ == "__main__":
    main()
