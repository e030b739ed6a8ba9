"""Sync times on a real wiki of 14,593 pages with its history.

    python -m bench.sync [--corpus BUNDLE] [--copies] [--write]

With `--copies`, only edits are measured, in a wiki of 15,000 pages that are copies of 150, so that few texts are embedded.

The index is kept in bench/data: the first run embeds everything (minutes), later runs measure the rest again and
keep the figures of the first sync.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.corpus import BareWiki, list_pages, make_smaller, open_clone, read_pages, run_git
from bench.measures import measure_seconds
from bench.report import DATA, make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.git import Blob
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

REPLAYED = 100


def main() -> None:
    parser = make_parser(__doc__, "sync", "corpus")
    parser.add_argument("--copies", action="store_true", help="only edits, in a wiki of copies")
    arguments = parser.parse_args()
    large = open_clone(arguments.corpus)
    if arguments.copies:
        print("\n".join(measure_edits_of_copies(make_copies(large, DATA / "many.git", 150, 100))))
        return
    small, some = (
        make_smaller(large, DATA / f"mdn-{name}.git", count) for name, count in (("small", 150), ("some", 770))
    )
    service = open_service(DATA / "sync")
    rows = [make_head("| what | figure |")]
    steps: tuple[Callable[[], list[str]], ...] = (
        lambda: measure_preparation(large),
        lambda: measure_some_pages(some),
        lambda: run_first_sync(service, large),
        run_unchanged,
        lambda: run_replay(service, large),
        lambda: run_rename(service, large),
        lambda: run_edits(service, large, small),
    )
    for step in steps:
        rows += step()
        print(rows[-1], file=sys.stderr, flush=True)
    service.close()
    publish("sync", __doc__, rows, write=arguments.write)


def measure_preparation(wiki: BareWiki) -> list[str]:
    """What the text of a page takes: parsing, terms, chunks, tokens, hashes."""
    files = list_pages(wiki.path)
    texts = [page.encode() for page in read_pages(wiki.path, files)]
    tasks = [PageTask(file, Blob("0" * 40, len(text), text), None) for file, text in zip(files, texts, strict=True)]
    pipeline, embedder = TextPipeline(), load_embedder(DEFAULT_MODEL)
    pipeline.prepare(tasks[0], embedder)
    began, chunks = time.process_time(), 0
    for task in tasks:
        page = pipeline.prepare(task, embedder)
        assert isinstance(page, PreparedPage)
        chunks += len(page.chunks)
    milliseconds = (time.process_time() - began) / len(tasks) * 1e3
    return [f"| preparing a page, CPU | {milliseconds:.2f} ms ({len(tasks):,} pages, {chunks:,} chunks) |"]


def measure_some_pages(wiki: BareWiki) -> list[str]:
    """A first sync of some pages: how fast it is, and how much of the cores it uses."""
    with tempfile.TemporaryDirectory() as directory:
        service = open_service(Path(directory))
        service.add("some", str(wiki.path.resolve()), {})
        service.components.embedder().run_self_test()
        began = time.process_time()
        report = service.get_handle("some").sync()
        busy = (time.process_time() - began) / report.seconds
        service.close()
    return [
        f"| first sync of {report.added} pages | {report.chunks_embedded:,} chunks in {report.seconds:.1f} s: "
        f"{report.chunks_embedded / report.seconds:.0f} chunks/s, {busy:.2f} of {os.cpu_count()} cores busy |"
    ]


def run_first_sync(service: WikiService, wiki: BareWiki) -> list[str]:
    """The first sync, at the commit before the replayed ones; its figures are kept beside the index."""
    figures_file = DATA / "first-sync.json"
    if not figures_file.exists():
        tip = wiki.run_git("rev-parse", "refs/heads/main")
        (DATA / "tip").write_text(tip)
        wiki.set_head(wiki.run_git("rev-parse", f"{tip}~{REPLAYED}"))
        service.add("mdn", str(wiki.path.resolve()), {})
        with show_sync_progress("mdn", visible=True) as progress:
            report = service.get_handle("mdn").sync(progress)
        (index,) = (DATA / "sync" / "wikis" / service.get_handle("mdn").wiki.id).glob("g*.sqlite")
        figures = {"pages": report.added, "chunks": report.chunks_embedded + report.chunks_reused}
        figures |= {"seconds": report.seconds, "embedded": report.chunks_embedded, "disk": index.stat().st_size}
        figures_file.write_text(json.dumps(figures))
    f = json.loads(figures_file.read_text())
    return [
        f"| first sync | {f['pages']:,} pages, {f['chunks']:,} chunks ({f['embedded']:,} embedded) in {f['seconds']:,.0f} s: "
        f"{f['pages'] / f['seconds']:.1f} pages/s, {f['embedded'] / f['seconds']:.0f} chunks/s |",
        f"| size of the index | {f['disk'] / 1e6:,.1f} MB: {f['disk'] / f['chunks'] / 1e3:.2f} kB a chunk |",
    ]


def run_unchanged() -> list[str]:
    """A sync with nothing changed: in a fresh process (whole trees compared), and in one that has synced before."""
    cold = open_service(DATA / "sync")
    cold.get_handle("mdn").sync()
    first = [measure_seconds(open_fresh_handle().sync) for _ in range(5)]
    warm = [measure_seconds(cold.get_handle("mdn").sync) for _ in range(9)]
    cold.close()
    return [
        f"| nothing changed, by a handle that compares whole trees | {statistics.median(first) * 1e3:.0f} ms |",
        f"| nothing changed, by a handle that has synced before | {statistics.median(warm) * 1e3:.1f} ms |",
    ]


def open_fresh_handle() -> WikiHandle:
    """A handle that has compared nothing yet, with the model already loaded."""
    service = open_service(DATA / "sync")
    service.components.embedder().run_self_test()
    return service.get_handle("mdn")


def run_replay(service: WikiService, wiki: BareWiki) -> list[str]:
    """The last 100 commits, one by one."""
    tip = (DATA / "tip").read_text()
    base = wiki.run_git("rev-parse", f"{tip}~{REPLAYED}")
    wiki.set_head(base)
    service.get_handle("mdn").sync()
    seconds, pages, embedded = [], 0, 0
    for commit in wiki.run_git("rev-list", "--reverse", "--first-parent", f"{base}..{tip}").split():
        wiki.set_head(commit)
        began = time.perf_counter()
        report = service.get_handle("mdn").sync()
        seconds.append(time.perf_counter() - began)
        pages += report.added + report.changed + report.deleted + report.moved
        embedded += report.chunks_embedded
    spread = statistics.quantiles(seconds, n=20)
    return [
        f"| replaying {len(seconds)} commits one by one | {pages} pages touched, {embedded} chunks embedded; per commit "
        f"p50 {spread[9] * 1e3:.0f} ms, p95 {spread[18] * 1e3:.0f} ms |"
    ]


def run_rename(service: WikiService, wiki: BareWiki) -> list[str]:
    """A directory of thousands of pages under another name."""
    before = wiki.run_git("rev-parse", "HEAD")
    wiki.rename_directory("web/api", "api-renamed")
    report = service.get_handle("mdn").sync()
    row = (
        f"| renaming a directory of {report.moved:,} pages | {report.chunks_embedded} chunks embedded, "
        f"{report.chunks_reused:,} reused, {report.seconds:.1f} s |"
    )
    wiki.set_head(before)
    service.get_handle("mdn").sync()
    return [row]


def run_edits(service: WikiService, large: BareWiki, small: BareWiki) -> list[str]:
    """From a commit of one edited page to finding it, in a large wiki and in a small one, in turns."""
    if "mdn-small" not in [wiki.slug for wiki in service.list_wikis()]:
        service.add("mdn-small", str(small.path.resolve()), {})
    wikis = {"mdn": large, "mdn-small": small}
    chunks = {}
    for slug in wikis:
        service.get_handle(slug).sync()
        service.get_handle(slug).search(SearchRequest("warm up"))
        state = service.get_handle(slug).get_status().state
        chunks[slug] = state.chunks if state else 0
    file = "glossary/bench-page.md"
    took: dict[str, list[float]] = {slug: [] for slug in wikis}
    for turn in range(15):
        for slug, wiki in wikis.items():
            word = f"quokka{turn}{slug.replace('-', '')}"
            wiki.write_page(file, f"---\ntitle: Bench\n---\n\n{_PROSE} Turn {turn} mentions the {word}.\n")
            began = time.perf_counter()
            service.get_handle(slug).sync()
            found = service.get_handle(slug).search(SearchRequest(word)).hits[0]
            took[slug].append(time.perf_counter() - began)
            assert word in found.snippet.text, (word, found)
    large_ms, small_ms = (statistics.median(took[slug][2:]) * 1e3 for slug in wikis)
    return [
        f"| one edited page found again, {chunks['mdn']:,} chunks beside {chunks['mdn-small']:,} | {large_ms:.0f} ms beside "
        f"{small_ms:.0f} ms: {large_ms / small_ms:.2f} × |"
    ]


def make_copies(wiki: BareWiki, to: Path, pages: int, copies: int) -> BareWiki:
    """A wiki in which each of some pages of this one is in as many directories."""
    if not (to / "HEAD").exists():
        chosen = make_smaller(wiki, to.with_name(f"{to.stem}-once.git"), pages)
        lines = chosen.run_git("ls-tree", "-r", "HEAD").splitlines()
        run_git(Path(), "init", "-q", "--bare", "-b", "main", str(to))
        (to / "objects/info/alternates").write_text(str((wiki.path / "objects").resolve()) + "\n")
        made = BareWiki(to)
        entries = [line.replace("\t", f"\tcopy{number}/", 1) for number in range(copies) for line in lines]
        made.run_git("update-index", "--index-info", stdin="\n".join(entries) + "\n")
        made.set_head(made.run_git("commit-tree", made.run_git("write-tree"), "-m", "copies"))
    return BareWiki(to)


def measure_edits_of_copies(wiki: BareWiki) -> list[str]:
    """One edit, found again, and twenty in a row; CPU time is that of this process, without git."""
    service = open_service(DATA / "many")
    if not service.list_wikis():
        service.add("many", str(wiki.path.resolve()), {})
    handle = service.get_handle("many")
    handle.sync()
    turn = 0

    def edit() -> tuple[float, float]:
        nonlocal turn
        turn += 1
        word = f"quokka{turn}"
        wiki.write_page("copy1/bench.md", f"---\ntitle: Bench\n---\n\n{_PROSE} Turn {turn} mentions the {word}.\n")
        began, cpu = time.perf_counter(), time.process_time()
        handle.sync()
        assert word in handle.search(SearchRequest(word)).hits[0].snippet.text
        return time.perf_counter() - began, time.process_time() - cpu

    for _ in range(4):
        edit()
    single, row = [edit() for _ in range(9)], [edit() for _ in range(20)]
    service.close()
    wall, cpu = (statistics.median(each[position] for each in single) * 1e3 for position in (0, 1))
    all_wall, all_cpu = (sum(each[position] for each in row) * 1e3 for position in (0, 1))
    return [
        f"| one edit of 15,000 pages found again | {wall:.0f} ms, CPU {cpu:.0f} ms |",
        f"| twenty in a row | {all_wall:,.0f} ms, CPU {all_cpu:,.0f} ms: {all_cpu / cpu:.1f} × one |",
    ]


_PROSE = (
    "A page that a bench edits again and again, of a length that real glossary entries have, with a few sentences. " * 5
)

if __name__ == "__main__":
    main()
