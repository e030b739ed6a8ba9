"""The cost and benefit of the plugin in an Otterwiki, on wikis of 330, 3,000 and 14,593 pages.

    python -m bench.otterwiki [--pages 330 3000 0] [--seconds 240] [--data DIR] [--random] [--prepare] [--write]

Two servers of the same kind (gunicorn, one worker, four threads) run over copies of the same repository, one with the
plugin and one without, and get the same requests. 0 pages means all. The complete wiki is indexed the first time
(half an hour on two cores; minutes with --random, which gives passages random vectors) and kept in DIR; smaller ones
get their vectors from it. --prepare does only this. With DIR in a file system in memory, the disk adds no noise.

Saves: both servers on one core, the client on another. Idle: before each save the index has followed the last one; the
server that saves first alternates. In a row: saves without a pause for 12 seconds, longer than a sync waits for their
end, alternately in both wikis; the k-th saves of two rows are compared. Differences are paired, with the 95 %
interval of a bootstrap (over rows, for saves in a row). Processor time is that of the thread that answers and of its git
processes; the time in hooks is what the plugin itself does before a save is answered. The servers are started again
in each of two rounds. --control starts two servers without the plugin: what then differs is the error of the method.
Searches are words of the wiki's own titles: Otterwiki's search uses them as a regular expression on every page,
the plugin as a hybrid query.
Memory: a worker's own (anonymous) memory, and its share of mapped files, which all workers share and the system can drop.
"""

import os
import random
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from bench.corpus import list_pages, run_git
from bench.otterwiki.otterwiki_server import WITH, WITHOUT, OtterwikiServer, WorkerMemory
from bench.otterwiki.saves import RowCosts, SavePairs, SavesInTurns, estimate
from bench.otterwiki.wiki_data import HOME, make_wiki
from bench.report import CORPUS, make_head, make_parser, publish

ROUNDS = 2
_IDLE_SHARE = 0.4
_MOMENTS = ("at rest", "after searches", "after saves")


@dataclass(slots=True)
class WikiFigures:
    """What was measured on one wiki."""

    pages: int
    idle: SavePairs = field(default_factory=SavePairs)
    in_rows: SavePairs = field(default_factory=SavePairs)
    row_costs: RowCosts = field(default_factory=RowCosts)
    searches: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[tuple[bool, str], WorkerMemory] = field(default_factory=dict)
    threads: int = 0


def main() -> None:
    parser = make_parser(__doc__, "otterwiki")
    parser.add_argument("--bundle", type=Path, default=CORPUS)
    parser.add_argument("--pages", type=int, nargs="+", default=[330, 3000, 0])
    parser.add_argument("--seconds", type=float, default=240, help="of saves, for each wiki")
    parser.add_argument("--searches", type=int, default=15)
    parser.add_argument("--data", type=Path, default=HOME, help="directory of the indexed wikis")
    parser.add_argument("--prepare", action="store_true", help="index the wikis and stop")
    parser.add_argument("--random", action="store_true", help="index with random vectors, in minutes")
    parser.add_argument("--control", action="store_true", help="compare two servers without the plugin")
    arguments = parser.parse_args()
    places = [
        make_wiki(arguments.bundle, pages or None, arguments.data, random=arguments.random) for pages in arguments.pages
    ]
    if arguments.prepare:
        return
    load = os.getloadavg()[0]
    tables: list[WikiFigures] = []
    for place in places:
        tables.append(
            measure_wiki(place, arguments.seconds, arguments.searches, WITHOUT if arguments.control else WITH)
        )
        print("\n".join(format_saves(tables[-1:])), flush=True)
    rows = [f"Load of the machine at the start: {load:.1f}.", "", *format_saves(tables), ""]
    rows += [] if arguments.control else [*format_searches(tables), ""]
    rows += format_memory(tables)
    publish("otterwiki", __doc__, rows, write=arguments.write)


def measure_wiki(place: Path, seconds: float, searches: int, app: str) -> WikiFigures:
    repository = place / "repository"
    files = list_pages(repository)
    queries = [get_words(file) for file in random.Random(7).sample(files, searches + 5)]
    figures = WikiFigures(len(files))
    head = run_git(repository, "rev-list", "--grep=^bench$", "--invert-grep", "-1", "HEAD").strip()
    run_git(repository, "reset", "-q", "--hard", head)
    run_git(repository, "config", "gc.auto", "0")
    other = place.with_name(f"{place.name}-bare")
    cores = os.sched_getaffinity(0)
    for number in range(ROUNDS):
        shutil.rmtree(other, ignore_errors=True)
        # A copy, not a clone: a clone has another index file, and Otterwiki reads it in every save.
        shutil.copytree(repository, other / "repository", symlinks=True)
        bare, ours = OtterwikiServer(other, WITHOUT), OtterwikiServer(place, app)
        try:
            if number == 0:
                record_memory(figures, bare, ours, "at rest")
                measure_searches(figures, bare, ours, queries)
                record_memory(figures, bare, ours, "after searches")
            turns = SavesInTurns(bare, ours)
            turns.save_idle(figures.idle, _IDLE_SHARE * seconds / ROUNDS)
            turns.save_in_rows(figures.in_rows, figures.row_costs, (1 - _IDLE_SHARE) * seconds / ROUNDS)
            if number == 0:
                record_memory(figures, bare, ours, "after saves")
                figures.threads = ours.count_threads()
        finally:
            bare.stop()
            ours.stop()
            os.sched_setaffinity(0, cores)
            run_git(repository, "reset", "-q", "--hard", head)
    return figures


def measure_searches(figures: WikiFigures, bare: OtterwikiServer, ours: OtterwikiServer, queries: list[str]) -> None:
    ours.wait_until_fresh()
    for query in queries if ours.has_plugin else ():
        for mode in ("hybrid", "keyword"):
            figures.searches[mode].append(ours.search(query, mode))
        figures.searches["regex"].append(bare.search_by_regex(query))
    for times in figures.searches.values():
        del times[:5]  # the first ones load the model and the caches


def record_memory(figures: WikiFigures, bare: OtterwikiServer, ours: OtterwikiServer, moment: str) -> None:
    for is_ours, wiki in ((False, bare), (True, ours)):
        figures.memory[is_ours, moment] = wiki.measure_memory()


def get_words(file: str) -> str:
    """The name of a page as somebody would type it: the directory's, since these pages are all called index."""
    parts = file.removesuffix(".md").split("/")
    return (parts[-2] if parts[-1] == "index" and len(parts) > 1 else parts[-1]).replace("_", " ").replace("-", " ")


def format_quantiles(values: list[float], digits: int = 1) -> str:
    ordered = sorted(values)
    middle, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95))
    return f"{middle:.{digits}f} / {high:.{digits}f}"


def format_saves(tables: list[WikiFigures]) -> list[str]:
    rows = [
        "| a save, ms | pairs | without p50 / p95 | with p50 / p95 | difference, median | mean | of the processor time, median"
        " | in hooks p50 / p95 | processor time of all processes for a save, without / with |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for figures in tables:
        for name, pairs in (("idle", figures.idle), ("in a row", figures.in_rows)):
            clock, cpu = pairs.get_differences("clock"), pairs.get_differences("cpu")
            costs = figures.row_costs
            cells = [
                str(len(clock)),
                format_quantiles([each.clock for each in pairs.without]),
                format_quantiles([each.clock for each in pairs.with_]),
                str(estimate(clock, pairs.groups, "median")),
                str(estimate(clock, pairs.groups, "mean")),
                str(estimate(cpu, pairs.groups, "median")),
                format_quantiles([each.hooks for each in pairs.with_], 2),
                f"{costs.without / costs.saves:.1f} / {costs.with_ / costs.saves:.1f}" if name != "idle" else "",
            ]
            rows.append(f"| {figures.pages:,} pages, {name} | {' | '.join(cells)} |")
    return rows


def format_searches(tables: list[WikiFigures]) -> list[str]:
    rows = [
        make_head(
            "| a search over HTTP, ms | Otterwiki's own p50 / p95 | hybrid p50 / p95 | keyword p50 / p95 | own ÷ hybrid |"
        ),
    ]
    for figures in tables:
        cells = [format_quantiles(figures.searches[name]) for name in ("regex", "hybrid", "keyword")]
        own, hybrid = (float(cell.split(" ")[0]) for cell in cells[:2])
        rows.append(f"| {figures.pages:,} pages | {' | '.join(cells)} | {own / hybrid:.0f} × |")
    return rows


def format_memory(tables: list[WikiFigures]) -> list[str]:
    rows = [
        "| memory of a worker, MB: own + mapped files | " + " | ".join(_MOMENTS) + " | threads |",
        "|---|---|---|---|---|",
    ]
    for figures in tables:
        for is_ours, name in ((False, "without"), (True, "with the plugin")):
            found = [figures.memory[is_ours, moment] for moment in _MOMENTS]
            cells = [f"{each.own:.0f} + {each.mapped:.0f}" for each in found]
            rows.append(
                f"| {figures.pages:,} pages, {name} | {' | '.join(cells)} | {figures.threads if is_ours else ''} |"
            )
        more = [figures.memory[True, moment].own - figures.memory[False, moment].own for moment in _MOMENTS]
        rows.append(f"| {figures.pages:,} pages, own memory more | {' | '.join(f'{each:+.0f}' for each in more)} | |")
    return rows


if __name__ == "__main__":
    main()
