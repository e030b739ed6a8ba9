"""A pytest plugin that keeps the unit tier quick: a test without a marker that takes over a second fails.

What counts is the CPU time of the process, in the test and in its own fixtures, so that a busy machine fails no test.
A slow machine does not either: when a test is over the limit, the plugin measures how fast the machine is.
"""

import hashlib
import time
from collections.abc import Generator
from typing import Any

import pytest

LIMIT_S = 1.0
_ALLOWANCE = 5
"""Processes that share cores and caches take up to three times the CPU time, and threads that other tests left count
too."""
_REFERENCE_S = 0.1
"""CPU time of `_measure_machine` on the machine that the limit was chosen for."""
_SPENT = pytest.StashKey[float]()


def _measure_machine() -> float:
    began = time.process_time()
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 100_000)
    return time.process_time() - began


def compute_limit() -> float:
    """The limit in seconds of CPU time, longer where the machine is slower."""
    return LIMIT_S * _ALLOWANCE * max(1.0, _measure_machine() / _REFERENCE_S)


class CpuLimit:
    """Adds up the CPU time of a test and its function-scoped fixtures. `exempt` are the markers without a limit."""

    def __init__(self, exempt: frozenset[str]) -> None:
        self._exempt = exempt

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        began = time.process_time()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "function":
                self._add(request.node, time.process_time() - began)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        began = time.process_time()
        result = yield
        self._add(item, time.process_time() - began)
        spent = item.stash[_SPENT]
        if spent > LIMIT_S and not self._is_exempt(item) and spent > (limit := compute_limit()):
            pytest.fail(
                f"takes {spent:.1f} s of CPU time, and a test of the unit tier may take {limit:.1f} s: "
                "make it quicker, or mark it slow",
                pytrace=False,
            )
        return result

    def _add(self, item: pytest.Item, seconds: float) -> None:
        item.stash[_SPENT] = item.stash.get(_SPENT, 0.0) + seconds

    def _is_exempt(self, item: pytest.Item) -> bool:
        return any(marker.name in self._exempt for marker in item.iter_markers())
