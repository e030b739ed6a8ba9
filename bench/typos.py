"""The cost of typing errors and the effect of correction: the figures of docs/adr/0028.

    python -m bench.typos [--collections DIR] [--data DIR] [--only NAME …] [--write]

Uses the indexes of bench.quality (run that first). In each judged query the word on the fewest pages, of five
letters or more, gets one error: two letters swapped, one missing, one too many, or a wrong one, in turn, at a
random place and with a random letter (fixed seed). nDCG@10 is that of the queries with such a word. "Restored" counts
errors after which `did_you_mean` has the word, or one with the same stem.
"""

import random
import statistics
import string
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from bench import collections
from bench.report import describe_machine, make_parser, write_result
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.search.query import Query
from wikiholt.search.request import SearchRequest
from wikiholt.search.searcher import Searcher
from wikiholt.search.spell_check import find_words
from wikiholt.text.bm25 import to_terms
from wikiholt.text.keyword_query import to_plain_query
from wikiholt.wikis.evaluation.quality_metrics import compute_difference, compute_ndcg
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

MODES = (SearchMode.KEYWORD, SearchMode.HYBRID)
KINDS = ("swapped", "missing", "extra", "other")
SHORTEST = 5
_HEAD = """| queries of | mode | queries | clean, no correction | clean, correction | typos | typo, no correction | typo, corrected \
| difference | the same, the model reads what was typed | restored | suggested | clean queries corrected \
| ms a correction p50 / p95 | ms a clean query |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Typo:
    """A query, and the same query with one typing error."""

    query: str
    kind: str
    clean: str
    typed: str
    word: str


@dataclass
class TypoTally:
    """Figures of one kind of queries in one mode."""

    values: dict[str, list[float]] = field(default_factory=dict)
    restored: int = 0
    suggested: int = 0
    milliseconds: list[float] = field(default_factory=list)
    untouched: list[float] = field(default_factory=list)
    false: list[tuple[str, str]] = field(default_factory=list)

    def add(self, way: str, value: float) -> None:
        self.values.setdefault(way, []).append(value)

    def get_mean(self, way: str) -> float:
        return statistics.fmean(self.values[way])


def main() -> None:
    parser = make_parser(__doc__, "typos", "collections", "data")
    parser.add_argument("--only", nargs="*", default=collections.SHARED_NAMES)
    arguments = parser.parse_args()
    correcting, not_correcting = _open_services(arguments.data / "quality")
    rows, found = [_HEAD], []
    for name in arguments.only:
        wikis = correcting.get_handle(name), not_correcting.get_handle(name)
        for queries in collections.read_queries(arguments.collections / name):
            typos = _make_typos(wikis[0], queries)
            for mode in MODES:
                tally = _run_queries(wikis, queries, typos, mode)
                rows.append(_format_row(queries.name, mode, len(queries.texts), len(typos), tally))
                found += [(queries.name, mode, *each) for each in tally.false]
                print(rows[-1], flush=True)
    listed = [f"- {name}, {mode}: {typed} → {meant}" for name, mode, typed, meant in found]
    if arguments.write:
        table = "\n".join(rows)
        heading = "Every correction of a query as the collections have it, by the words that differ:"
        write_result("typos", f"{__doc__}\n{describe_machine()}\n\n{table}\n\n{heading}\n\n" + "\n".join(listed))
    else:
        print("\n".join(listed))


def _open_services(data: Path) -> tuple[WikiService, WikiService]:
    """One that corrects, and one that cannot since it has no lexicon."""
    without = open_service(data)
    without.components = replace(without.components, lexicon=lambda _, __: lambda: None)
    return open_service(data), without


def _make_typos(wiki: WikiHandle, queries: collections.Queries) -> dict[str, Typo]:
    rng, made = random.Random(9), {}
    for number, (query, text) in enumerate(queries.texts.items()):
        word = _find_rarest_word(wiki, text)
        if word is not None:
            kind = KINDS[number % len(KINDS)]
            start, end = word
            typed = text[:start] + make_typo(rng, kind, text[start:end]) + text[end:]
            made[query] = Typo(query, kind, text, typed, text[start:end])
    return made


def _find_rarest_word(wiki: WikiHandle, text: str) -> tuple[int, int] | None:
    """The position of the word that is on the fewest pages, and at least on one."""
    with _open_searcher(wiki) as searcher:
        lexicon: Lexicon | None = searcher._interpreter._get_lexicon()
    assert lexicon is not None
    words = [word for word in find_words(text) if len(word.typed) >= SHORTEST]
    counts = {(word.start, word.end): max(map(lexicon.count_pages, to_terms(word.typed)), default=0) for word in words}
    return min((span for span in counts if counts[span]), key=counts.__getitem__, default=None)


def make_typo(rng: random.Random, kind: str, word: str) -> str:
    """The word with one typing error."""
    if kind == "swapped":
        at = rng.choice([n for n in range(len(word) - 1) if word[n].lower() != word[n + 1].lower()])
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    at = rng.randrange(len(word))
    if kind == "missing":
        return word[:at] + word[at + 1 :]
    letter = rng.choice([letter for letter in string.ascii_lowercase if letter != word[at].lower()])
    return word[:at] + letter + (word[at:] if kind == "extra" else word[at + 1 :])


def _run_queries(
    wikis: tuple[WikiHandle, WikiHandle], queries: collections.Queries, typos: dict[str, Typo], mode: SearchMode
) -> TypoTally:
    correcting, not_correcting = wikis
    tally = TypoTally()

    def run_query(query: str, wiki: WikiHandle, text: str) -> tuple[float, str]:
        answer = wiki.search(SearchRequest(text, n=30, mode=mode))
        left_out = queries.exclude.get(query, set())
        found = [hit.path for hit in answer.hits if hit.path not in left_out]
        return compute_ndcg(found, queries.relevant[query]), answer.did_you_mean

    for query, text in queries.texts.items():
        tally.untouched.append(_measure_cpu_ms(correcting, text))
        value, meant = run_query(query, correcting, text)
        if meant:
            tally.false.append(_get_differences(text, meant))
        if query in typos:
            tally.add("clean, on", value)
            tally.add("clean, off", run_query(query, not_correcting, text)[0])
    for query, typo in typos.items():
        tally.add("typo, off", run_query(query, not_correcting, typo.typed)[0])
        value, meant = run_query(query, correcting, typo.typed)
        tally.add("typo, on", value)
        if meant:
            tally.suggested += 1
            tally.restored += set(to_terms(typo.word)) <= set(to_terms(meant))
            tally.milliseconds.append(_measure_cpu_ms(correcting, typo.typed))
        with _embed_as_typed(correcting):
            tally.add("typo, model reads it", run_query(query, correcting, typo.typed)[0])
    return tally


def _get_differences(text: str, meant: str) -> tuple[str, str]:
    """The words that only one of the two has."""
    one, other = text.split(), meant.split()
    return " ".join(word for word in one if word not in other), " ".join(word for word in other if word not in one)


@contextmanager
def _open_searcher(wiki: WikiHandle) -> Iterator[Searcher]:
    with wiki._use_live_index() as live_index:
        yield live_index.searcher


@contextmanager
def _embed_as_typed(wiki: WikiHandle) -> Iterator[None]:
    """In this context the model embeds the query as typed; keywords are corrected."""
    with _open_searcher(wiki) as searcher:
        interpreter, interpret = searcher._interpreter, searcher._interpreter.interpret

    def interpret_typed(request: SearchRequest, is_known: Callable[[str], bool]) -> Query:
        return replace(interpret(request, is_known), text=to_plain_query(request.query))

    with mock.patch.object(interpreter, "interpret", interpret_typed):
        yield


def _measure_cpu_ms(wiki: WikiHandle, text: str) -> float:
    """Milliseconds of a processor that looking through a query takes."""
    with _open_searcher(wiki) as searcher:
        began = time.thread_time()
        searcher._interpreter._spelling.correct(text, PageFilter(), searcher._query_embedder.is_known_word)
        return (time.thread_time() - began) * 1000


def _format_row(name: str, mode: SearchMode, queries: int, typos: int, tally: TypoTally) -> str:
    gain = compute_difference(tally.values["typo, on"], tally.values["typo, off"]).interval
    times = sorted(tally.milliseconds) or [0.0]
    clean, typo = (
        [f"{tally.get_mean(f'{kind}, {state}'):.3f}" for state in ("off", "on")] for kind in ("clean", "typo")
    )
    cells = (name, mode, queries, *clean, typos, *typo, f"{gain.mean:+.3f} [{gain.low:+.3f} {gain.high:+.3f}]")
    cells += (f"{tally.get_mean('typo, model reads it'):.3f}", f"{tally.restored / typos:.0%}")
    cells += (f"{tally.suggested / typos:.0%}", len(tally.false))
    cells += (f"{statistics.median(times):.1f} / {times[int(len(times) * 0.95)]:.1f}",)
    return f"| {' | '.join(map(str, cells))} | {statistics.fmean(tally.untouched):.2f} |"


if __name__ == "__main__":
    main()
