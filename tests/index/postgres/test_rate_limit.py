"""Limits shared by nodes: a client of two nodes gets no more than from one node."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.wait import wait_until
from wikiholt.errors import DatabaseUnavailable, TooManyRequests
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.wikis import home_tables as buckets_module
from wikiholt.wikis import rate_limit as limits_module
from wikiholt.wikis.home_tables import BUCKET_TABLES, PostgresBuckets
from wikiholt.wikis.rate_limit import Allowance, RateLimiter

ADDRESS = "192.0.2.1"


@pytest.fixture
def home(database: str) -> Iterator[Catalog]:
    with closing(Catalog(database, (BUCKET_TABLES,))) as made:
        yield made


@pytest.fixture(autouse=True)
def slow_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failure is forgiven per minute, so that a busy machine changes no count."""
    monkeypatch.setattr(limits_module, "MAX_FAILURES_PER_MINUTE", 1)


def make_limiter(home: Catalog, per_minute: int = 1) -> RateLimiter:
    return RateLimiter(per_minute, per_minute, shared_buckets=lambda kind, size: PostgresBuckets(home, kind, size))


def count_allowed(limits: RateLimiter, key_id: str | None) -> int:
    """How many requests pass at once."""
    count = 0
    while True:
        try:
            limits.check(key_id, ADDRESS)
        except TooManyRequests:
            return count
        count += 1


@pytest.mark.parametrize("key_id", ["key", None])
def test_two_nodes_together_allow_as_much_as_one(home: Catalog, key_id: str | None) -> None:
    one, other = make_limiter(home), make_limiter(home)
    first = one.check(key_id, ADDRESS)
    assert first == Allowance(1, 19, 60) == RateLimiter(1, 1).check(key_id, ADDRESS)
    assert other.check(key_id, ADDRESS).remaining == 18
    assert 2 + count_allowed(one, key_id) + count_allowed(other, key_id) in (20, 21)  # one token is added per minute
    assert other.check("another key", ADDRESS).remaining == 19


def test_a_bucket_is_refilled_after_the_clock_of_the_server_was_set_back(home: Catalog) -> None:
    limits = make_limiter(home, 600)
    count_allowed(limits, "key")
    with home.read_connection() as connection:
        connection.execute("UPDATE buckets SET at = at + interval '1 year'")
    wait_until(lambda: count_allowed(limits, "key") > 0, seconds=30)


def test_threads_of_two_nodes_get_no_more_than_the_bucket_size(home: Catalog) -> None:
    nodes, counts = [make_limiter(home), make_limiter(home)], list[int]()
    threads = [
        threading.Thread(target=lambda at=at: counts.append(count_allowed(nodes[at % 2], "key"))) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) in (20, 21)


def test_keys_tried_at_two_nodes_block_their_address_on_both(home: Catalog) -> None:
    one, other = make_limiter(home, 0), make_limiter(home, 0)
    for _ in range(20):
        one.record_failure(ADDRESS)

    def refused() -> bool:
        other.record_failure(ADDRESS)
        try:
            other.check_failures(ADDRESS)
        except TooManyRequests:
            return True
        return False

    assert any(refused() for _ in range(10))
    other.check_failures("192.0.2.2")


def test_wrong_keys_at_two_nodes_are_counted_together_by_address_and_by_prefix(home: Catalog) -> None:
    one, other = make_limiter(home, 0), make_limiter(home, 0)

    def looked_at(limits: RateLimiter, address: str, token: str) -> bool:
        try:
            limits.refuse_key(address, token)
        except TooManyRequests:
            return False
        return True

    key = "wh_abcdefghijkl_x"
    assert all(looked_at(one, ADDRESS, key) for _ in range(20))
    # A node sees the counts of others when it counts a failure itself.
    assert sum(looked_at(other, ADDRESS, "another") for _ in range(20)) <= 2
    assert sum(looked_at(other, "192.0.2.2", key) for _ in range(20)) <= 2
    assert looked_at(other, "192.0.2.3", "wh_bbbbbbbbbbbb_x")
    assert other.check("abcdefghijkl", ADDRESS) == Allowance(0, 0, 0), "a valid key is not affected"


def test_without_a_limit_the_database_is_not_used() -> None:
    nowhere = Catalog("postgresql://nobody@127.0.0.1:1/none", (BUCKET_TABLES,))
    assert make_limiter(nowhere, 0).check("key", ADDRESS) == Allowance(0, 0, 0)


def test_while_the_database_is_unavailable_no_request_passes_uncounted(pg: PostgresServer, home: Catalog) -> None:
    limits = make_limiter(home)
    limits.check("key", ADDRESS)
    pg.stop()
    try:
        for ask in (lambda: limits.check("key", ADDRESS), lambda: limits.record_failure(ADDRESS)):
            with pytest.raises(DatabaseUnavailable):
                ask()
        limits.check_failures(ADDRESS)
    finally:
        pg.start()


def test_buckets_that_are_full_again_are_removed(home: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = make_limiter(home)
    limits.check("old", ADDRESS)
    limits.check("young", ADDRESS)
    with home.read_connection() as connection:
        connection.execute("UPDATE buckets SET at = at - interval '1 hour' WHERE name = 'old'")
    monkeypatch.setattr(buckets_module, "_CLEANUP_INTERVAL_S", 0.0)
    limits.check("young", ADDRESS)
    with home.read_connection() as connection:
        assert connection.execute("SELECT name FROM buckets").fetchall() == [("young",)]
    assert limits.check("old", ADDRESS).remaining == 19
