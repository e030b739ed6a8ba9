"""nDCG@10, recall@10, MRR and success@1 on judged collections, and the time a warm search takes, beside other searches.

    python -m bench.quality [--peers [NAME …]] [--rerank] [--budget MS] [--model NAME …] [--only NAME …] [--write]

The collections become real git repositories, indexed by the real pipeline with the default settings, and searched and
judged with the code of `wikiholt eval SLUG`; nothing is tuned per collection. Brackets contain 95 %
confidence intervals (bootstrap over queries). Every query is sent to all searches in turn, so that other load affects all
of them; each measures the time of its answers inside its own process, after five queries to warm up. Indexes are kept
in bench/data, so a second run only searches.
"""

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import collections
from bench.peers import PEERS, RunningPeer, SearchPeer, find_missing, write_texts
from bench.report import describe_machine, make_head, make_parser, write_result
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.evaluation.questions import Question, QuestionKind
from wikiholt.wikis.evaluation.runner import (
    EvaluationRun,
    QuestionOutcome,
    ReturnedPage,
    compare_runs,
    get_result_limit,
    run_question,
    score_ranking,
)
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

RERANKER = "ms-marco-MiniLM-L-12-v2"
HYBRID = "Wikiholt hybrid"
WARM = 5
RESULT = Path("bench/results/quality.md")
TABLE_HEAD = """| collection | queries | search | nDCG@10 | recall@10 | MRR@10 | success@1 | p50 ms | p95 ms |
|---|---|---|---|---|---|---|---|---|"""
NOTES = """
- *BM25 (bm25s)*: k1 1.5, b .75, English stems and stop words, over whole pages with their titles; with *paths too* the
  path of a page is one more line of it. Wikiholt reads paths, and in wiki-dendron many former titles are in paths.
- *ChromaDB, its default query*: version 1.5.9, `collection.add(documents=…)` and `collection.query(query_texts=…)` as its
  manual shows them. A page is a document; its embedding function reads the first 256 tokens of it. It would fetch its
  model; the same fp32 all-MiniLM-L6-v2 was put where it looks. It loads the model again for every call (its issue 6941).
- *txtai hybrid*: version 9.14, `Embeddings(path=…, hybrid=True)` with all-MiniLM-L6-v2; a page is a document.
- *over our passages*: the same given the passages Wikiholt cuts, each with the page's name and headings before it, with the
  vectors Wikiholt keeps of them; ten passages are requested per page, and the best of each page counts.
- *Wikiholt semantic* is the default model alone, over passages; *Wikiholt keyword* is words alone; *reranked* means that
  unclear answers are (docs/adr/0038).
"""


@dataclass(frozen=True)
class NamedSearch:
    """One way to search a collection."""

    label: str
    mode: SearchMode
    run: Callable[[Question], QuestionOutcome]


def main() -> None:
    parser = make_parser(__doc__, "quality", "collections", "data")
    parser.add_argument("--only", nargs="*", default=["scifact", "cranfield", "wiki-dendron", "wiki-k8s-en"])
    parser.add_argument("--precision", default="", help="of the model, with an index of its own")
    names = [each.directory for each in PEERS]
    parser.add_argument(
        "--peers", nargs="*", choices=names, help="ask these searches of bench/peers too; all if none is named"
    )
    parser.add_argument("--limit", type=int, help="limit the number of queries of each kind")
    parser.add_argument("--rerank", action="store_true", help="hybrid search with the reranker too")
    parser.add_argument("--budget", default="", help="milliseconds the reranker has, instead of the default")
    parser.add_argument("--model", nargs="*", default=[], help="hybrid search with these models too")
    arguments = parser.parse_args()
    with_peers = arguments.peers is not None
    arguments.peers = [each for each in PEERS if with_peers and each.directory in (arguments.peers or names)]
    if instructions := find_missing(arguments.peers):
        parser.error(instructions)
    before = os.getloadavg()[0]
    found = {kind: runs for name in arguments.only for kind, runs in run_collection(name, arguments)}
    differences = "\n".join(format_tests(found))
    text = "\n".join([*format_table(found), "", differences])
    print(f"\n{differences}")
    if arguments.write:
        load = f"Load at the start {before:.1f}, at the end {os.getloadavg()[0]:.1f}."
        peer_rows = "" if arguments.peers else "\n".join(keep_peer_rows(RESULT.read_text(encoding="utf-8")))
        write_result("quality", f"{__doc__}{NOTES}\n{describe_machine()} {load}\n\n{text}\n{peer_rows}")


def run_collection(name: str, arguments: argparse.Namespace) -> Iterator[tuple[str, list[EvaluationRun]]]:
    """Search all queries of a collection; yields the runs of each kind of queries."""
    directory, data = arguments.collections / name, arguments.data
    repository = data / "collections" / f"{name}.git"
    collections.write_repository(directory, repository)
    budget = {"rerank.budget": arguments.budget} if arguments.budget else {}
    reranker = {"rerank.model": RERANKER, **budget} if arguments.rerank else {}
    with ExitStack() as stack:

        def open_indexed(setting: str, value: str) -> WikiService:
            ending = f"-{value.split('-', maxsplit=1)[0]}" if value else ""
            overrides = {**reranker, **({setting: value} if value else {})}
            service = open_service(data / f"quality{ending}", overrides=overrides)
            stack.callback(service.close)
            index_collection(service, name, repository)
            return service

        service = open_indexed("precision", arguments.precision)
        wiki = service.get_handle(name)
        searches = []
        if arguments.peers:
            place = data / "peers" / name
            write_texts(directory, place, lambda: service.components.store.open(wiki.wiki.id))
            searches += [
                make_peer_search(stack.enter_context(RunningPeer(each, place)), each) for each in arguments.peers
            ]
        searches += [
            make_search(f"Wikiholt {mode}", wiki, mode)
            for mode in (SearchMode.KEYWORD, SearchMode.SEMANTIC, SearchMode.HYBRID)
        ]
        searches += (
            [make_search(f"{HYBRID}, reranked", wiki, SearchMode.HYBRID, rerank=None)] if arguments.rerank else []
        )
        for model in arguments.model:
            other = open_indexed("model", model).get_handle(name)
            searches.append(make_search(f"{HYBRID}, {model}", other, SearchMode.HYBRID))
            if arguments.rerank:
                searches.append(make_search(f"{HYBRID}, {model}, reranked", other, SearchMode.HYBRID, rerank=None))
        for queries in collections.read_queries(directory):
            found = run_queries(queries, searches, arguments.limit)
            print("\n".join(format_row(queries.name, run) for run in found), flush=True)
            yield queries.name, found


def index_collection(service: WikiService, name: str, repository: Path) -> None:
    """Register and index a collection, and wait for its caches."""
    if name not in [wiki.slug for wiki in service.list_wikis()]:
        service.add(name, str(repository.resolve()), {})
    began = time.perf_counter()
    wiki = service.get_handle(name)
    report = wiki.sync()
    wiki.wait_for_caches(600)
    took = time.perf_counter() - began
    print(f"{name}: {report.added} pages, {report.chunks_embedded} chunks in {took:.0f} s", flush=True)


def make_search(label: str, wiki: WikiHandle, mode: SearchMode, *, rerank: bool | None = False) -> NamedSearch:
    def search(_: Question, request: SearchRequest) -> SearchResult:
        return wiki.search(replace(request, rerank=rerank))

    return NamedSearch(label, mode, lambda question: run_question(question, mode, search))


def make_peer_search(running: RunningPeer, about: SearchPeer) -> NamedSearch:
    def search(question: Question) -> QuestionOutcome:
        pages, took = running.search(question.text, get_result_limit(question))
        return score_ranking(question, [ReturnedPage(page, page, 0.0) for page in pages], took)

    return NamedSearch(about.label, about.mode, search)


def run_queries(
    queries: collections.Queries, searches: Sequence[NamedSearch], limit: int | None = None
) -> list[EvaluationRun]:
    """Send every question to all searches, each time beginning with another one."""
    questions = [
        Question(query, QuestionKind.LABELLED, text, queries.relevant[query], frozenset(queries.exclude.get(query, ())))
        for query, text in queries.texts.items()
    ][:limit]
    for question in questions[:WARM]:
        for search in searches:
            search.run(question)
    outcomes: dict[str, list[QuestionOutcome]] = {search.label: [] for search in searches}
    for number, question in enumerate(questions):
        first = number % len(searches)
        for search in (*searches[first:], *searches[:first]):
            outcomes[search.label].append(search.run(question))
    return [EvaluationRun(each.label, each.mode, tuple(outcomes[each.label])) for each in searches]


def format_table(found: dict[str, list[EvaluationRun]]) -> Iterator[str]:
    yield TABLE_HEAD
    yield from (format_row(kind, run) for kind, runs in found.items() for run in runs)
    yield ""
    for label in dict.fromkeys(run.label for runs in found.values() for run in runs):
        outcomes = [each for runs in found.values() for run in runs if run.label == label for each in run.outcomes]
        for note, count in Counter(note for each in outcomes for note in each.notes).items():
            yield f"{label}: {count} of {len(outcomes)} answers have the note: {note}."


def keep_peer_rows(previous: str) -> Iterator[str]:
    """The rows of the last run with other programs, which do not change with Wikiholt, and of the model it used."""
    rows = re.findall(r"^\| [^|]+ \| \d+ \| (?!Wikiholt (?!hybrid, all-Mini))[^|]+ \| .+$", previous, re.MULTILINE)
    if rows:
        yield "\nAn earlier run over the complete collections; *our passages* and their vectors are those of all-MiniLM-L6-v2:\n"
        yield TABLE_HEAD
        yield from rows


def format_row(kind: str, run: EvaluationRun) -> str:
    figures = " | ".join(f"{each.mean:.3f} [{each.low:.3f} {each.high:.3f}]" for each in run.compute_metrics().values())
    half, most = run.get_latency_ms()
    return f"| {kind} | {len(run.outcomes)} | {run.label} | {figures} | {half:.1f} | {most:.1f} |"


def format_tests(found: dict[str, list[EvaluationRun]]) -> Iterator[str]:
    """Whether hybrid search differs from each of the others by more than chance."""
    yield f"nDCG@10 of {HYBRID} against each other search, question by question (a paired test, exchanged 10,000 times):"
    yield ""
    yield make_head("| collection | against | difference | p | better | worse | the same |")
    for kind, runs in found.items():
        hybrid = next(run for run in runs if run.label == HYBRID)
        for other in runs:
            if other is not hybrid:
                gap = compare_runs(hybrid, other)["ndcg@10"]
                bounds = f"{gap.interval.mean:+.3f} [{gap.interval.low:+.3f} {gap.interval.high:+.3f}]"
                counts = f"{gap.better} | {gap.worse} | {gap.same}"
                yield f"| {kind} | {other.label} | {bounds} | {gap.p_value:.4f} | {counts} |"


if __name__ == "__main__":
    main()
