"""The embedded store passes the conformance suite."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.tiers import choose
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.testing import StoreConformance, run_state_machine
from wikiholt.testing.conformance import make_page, put_pages


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> IndexStore:
        return SqliteStore(tmp_path / "wikis")

    def test_a_cache_can_follow_from_any_version(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"), make_page("b.md", "beta"))
        with index.open_vector_snapshot() as snapshot:
            seen = {i for block in snapshot.iter_blocks() for i in block.chunk_ids.tolist()}
            version = snapshot.version
            assert snapshot.count == 2
        put_pages(index, make_page("a.md", "alpha two"), deleted=("b.md",))
        put_pages(index, make_page("c.md", "gamma"))
        delta = index.get_vector_changes(version)
        words = index.get_keyword_changes(version)
        assert delta is not None
        assert words is not None
        followed = (seen - set(delta.dropped.tolist())) | set(delta.added.chunk_ids.tolist())
        with index.open_vector_snapshot() as snapshot:
            assert followed == {i for block in snapshot.iter_blocks() for i in block.chunk_ids.tolist()}
            assert delta.version == words.version == snapshot.version
        assert len(words.changed) == 2
        assert len(words.dropped) == 1
        assert index.get_vector_changes(delta.version + 1) is None


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
