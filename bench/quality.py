"""nDCG@10, recall@10 and MRR of keyword, semantic and hybrid search on judged collections.

    python -m bench.quality [--collections DIR] [--only NAME …] [--precision fp32] [--write]

The collections become real git repositories, indexed by the real pipeline with the default settings; nothing is
tuned per collection. The weight of words and meaning and their depths were chosen on these same collections, one
setting for all (bench.fusion), so the hybrid figures are not those of unseen data. Indexes are kept in bench/data, so a second run only searches.
"""

import argparse
import statistics
import time
from pathlib import Path

from bench import collections
from bench.metrics import ndcg, recall, reciprocal_rank
from bench.report import machine, write
from wikiholt.handle import WikiHandle
from wikiholt.model import Mode
from wikiholt.search import Request
from wikiholt.wiring import open_service

DATA = Path("bench/data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--only", nargs="*", default=["scifact", "cranfield", "wiki-dendron", "wiki-k8s-en"])
    parser.add_argument("--precision", default="")
    parser.add_argument("--write", action="store_true", help="write bench/results/quality.md")
    arguments = parser.parse_args()
    rows = [
        "| collection | queries | mode | nDCG@10 | recall@10 | MRR@10 | p50 ms | p95 ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in arguments.only:
        wiki = indexed(name, arguments.collections / name, arguments.precision)
        for asked in collections.queries(arguments.collections / name):
            rows += [measured(wiki, asked, mode) for mode in (Mode.KEYWORD, Mode.SEMANTIC, Mode.HYBRID)]
            print("\n".join(rows[-3:]), flush=True)
        wiki.close()
    if arguments.write:
        text = "\n".join(rows)
        write("quality", f"{__doc__}\n{machine()}\n\n{text}\n")


def indexed(name: str, directory: Path, precision: str) -> WikiHandle:
    """The collection as an indexed wiki."""
    repository = DATA / "collections" / f"{name}.git"
    collections.write_repository(directory, repository)
    overrides = {"precision": precision} if precision else {}
    service = open_service(DATA / f"quality{'-' + precision if precision else ''}", overrides=overrides)
    if name not in [wiki.slug for wiki in service.wikis()]:
        service.add(name, str(repository.resolve()), {})
    began = time.perf_counter()
    report = service.wiki(name).sync()
    took = time.perf_counter() - began
    print(f"{name}: {report.added} pages, {report.chunks_embedded} chunks in {took:.0f} s", flush=True)
    return service.wiki(name)


def measured(wiki: WikiHandle, asked: collections.Queries, mode: Mode) -> str:
    scores: dict[str, list[float]] = {"ndcg": [], "recall": [], "mrr": [], "ms": []}
    for query, text in asked.texts.items():
        left_out = asked.exclude.get(query, set())
        answer = wiki.search(Request(text, n=min(100, 10 + len(left_out)), mode=mode))
        ranking = [hit.path for hit in answer.hits if hit.path not in left_out]
        relevant = asked.relevant[query]
        scores["ndcg"].append(ndcg(ranking, relevant))
        scores["recall"].append(recall(ranking, relevant))
        scores["mrr"].append(reciprocal_rank(ranking, relevant))
        scores["ms"].append(answer.took_ms)
    mean = {name: statistics.fmean(values) for name, values in scores.items()}
    ms = statistics.quantiles(scores["ms"], n=20)
    return (
        f"| {asked.name} | {len(asked.texts)} | {mode} | {mean['ndcg']:.3f} | {mean['recall']:.3f} | {mean['mrr']:.3f} "
        f"| {ms[9]:.1f} | {ms[18]:.1f} |"
    )


if __name__ == "__main__":
    main()
