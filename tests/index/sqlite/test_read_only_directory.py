"""An index in a directory that cannot be written: another user's, or a read-only mount."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.support.fork_server import run_forked
from wikiholt.domain.index import IndexChange, Recipe
from wikiholt.index.sqlite.connections import open_connection
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry

pytestmark = pytest.mark.process

WIKI = "aaaaaaaaaaaaaaaaaaaa"
NOBODY_UID = 65534

READER_SCRIPT = f"""
import json, os, sys
from pathlib import Path
from wikiholt.errors import WikiholtError
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
# Before rights are dropped, lest a module that is loaded late cannot be read.
vector = FakeEmbedder().embed_query("alpha")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY_UID})
    os.setuid({NOBODY_UID})
root, command = Path(sys.argv[1]), sys.argv[2]
try:
    index = SqliteStore(root).open("{WIKI}")
    if command == "write":
        index.apply(IndexChange(deleted=("a.md",)))
    words = index.search_keywords(KeywordQuery(("alpha",)), 5, PageFilter())
    near = index.search_vectors(vector, 5, None)
    chunks = index.get_page_chunks([hit.page_id for hit in words])
    text = [chunk.text for page in chunks.values() for chunk in page]
    pages, check = index.get_state().pages, list(index.check())
    said = {{"pages": pages, "near": len(near.chunk_ids), "text": text, "check": check}}
    index.close()
except WikiholtError as error:
    said = {{"error": error.code, "message": error.message, "hint": error.hint}}
print(json.dumps(said))
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that any user can access, unlike pytest's directories."""
    made = Path(mkdtemp())
    made.chmod(0o755)
    yield made
    set_permissions(made, 0o755, 0o644)
    shutil.rmtree(made)


def set_permissions(root: Path, directory: int, file: int) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(directory if path.is_dir() else file)


def create_index(root: Path) -> SqliteStore:
    store = SqliteStore(root)
    embedder = FakeEmbedder()
    with store.write_lock(WIKI, 5):
        index = store.create(WIKI, Recipe(embedder.fingerprint, embedder.dimensions, "p"))
        index.apply(
            IndexChange((make_entry("a.md", ["alpha one"], embedder), make_entry("b.md", ["beta two"], embedder)))
        )
        index.close()
    return store


def run_as_nobody(root: Path, command: str = "read") -> Any:
    """Read the index in a process without write permission; root becomes a user without rights."""
    done = run_forked([sys.executable, "-c", READER_SCRIPT, str(root), command], text=True, check=False)
    if os.geteuid() == 0 and "os.set" in done.stderr and "PermissionError" in done.stderr:
        pytest.skip("this root may not become another user")
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in root.parents):
        pytest.skip("no other user can reach the directory for temporary files")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


EXPECTED = {"pages": 2, "near": 2, "text": ["alpha one"], "check": []}


def test_an_index_at_rest_is_read_without_writing_beside_it(root: Path) -> None:
    create_index(root)
    set_permissions(root, 0o555, 0o444)
    before = sorted(path.name for path in (root / WIKI).iterdir())
    assert run_as_nobody(root) == EXPECTED
    assert sorted(path.name for path in (root / WIKI).iterdir()) == before


def test_an_index_open_in_another_process_is_read_with_its_commits(root: Path) -> None:
    store = create_index(root)
    with closing(store.open(WIKI)) as index:
        index.apply(IndexChange(deleted=("b.md",)))
        assert (root / WIKI / "g000001.sqlite-wal").stat().st_size
        set_permissions(root, 0o555, 0o444)
        assert run_as_nobody(root) == {**EXPECTED, "pages": 1, "near": 1}


def test_changes_that_are_only_in_the_log_are_never_ignored(root: Path) -> None:
    create_index(root)
    file = root / WIKI / "g000001.sqlite"
    with closing(open_connection(file)) as db:
        db.execute("UPDATE state SET version = version + 1")
        shutil.copy(f"{file}-wal", root / "log")
    shutil.move(root / "log", f"{file}-wal")
    set_permissions(root, 0o555, 0o444)
    said = run_as_nobody(root)
    assert said["error"] == "storage-error"
    assert "log" in said["message"]
    assert said["hint"]


def test_writing_there_is_refused(root: Path) -> None:
    create_index(root)
    set_permissions(root, 0o555, 0o444)
    said = run_as_nobody(root, "write")
    assert said["error"] == "storage-error"
    assert said["hint"]


def test_a_missing_index_is_reported_as_missing(tmp_path: Path) -> None:
    from wikiholt.errors import IndexMissing

    with pytest.raises(IndexMissing):
        open_connection(tmp_path / "none.sqlite")
