"""Runs each fuzz target for a few seconds; `python -m tests.fuzz --minutes 30` runs longer."""

import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.fuzz.runner import ALL_TARGETS, run_target
from tests.support.tiers import choose

EXAMPLES = int(os.environ.get("WIKIHOLT_FUZZ_EXAMPLES", choose(400, 60)))


@pytest.fixture(scope="module", autouse=True)
def temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the targets create their wikis where pytest removes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("fuzz")))
        yield


@pytest.mark.parametrize("name", ALL_TARGETS)
def test_the_target_passes_for_any_input(name: str) -> None:
    assert run_target(name, examples=EXAMPLES) is None
