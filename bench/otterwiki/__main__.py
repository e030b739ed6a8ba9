"""The cost and benefit of the plugin in an Otterwiki, on wikis of 330, 3,000 and 14,593 pages.

    python -m bench.otterwiki [--bundle FILE] [--pages 330 3000 0] [--saves 60] [--data DIR] [--prepare] [--write]

Two servers of the same kind (gunicorn, one worker, four threads) run over copies of the same repository, one with the
plugin and one without, and get requests in turns. 0 pages means all. The complete wiki is indexed the first time
(half an hour on two cores; minutes with --random, which gives passages random vectors) and kept in DIR; smaller ones
are made from it by deleting pages. --prepare does only this. Processor time is that of the thread that answers; the
time in hooks is what the plugin itself does before a save is answered.
Searches are words of the wiki's own titles: Otterwiki's search uses them as a regular expression on every page,
the plugin as a hybrid query.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
from pathlib import Path

from bench.corpus import DEFAULT
from bench.otterwiki.server import WITH, WITHOUT, Wiki
from bench.otterwiki.wikis import HOME, prepared
from bench.report import machine, write

ROW = 5
_TEXT = "# Bench\n\nWritten {}, about otters and holts.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=DEFAULT)
    parser.add_argument("--pages", type=int, nargs="+", default=[330, 3000, 0])
    parser.add_argument("--saves", type=int, default=60)
    parser.add_argument("--searches", type=int, default=15)
    parser.add_argument("--data", type=Path, default=HOME, help="directory of the indexed wikis")
    parser.add_argument("--prepare", action="store_true", help="index the wikis and stop")
    parser.add_argument("--random", action="store_true", help="index with random vectors, in minutes")
    parser.add_argument("--write", action="store_true", help="write bench/results/otterwiki.md")
    arguments = parser.parse_args()
    places = [
        prepared(arguments.bundle, pages or None, arguments.data, random=arguments.random) for pages in arguments.pages
    ]
    if arguments.prepare:
        return
    load = os.getloadavg()[0]
    tables: list[dict[str, object]] = []
    for place in places:
        tables.append(_measured(place, arguments.saves, arguments.searches))
        print("\n".join(_saves(tables[-1:])), flush=True)
    rows = [f"Load of the machine when it began: {load:.1f}.", "", *_saves(tables), "", *_searches(tables), ""]
    rows += _memory(tables)
    print("\n".join(rows))
    if arguments.write:
        write("otterwiki", f"{__doc__}\n{machine()}\n\n" + "\n".join(rows))


def _measured(place: Path, saves: int, searches: int) -> dict[str, object]:
    files = [file for file in _git(place, "ls-files").splitlines() if file.endswith(".md")]
    queries = [_words(file) for file in random.Random(7).sample(files, searches + 5)]
    other = place.with_name(f"{place.name}-bare")
    shutil.rmtree(other, ignore_errors=True)
    # A copy, not a clone: a clone has another index file, and Otterwiki reads it in every save.
    shutil.copytree(place / "repository", other / "repository", symlinks=True)
    bare, ours = Wiki(other, WITHOUT), Wiki(place, WITH)
    try:
        figures: dict[str, object] = {"pages": len(files), "bare idle": bare.memory(), "ours idle": ours.memory()}
        ours.follow()
        for query in queries[:5]:
            ours.search(query, "hybrid")
        figures |= {"ours searched": ours.memory(), "bare searched": bare.memory()}
        for query in queries[5:]:
            for name, asked in (("hybrid", ours), ("keyword", ours)):
                figures.setdefault(name, []).append(asked.search(query, name))  # type: ignore[attr-defined]
            figures.setdefault("regex", []).append(bare.regex_search(query))  # type: ignore[attr-defined]
        _save_in_turns(figures, bare, ours, saves)
        figures |= {"ours saved": ours.memory(), "bare saved": bare.memory(), "threads": ours.threads()}
        return figures
    finally:
        bare.stop()
        ours.stop()
        _git(
            place,
            "reset",
            "-q",
            "--hard",
            _git(place, "rev-list", "--grep=^bench$", "--invert-grep", "-1", "HEAD").strip(),
        )


def _save_in_turns(figures: dict[str, object], bare: Wiki, ours: Wiki, saves: int) -> None:
    """Save idle, when the index has followed the last save, and in rows of five, while it still works on the last one.

    Idle, both servers use the same core. In a row they use all, as the work on the last save may.
    """
    cores = os.sched_getaffinity(0)
    for wiki in (bare, ours):
        wiki.use_cores({max(cores)})
    for turn in range(saves):
        ours.follow()
        for name, wiki in (("without", bare), ("with", ours))[:: 1 if turn % 2 else -1]:
            figures.setdefault(name, []).append(wiki.save("Bench", _TEXT.format(f"{turn} times")))  # type: ignore[attr-defined]
    for wiki in (bare, ours):
        wiki.use_cores(cores)
    for row in range(2 * saves // ROW):
        name, wiki = (("without", bare), ("with", ours))[row % 2]
        ours.follow()
        for turn in range(ROW):
            text = _TEXT.format(f"{turn} times in row {row}")
            figures.setdefault(f"{name} in a row", []).append(wiki.save("Bench", text))  # type: ignore[attr-defined]


def _words(file: str) -> str:
    """The name of a page as somebody would type it: the directory's, since these pages are all called index."""
    parts = file.removesuffix(".md").split("/")
    return (parts[-2] if parts[-1] == "index" and len(parts) > 1 else parts[-1]).replace("_", " ").replace("-", " ")


def _git(place: Path, *arguments: str) -> str:
    command = ["git", "-C", str(place / "repository"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _p(values: object, share: float) -> float:
    ordered = sorted(values)  # type: ignore[call-overload]
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _saves(tables: list[dict[str, object]]) -> list[str]:
    rows = [
        "| a save, ms | without p50 / p95 | with p50 / p95 | median of the differences | of the processor time | in hooks p50 / p95 |",
        "|---|---|---|---|---|---|",
    ]
    for figures in tables:
        for suffix in ("", " in a row"):
            pairs = list(zip(figures[f"with{suffix}"], figures[f"without{suffix}"], strict=True))  # type: ignore[call-overload]
            waits, times = ([(ours[kind], bare[kind]) for ours, bare in pairs] for kind in (0, 1))
            cells = [
                f"{_p(values, 0.5):.1f} / {_p(values, 0.95):.1f}" for values in list(zip(*waits, strict=True))[::-1]
            ]
            cells += [f"{statistics.median(ours - bare for ours, bare in each):+.1f}" for each in (waits, times)]
            hooks = [ours[2] for ours, _ in pairs]
            cells.append(f"{_p(hooks, 0.5):.2f} / {_p(hooks, 0.95):.2f}")
            rows.append(f"| {figures['pages']:,} pages{suffix or ', idle'} | {' | '.join(cells)} |")
    return rows


def _searches(tables: list[dict[str, object]]) -> list[str]:
    rows = [
        "| a search over HTTP, ms | Otterwiki's own p50 / p95 | hybrid p50 / p95 | keyword p50 / p95 | own ÷ hybrid |"
    ]
    rows.append("|---|---|---|---|---|")
    for figures in tables:
        cells = [
            f"{_p(figures[name], 0.5):.1f} / {_p(figures[name], 0.95):.1f}" for name in ("regex", "hybrid", "keyword")
        ]
        ratio = _p(figures["regex"], 0.5) / _p(figures["hybrid"], 0.5)
        rows.append(f"| {figures['pages']:,} pages | {' | '.join(cells)} | {ratio:.0f} × |")
    return rows


def _memory(tables: list[dict[str, object]]) -> list[str]:
    rows = [
        "| memory of a worker, MB, its own | at rest | after searches | after saves | threads |",
        "|---|---|---|---|---|",
    ]
    for figures in tables:
        for name, called in (("bare", "without"), ("ours", "with the plugin")):
            cells = [f"{figures[f'{name} {moment}']:.0f}" for moment in ("idle", "searched", "saved")]
            rows.append(
                f"| {figures['pages']:,} pages, {called} | {' | '.join(cells)} | {figures['threads'] if name == 'ours' else ''} |"
            )
    return rows


if __name__ == "__main__":
    main()
