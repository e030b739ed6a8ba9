"""The closest sentence of a hit: cheap ways compared with the model, and the cost of snippets.

    python -m bench.snippets [--collections DIR] [--data DIR] [--queries 60] [--write]

For real hits of judged queries (hybrid, the five best), the model embeds every sentence; the one nearest to the query is
the reference for the cheap ways. Columns "by .1" and "by .15" are of hits where the nearest is that much (cosine)
nearer than the next. Lost is the mean loss of cosine. Times are of complete warm searches, with and without the choice in turn. The last table
counts passages whose text, without code, still contains a kind of markup.
"""

import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from bench import collections
from bench.report import describe_machine, make_head, make_parser, write_result
from wikiholt import models
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.search.hits import strip_leading_headings
from wikiholt.search.request import SearchRequest
from wikiholt.text.bm25 import to_terms
from wikiholt.text.display_text import to_display_text
from wikiholt.text.model_text import to_plain_text
from wikiholt.wikis.handle import WikiHandle

CLEAR = (0.0, 0.1, 0.15)
UNSURE = 0.05
MARKS = {
    "shortcodes, macros, template tags": r"\{\{|\}\}|\{%|%\}",
    "links": r"\]\((?:\w+:|[/.#])|\]\[\w",
    "wiki links": r"\[\[|\]\]",
    "fences": r"```|~~~",
    "stars": r"\*\*\w|\w\*\*",
    "HTML": r"</?(?:a|b|br|code|div|em|img|li|p|span|strong|table|td|tr|ul)\b[^<>]*>|<!--",
    "entities": r"&(?:amp|lt|gt|quot|nbsp|#\d+);",
    "definitions, footnotes, alerts": r"^\[[^\]]+\]: \S|\[\^|\[!\w+\]|:::",
}
_FENCED = re.compile(r"^[ \t>]*(```+|~~~+).*?(?:^[ \t>]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)[^`].*?\1", re.DOTALL)


@dataclass(frozen=True)
class Choice:
    """A hit with more than one sentence."""

    query: str
    sentences: list[str]
    close: FloatArray
    """How near the model finds each."""

    @property
    def best(self) -> int:
        return int(np.argmax(self.close))

    @property
    def margin(self) -> float:
        last = np.sort(self.close)
        return float(last[-1] - last[-2])


def main() -> None:
    parser = make_parser(__doc__, "snippets", "collections")
    parser.add_argument("--data", type=Path, default=Path("bench/data/quality"), help="what bench.quality has indexed")
    parser.add_argument("--queries", type=int, default=60, help="of each kind of each collection")
    arguments = parser.parse_args()
    service = open_service(arguments.data)
    model = models.load_embedder("all-MiniLM-L6-v2")
    wikis = {name: service.get_handle(name) for name in collections.SHARED_NAMES}
    queries = {
        name: list(get_queries(arguments.collections / name, arguments.queries)) for name in collections.SHARED_NAMES
    }
    choices, hits, milliseconds = find_choices(wikis, queries, model)
    parts = [
        __doc__ or "",
        f"{describe_machine()} Load average {os.getloadavg()[1]:.0f} while this ran.",
        f"{hits} hits, {len(choices)} of them with more than one sentence ({np.mean([len(c.sentences) for c in choices]):.1f}"
        f" in the mean); a sentence takes the model {statistics.median(milliseconds):.1f} ms here.",
        "\n".join(format_agreement(choices, model)),
        "\n".join(format_times(wikis, queries)),
        "\n".join(format_markup(wikis, queries)),
    ]
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        write_result("snippets", text)


def get_queries(directory: Path, count: int) -> Iterator[str]:
    for each in collections.read_queries(directory):
        yield from random.Random(5).sample(sorted(each.texts.values()), min(count, len(each.texts)))


def find_choices(
    wikis: dict[str, WikiHandle], queries: dict[str, list[str]], model: OnnxEmbedder
) -> tuple[list[Choice], int, list[float]]:
    found: list[Choice] = []
    hits, milliseconds = 0, []
    for name, wiki in wikis.items():
        for query in queries[name]:
            vector = model.embed_query(query)
            for hit in wiki.search(SearchRequest(query, 5, SearchMode.HYBRID)).hits:
                hits += 1
                sentences = _split_sentences(hit.text)
                if len(sentences) < 2:
                    continue
                began = time.perf_counter()
                vectors = np.stack([model.embed_query(each) for each in sentences])
                milliseconds.append((time.perf_counter() - began) * 1000 / len(sentences))
                found.append(Choice(query, sentences, vectors @ vector))
    return found, hits, milliseconds


def _split_sentences(text: str) -> list[str]:
    read = to_display_text(strip_leading_headings(text))
    return [read.text[span.start : span.end] for span in read.sentences]


def format_agreement(choices: Sequence[Choice], model: OnnxEmbedder) -> Iterator[str]:
    def score_first(_: Choice) -> Sequence[float]:
        return [1.0]

    def score_words(choice: Choice) -> Sequence[float]:
        terms = set(to_terms(choice.query))
        return [float(sum(map(len, terms.intersection(to_terms(each))))) for each in choice.sentences]

    def score_senses(choice: Choice) -> Sequence[float]:
        close = model.make_sentence_scorer(choice.query)
        return close(choice.sentences) if close else [0.0]

    def make_two_step(count: int, rough: Callable[[Choice], Sequence[float]]) -> Callable[[Choice], Sequence[float]]:
        def score(choice: Choice) -> Sequence[float]:
            likely = np.argsort(-np.array(rough(choice)), kind="stable")[:count]
            return [float(near) if at in likely else -1.0 for at, near in enumerate(choice.close)]

        return score

    def score_unsure(choice: Choice) -> Sequence[float]:
        scores = score_senses(choice)
        last = np.sort(scores)
        return make_two_step(2, score_senses)(choice) if last[-1] - last[-2] < UNSURE else scores

    asks = statistics.mean(score_unsure(each) != score_senses(each) for each in choices)
    some = [[choice for choice in choices if choice.margin >= least] for least in CLEAR]
    counts = [f"{name} ({len(each)})" for name, each in zip(("all", "by .1", "by .15"), some, strict=True)]
    yield make_head(f"| way | the model reads | the same: {' | '.join(counts)} | lost |")
    ways: dict[str, tuple[str, Callable[[Choice], Sequence[float]]]] = {
        "the first sentence": ("–", score_first),
        "most letters of matched words": ("–", score_words),
        "**by the table of words, word by word (taken)**": ("–", score_senses),
        "two by the table, then the model, where the table is unsure": (f"{2 * asks:.1f} a hit", score_unsure),
        "two by matched words, then the model": ("2 a hit", make_two_step(2, score_words)),
        "two by the table, then the model": ("2 a hit", make_two_step(2, score_senses)),
        "three by the table, then the model": ("3 a hit", make_two_step(3, score_senses)),
        "the model reads all": ("all", lambda choice: choice.close.tolist()),
    }
    for name, (runs, way) in ways.items():
        picked = {id(choice): int(np.argmax(way(choice))) for choice in choices}
        same = [statistics.mean(picked[id(each)] == each.best for each in those) for those in some]
        lost = statistics.mean(float(each.close.max() - each.close[picked[id(each)]]) for each in choices)
        yield f"| {name} | {runs} | {' | '.join(f'{each:.3f}' for each in same)} | {lost:.4f} |"


def format_times(wikis: dict[str, WikiHandle], queries: dict[str, list[str]]) -> Iterator[str]:
    """Whole searches with and without the choice, in turn; milliseconds of the clock and of the processor."""
    yield make_head("| n | without p50 / p95 ms | with p50 / p95 ms | added p50 ms | added p50 ms of processor |")
    for n in (5, 20):
        took: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for name, wiki in wikis.items():
            for query in queries[name][:40]:
                for choosing in (True, False, False, True):
                    with (
                        nullcontext()
                        if choosing
                        else mock.patch.object(OnnxEmbedder, "make_sentence_scorer", _return_none)
                    ):
                        began, used = time.perf_counter(), time.thread_time()
                        wiki.search(SearchRequest(query, n, SearchMode.HYBRID))
                        took[choosing].append((time.perf_counter() - began, time.thread_time() - used))
        wall = {key: np.array(rows)[:, 0] * 1000 for key, rows in took.items()}
        used_ms = {key: np.array(rows)[:, 1] * 1000 for key, rows in took.items()}
        shown_ms = [f"{np.percentile(wall[key], 50):.1f} / {np.percentile(wall[key], 95):.1f}" for key in (False, True)]
        added = np.percentile(wall[True], 50) - np.percentile(wall[False], 50)
        cpu = np.percentile(used_ms[True], 50) - np.percentile(used_ms[False], 50)
        yield f"| {n} | {shown_ms[0]} | {shown_ms[1]} | {added:.1f} | {cpu:.1f} |"


def _return_none(model: OnnxEmbedder, query: str) -> None:
    """Replaces the choice of the closest sentence."""
    del model, query


def format_markup(wikis: dict[str, WikiHandle], queries: dict[str, list[str]]) -> Iterator[str]:
    """Passages that still show markup, before (as the model reads them) and now."""
    texts: dict[str, None] = {}
    for name, wiki in wikis.items():
        for query in queries[name]:
            texts |= {
                _SPAN.sub("code", _FENCED.sub("", hit.text)): None for hit in wiki.search(SearchRequest(query, 50)).hits
            }
    before, now = [to_plain_text(text) for text in texts], [to_display_text(text).text for text in texts]
    yield make_head(f"| of {len(texts)} passages, code left out | as the model reads them | as snippets show them |")
    for name, pattern in MARKS.items():
        found = re.compile(pattern, re.MULTILINE)
        yield f"| {name} | {sum(bool(found.search(t)) for t in before)} | {sum(bool(found.search(t)) for t in now)} |"


if __name__ == "__main__":
    main()
