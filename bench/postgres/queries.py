"""Searches in many small wikis: by a process that has them open, by one that does not, and memory of the server."""

import statistics
import time
from typing import TYPE_CHECKING

import psycopg

from bench.many_wikis.wikis import slug
from bench.postgres.load import cpu_below
from bench.postgres.parts import Part
from bench.postgres.server import memory_of, pid_of
from bench.postgres.sides import Side
from bench.postgres.times import Times
from tests.support.postgres_server import OPERATOR, PostgresServer
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query

if TYPE_CHECKING:
    from bench.postgres.small import Small

HOT = 10
"""Wikis asked in turn while their connections are open."""
SOME = 500
"""Wikis asked at random: more than connections are kept."""
COLD = 200


def search(small: "Small", part: Part, rounds: int) -> None:
    warm, many, cold = Times(), Times(), Times()
    for turn in range(-2 * HOT, rounds):
        _ask(small, warm if turn >= 0 else Times(), turn % HOT)
    some = min(SOME, small.count // 2)
    for _ in range(rounds // 2):
        _search(small, many, small.rng.randrange(HOT, some))
    for number in small.rng.sample(range(some, small.count), min(COLD, small.count - some)):
        _first(small, cold, number)
    whom = ("files", "PostgreSQL", "shared table")
    part.say(f"A process that has them open, {HOT} wikis in turn (embedding the question is left out everywhere):", "")
    part.say(*warm.table("warm", whom), "")
    part.say(f"{some} wikis at random, more than connections are kept open:", "")
    part.say(*many.table("at random", whom), "")
    part.say("A wiki that the process has never opened; in PostgreSQL, a login:", "")
    part.say(*cold.table("cold", whom[:2]), "")


def _ask(small: "Small", times: Times, number: int) -> None:
    _search(small, times, number)
    question = small.question(number)
    for side in small.both:
        index, vector, query = side.index(slug(number)), side.embedder.embed_query(question), parse_query(question)
        times.take("nearest 30 chunks alone", side.name, lambda i=index, v=vector: i.search_vectors(v, 30, None))
        times.take("words alone", side.name, lambda i=index, q=query: i.search_keywords(q, 30, PageFilter()))


def _search(small: "Small", times: Times, number: int) -> None:
    question = small.question(number)
    for mode in (SearchMode.SEMANTIC, SearchMode.KEYWORD, SearchMode.HYBRID):
        for side in small.both:
            times.take(f"{mode} search", side.name, lambda s=side, m=mode: _found(s, number, question, m))
    times.take(f"{SearchMode.SEMANTIC} search", "shared table", lambda: small.shared.nearest(number, question))
    times.take(f"{SearchMode.KEYWORD} search", "shared table", lambda: small.shared.words(number, question))


def _first(small: "Small", times: Times, number: int) -> None:
    question = small.question(number)
    for what in ("first hybrid search", "second"):
        for side in small.both:
            times.take(what, side.name, lambda s=side: _found(s, number, question, SearchMode.HYBRID))


def cpu(small: "Small", part: Part, server: PostgresServer, rounds: int) -> None:
    """What a warm search costs in CPU time, which other programs on the machine hardly change."""
    part.say("CPU time of a warm search, ms (this process, without embedding; and the database):", "")
    part.say(
        "| search | files | PostgreSQL, the node | PostgreSQL, the database | both ÷ files |", "|---|---|---|---|---|"
    )
    for mode in (SearchMode.SEMANTIC, SearchMode.KEYWORD, SearchMode.HYBRID):
        spent = []
        for side in small.both:
            asked = [(turn % HOT, small.question(turn % HOT)) for turn in range(rounds)]
            before = time.process_time(), cpu_below(pid_of(server))
            for number, question in asked:
                _found(side, number, question, mode)
            after = time.process_time(), cpu_below(pid_of(server))
            spent.append([(b - a) / rounds * 1e3 for a, b in zip(before, after, strict=True)])
        (files, _), (node, database) = spent
        part.say(f"| {mode} | {files:.2f} | {node:.2f} | {database:.2f} | {(node + database) / files:.1f} |")
    part.say("")


def _found(side: Side, number: int, question: str, mode: SearchMode) -> None:
    answer = side.service.get_handle(slug(number)).search(SearchRequest(question, mode=mode))
    assert answer.hits, (side.name, question)
    assert not answer.degraded, answer.notes


def backends(part: Part, server: PostgresServer) -> None:
    with psycopg.connect(server.get_dsn(), autocommit=True) as operator:
        rows = operator.execute(
            "SELECT pid, usename FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
    wikis = [memory_of(pid) for pid, user in rows if user != OPERATOR]
    others = [memory_of(pid) for pid, user in rows if user == OPERATOR]
    part.say(
        f"Backends then: {len(wikis)} of wikis with {statistics.fmean(wikis):.1f} MB each (private; most "
        f"{max(wikis):.1f}), {len(others)} of the operator with {max(others):.1f} MB at most.",
        "",
    )
