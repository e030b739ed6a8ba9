"""On a disk without a byte of room what is there goes on answering, and writing ends in an error that says why."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki

FULL_DISK_SCRIPT = """
import resource, sys
from dataclasses import replace
from pathlib import Path

from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.errors import StorageRefused
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file grows by a byte from now on
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
for write in (handle.sync, handle.reindex, handle.backups.create):
    try:
        print(write())
    except StorageRefused as error:
        print("refused", bool(error.hint))
service.close()
"""


@pytest.fixture
def ward(tmp_path: Path) -> DamagedWiki:
    made = DamagedWiki(tmp_path, pages=20)
    made.repository.commit({"later.md": "# Later\n"})
    made.close()
    return made


def test_a_full_disk_keeps_nobody_from_searching(ward: DamagedWiki) -> None:
    data = ward.place / "data"
    assert not list(data.rglob("*-shm")), "nothing is open"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK_SCRIPT, str(data)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"{mode} page-7 False" for mode in ("hybrid", "semantic", "keyword")]
    assert lines[3] == "status 20 None []"
    assert lines[4:] == ["refused True"] * 3
    ward.service = ward.open_service()
    ward.handle.sync()
    ward.assert_healthy()
    ward.close()
