"""What holds for all tests: one browser, the same examples in every run, and the crash gate before anything else."""

import os
from functools import lru_cache

import pytest
from httpx._transports import default as httpx_transport
from hypothesis import settings

from tests.support.browser import browser, visit
from tests.support.postgres_fixtures import database, pg

__all__ = ["browser", "database", "pg", "visit"]

# Each client of httpx reads every certificate of the machine, for 30 ms; tests ask without, and very often.
httpx_transport.create_ssl_context = lru_cache(httpx_transport.create_ssl_context)  # type: ignore[assignment]

# A run that fails can be run again; `WIKIHOLT_EXPLORE=1` draws new examples, as `python tests/fuzz` does for longer.
settings.register_profile("wikiholt", deadline=None, derandomize=not os.environ.get("WIKIHOLT_EXPLORE"))
settings.load_profile("wikiholt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The crash gate forks: it goes first, while no test has left a thread behind that may hold a lock."""
    items.sort(key=lambda item: "test_crash_gate" not in item.nodeid)
