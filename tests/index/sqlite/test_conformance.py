"""The embedded store passes the conformance suite."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.tiers import choose
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import StoreConformance, run_state_machine


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> IndexStore:
        return SqliteStore(tmp_path / "wikis")


@pytest.fixture
def scratch() -> Iterator[Path]:
    with TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.slow
def test_the_state_machine_finds_no_difference(scratch: Path) -> None:
    made: list[int] = []

    def fresh() -> IndexStore:
        made.append(1)
        return SqliteStore(scratch / str(len(made)))

    run_state_machine(fresh, examples=choose(40, 8))
    assert made
