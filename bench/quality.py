"""nDCG@10, recall@10, MRR and success@1 of keyword, semantic and hybrid search on judged collections.

    python -m bench.quality [--collections DIR] [--only NAME …] [--precision fp32] [--data DIR] [--write]

The collections become real git repositories, indexed by the real pipeline with the default settings, and are asked and
judged by what `wikiholt eval SLUG` asks and judges with; nothing is tuned per collection. Brackets hold the mean with 95 %
confidence (bootstrap over queries). Indexes are kept in bench/data, so a second run only searches.
"""

import argparse
import time
from pathlib import Path

from bench import collections
from bench.report import machine, write
from wikiholt.evaluating import Kind, Question, Run, run
from wikiholt.handle import WikiHandle
from wikiholt.model import Mode
from wikiholt.wiring import open_service

DATA = Path("bench/data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--only", nargs="*", default=["scifact", "cranfield", "wiki-dendron", "wiki-k8s-en"])
    parser.add_argument("--precision", default="")
    parser.add_argument("--data", type=Path, default=DATA, help="where repositories and indexes are kept")
    parser.add_argument("--write", action="store_true", help="write bench/results/quality.md")
    arguments = parser.parse_args()
    rows = [
        "| collection | queries | mode | nDCG@10 | recall@10 | MRR@10 | success@1 | p50 ms | p95 ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in arguments.only:
        wiki = indexed(name, arguments.collections / name, arguments.data, arguments.precision)
        for asked in collections.queries(arguments.collections / name):
            rows += [
                row(asked.name, measured(wiki, asked, mode)) for mode in (Mode.KEYWORD, Mode.SEMANTIC, Mode.HYBRID)
            ]
            print("\n".join(rows[-3:]), flush=True)
        wiki.close()
    if arguments.write:
        text = "\n".join(rows)
        write("quality", f"{__doc__}\n{machine()}\n\n{text}\n")


def indexed(name: str, directory: Path, data: Path, precision: str) -> WikiHandle:
    """The collection as an indexed wiki."""
    repository = data / "collections" / f"{name}.git"
    collections.write_repository(directory, repository)
    overrides = {"precision": precision} if precision else {}
    service = open_service(data / f"quality{'-' + precision if precision else ''}", overrides=overrides)
    if name not in [wiki.slug for wiki in service.wikis()]:
        service.add(name, str(repository.resolve()), {})
    began = time.perf_counter()
    report = service.wiki(name).sync()
    took = time.perf_counter() - began
    print(f"{name}: {report.added} pages, {report.chunks_embedded} chunks in {took:.0f} s", flush=True)
    return service.wiki(name)


def measured(wiki: WikiHandle, asked: collections.Queries, mode: Mode) -> Run:
    questions = [
        Question(query, Kind.LABELLED, text, asked.relevant[query], frozenset(asked.exclude.get(query, ())))
        for query, text in asked.texts.items()
    ]
    return run(asked.name, mode, questions, lambda _, request: wiki.search(request))


def row(name: str, found: Run) -> str:
    figures = " | ".join(f"{each.mean:.3f} [{each.low:.3f} {each.high:.3f}]" for each in found.figures().values())
    half, most = found.milliseconds()
    return f"| {name} | {len(found.outcomes)} | {found.mode} | {figures} | {half:.1f} | {most:.1f} |"


if __name__ == "__main__":
    main()
