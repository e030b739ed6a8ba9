"""What holds for all tests: one browser, the same examples in every run, and the crash gate before anything else."""

import os

import pytest
from hypothesis import settings
from pg_fixtures import database, pg
from web_browser import browser, visit

__all__ = ["browser", "database", "pg", "visit"]

# A run that fails can be run again; `WIKIHOLT_EXPLORE=1` draws new examples, as `python tests/fuzz` does for longer.
settings.register_profile("wikiholt", deadline=None, derandomize=not os.environ.get("WIKIHOLT_EXPLORE"))
settings.load_profile("wikiholt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The crash gate forks: it goes first, while no test has left a thread behind that may hold a lock."""
    items.sort(key=lambda item: "test_crash_gate" not in item.nodeid)
