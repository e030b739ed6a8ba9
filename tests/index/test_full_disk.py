"""On a full disk searches still work, and writes end in an error with a hint."""

import sys
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki
from tests.support.fork_server import run_forked

FULL_DISK_SCRIPT = """
import resource, sys
from dataclasses import replace
from pathlib import Path

from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.errors import StorageError
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # from now on no file can grow
service = bootstrap.build_service(load_settings(Path(sys.argv[1])))
embedder = FakeEmbedder()
service.components = replace(service.components, embedder=lambda: embedder, identity=None)
(wiki,) = service.list_wikis()
handle = service.get_handle(wiki.slug)
for mode in SearchMode:
    answer = handle.search(SearchRequest("unique7", mode=mode))
    print(mode, answer.hits[0].path, answer.degraded)
status = handle.get_status()
print("status", status.state.pages, status.error, handle.check())
for write in (handle.sync, lambda: handle.sync(from_scratch=True), handle.backups.create):
    try:
        print(write())
    except StorageError as error:
        print("refused", bool(error.hint))
service.close()
"""


@pytest.fixture
def wiki(tmp_path: Path) -> DamagedWiki:
    created = DamagedWiki(tmp_path, pages=20)
    created.repository.commit({"later.md": "# Later\n"})
    created.close()
    return created


@pytest.mark.process
def test_searches_work_on_a_full_disk_and_writes_are_refused(wiki: DamagedWiki) -> None:
    data = wiki.place / "data"
    assert not list(data.rglob("*-shm")), "no index is open"
    done = run_forked([sys.executable, "-c", FULL_DISK_SCRIPT, str(data)], text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"{mode} page-7 False" for mode in ("hybrid", "semantic", "keyword")]
    assert lines[3] == "status 20 None []"
    assert lines[4:] == ["refused True"] * 3
    wiki.service = wiki.open_service()
    wiki.handle.sync()
    wiki.assert_healthy()
    wiki.close()
