"""Searches in many small wikis: by a process that has them open, by one that does not, and memory of the server."""

import statistics
import time
from typing import TYPE_CHECKING

import psycopg

from bench.many_wikis.repositories import make_slug
from bench.measures import read_private_mb
from bench.postgres.load import read_tree_cpu_s
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_pid
from bench.postgres.sides import Side
from bench.postgres.store_times import StoreTimes
from tests.support.postgres_server import OPERATOR, PostgresServer
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query

if TYPE_CHECKING:
    from bench.postgres.small import SmallWikis

HOT = 10
"""Wikis searched in turn while their connections are open."""
SOME = 500
"""Wikis searched at random: more than there are open connections."""
COLD = 200


def run_searches(small: "SmallWikis", part: ReportPart, rounds: int) -> None:
    warm, many, cold = StoreTimes(), StoreTimes(), StoreTimes()
    for turn in range(-2 * HOT, rounds):
        _search_all(small, warm if turn >= 0 else StoreTimes(), turn % HOT)
    some = min(SOME, small.count // 2)
    for _ in range(rounds // 2):
        _search(small, many, small.rng.randrange(HOT, some))
    for number in small.rng.sample(range(some, small.count), min(COLD, small.count - some)):
        _search_cold(small, cold, number)
    whom = ("files", "PostgreSQL", "shared table")
    part.add(f"A process that has them open, {HOT} wikis in turn (embedding the question is left out everywhere):", "")
    part.add(*warm.format_table("warm", whom), "")
    part.add(f"{some} wikis at random, more than connections are kept open:", "")
    part.add(*many.format_table("at random", whom), "")
    part.add("A wiki that the process has never opened; in PostgreSQL, a login:", "")
    part.add(*cold.format_table("cold", whom[:2]), "")


def _search_all(small: "SmallWikis", times: StoreTimes, number: int) -> None:
    _search(small, times, number)
    question = small.get_question(number)
    for side in small.both:
        index, vector, query = (
            side.open_index(make_slug(number)),
            side.embedder.embed_query(question),
            parse_query(question),
        )
        times.measure("nearest 30 chunks alone", side.name, index.search_vectors, vector, 30, None)
        times.measure("words alone", side.name, index.search_keywords, query, 30, PageFilter())


def _search(small: "SmallWikis", times: StoreTimes, number: int) -> None:
    question = small.get_question(number)
    for mode in (SearchMode.SEMANTIC, SearchMode.KEYWORD, SearchMode.HYBRID):
        for side in small.both:
            times.measure(f"{mode} search", side.name, _check_search, side, number, question, mode)
    times.measure(f"{SearchMode.SEMANTIC} search", "shared table", small.shared.search_vectors, number, question)
    times.measure(f"{SearchMode.KEYWORD} search", "shared table", small.shared.search_words, number, question)


def _search_cold(small: "SmallWikis", times: StoreTimes, number: int) -> None:
    question = small.get_question(number)
    for what in ("first hybrid search", "second"):
        for side in small.both:
            times.measure(what, side.name, _check_search, side, number, question, SearchMode.HYBRID)


def measure_cpu(small: "SmallWikis", part: ReportPart, server: PostgresServer, rounds: int) -> None:
    """Measure the CPU time of a warm search, which other load on the machine hardly changes."""
    part.add("CPU time of a warm search, ms (this process, without embedding; and the database):", "")
    part.add(
        "| search | files | PostgreSQL, the node | PostgreSQL, the database | both ÷ files |", "|---|---|---|---|---|"
    )
    for mode in (SearchMode.SEMANTIC, SearchMode.KEYWORD, SearchMode.HYBRID):
        spent = []
        for side in small.both:
            questions = [(turn % HOT, small.get_question(turn % HOT)) for turn in range(rounds)]
            before = time.process_time(), read_tree_cpu_s(get_pid(server))
            for number, question in questions:
                _check_search(side, number, question, mode)
            after = time.process_time(), read_tree_cpu_s(get_pid(server))
            spent.append([(b - a) / rounds * 1e3 for a, b in zip(before, after, strict=True)])
        (files, _), (node, database) = spent
        part.add(f"| {mode} | {files:.2f} | {node:.2f} | {database:.2f} | {(node + database) / files:.1f} |")
    part.add("")


def _check_search(side: Side, number: int, question: str, mode: SearchMode) -> None:
    answer = side.service.get_handle(make_slug(number)).search(SearchRequest(question, mode=mode))
    assert answer.hits, (side.name, question)
    assert not answer.degraded, answer.notes


def report_backends(part: ReportPart, server: PostgresServer) -> None:
    with psycopg.connect(server.get_dsn(), autocommit=True) as operator:
        rows = operator.execute(
            "SELECT pid, usename FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
    wikis = [read_private_mb(pid, ("Private_",)) for pid, user in rows if user != OPERATOR]
    others = [read_private_mb(pid, ("Private_",)) for pid, user in rows if user == OPERATOR]
    part.add(
        f"Backends then: {len(wikis)} of wikis with {statistics.fmean(wikis):.1f} MB each (private; most "
        f"{max(wikis):.1f}), {len(others)} of the operator with {max(others):.1f} MB at most.",
        "",
    )
