"""Each fuzz target for a few seconds; `python -m tests.fuzz --minutes 30` goes on for longer."""

import os

import pytest

from tests.fuzz.runner import ALL_TARGETS, make_campaign
from tests.support.tiers import choose

EXAMPLES = int(os.environ.get("WIKIHOLT_FUZZ_EXAMPLES", choose(400, 100)))


@pytest.mark.parametrize("name", ALL_TARGETS)
def test_what_must_hold_for_any_input_holds(name: str) -> None:
    assert make_campaign(name, examples=EXAMPLES) is None
