"""A host deletes a wiki and gives its name to a new owner: same path and slug, no data of the old wiki."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_client import (
    HELPER_PATH,
    NO_KEEPALIVE,
    SHARED_KEY,
    ApiClient,
    create_registry_key,
)
from tests.interfaces.otterwiki.otterwiki_server import TIMEOUT_S, OtterwikiServer, wait_until
from tests.support.git_repository import Repository
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.otterwiki import forget

pytestmark = pytest.mark.model

OLD = {"safe.md": "# Safe\n\nThe old owner's combination is oldsecret.\n", "plan.md": "# Plan\n\noldsecret again.\n"}
NEW = {"flowers.md": "# Flowers\n\nThe new owner grows newflower.\n"}
READS = (
    "pages",
    "pages/Safe",
    "search?q=oldsecret",
    "search?q=oldsecret&mode=keyword",
    "semantic-search?q=combination+of+the+safe",
    "similar?path=Safe",
    "links",
    "changelog",
    "status",
    "backups",
    "keys",
    "report",
)


class HostedWiki:
    """The directory layout of robot.wtf: WIKIS/SLUG/repo, deleted by removing WIKIS/SLUG."""

    def __init__(self, place: Path, kind: str) -> None:
        self.wikis = place / "wikis"
        Repository(self.wikis / "garden" / "repo").commit(dict(OLD))
        environ = {
            "WIKIS_DIRECTORY": str(self.wikis),
            "STORAGE_KIND": kind,
            "OTTERWIKI_API_KEY": SHARED_KEY,
            **HELPER_PATH,
        }
        environ |= {"WIKIHOLT_QUERIES_LOG": "true", "WIKIHOLT_SYNC_INTERVAL": "3600"}
        threads = ("--threads", "1") if kind == "swap" else ()
        self.otter = OtterwikiServer.start(
            place,
            "gunicorn",
            environ=environ,
            workers=2,
            options=threads,
            app="tests.interfaces.otterwiki.multi_wiki_app",
            pages={"lobby.md": "# Lobby\n"},
        )

    def ask(self, key: str | None = SHARED_KEY) -> ApiClient:
        host = {"Host": "garden.example.org"}
        client = httpx.Client(base_url=self.otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, headers=host)
        return ApiClient(self.otter, key, client)

    def old_owner(self) -> str:
        self.ask()("GET", "pages")
        self.otter.wait_until_found("oldsecret", "safe", slug="garden")
        with closing(open_service(self.otter.data)) as service:
            service.get_handle("garden").backups.create()
        assert len(self.ask().get_json("backups")["backups"]) == 1
        return create_registry_key(self.otter, Scope.ADMIN, "garden")

    def new_owner(self) -> None:
        shutil.rmtree(self.wikis / "garden")
        Repository(self.wikis / "garden" / "repo").commit(dict(NEW))


@pytest.fixture(params=["swap", "proxy"])
def hosted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostedWiki]:
    hosted = HostedWiki(tmp_path, request.param)
    with hosted.otter:
        yield hosted


def test_the_next_owner_of_a_slug_inherits_nothing(hosted: HostedWiki) -> None:
    token = hosted.old_owner()
    assert hosted.ask(token)("GET", "search?q=oldsecret").status_code == 200
    hosted.new_owner()
    for _ in range(2):  # every worker has the old wiki open
        for path in READS:
            for key in (token, SHARED_KEY):
                answer = hosted.ask(key)("GET", path)
                text = answer.text.replace("q=oldsecret", "").replace('"query":"oldsecret"', "")
                assert "oldsecret" not in text, (path, text)
                assert "admin of garden" not in text, (path, text)
                if key == token:
                    assert answer.status_code == 401, (path, answer.text)
    assert hosted.ask(token)("PUT", "pages/Defaced", {"content": "defaced"}).status_code == 401
    assert hosted.ask()("POST", "restore").status_code == 404
    assert not (hosted.wikis / "garden" / "repo" / "defaced.md").exists()
    hosted.otter.wait_until_found("newflower", "flowers", slug="garden")
    assert hosted.ask().get_json("backups")["backups"] == []
    assert [page["path"] for page in hosted.ask().get_json("pages")["pages"]] == ["Flowers"]
    assert "another repository is at its path" in hosted.otter.read_log()


def test_a_host_reports_that_a_wiki_was_removed(hosted: HostedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    token = hosted.old_owner()
    monkeypatch.delenv("WIKIHOLT_DATA", raising=False)
    with pytest.raises(WikiholtError, match="not set"):
        forget("garden")
    monkeypatch.setenv("WIKIHOLT_DATA", str(hosted.otter.data))
    shutil.rmtree(hosted.wikis / "garden")
    code = f"from wikiholt.interfaces.otterwiki import forget; print(forget({str(hosted.wikis / 'garden')!r}))"
    completed = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, check=False)
    assert completed.stdout.decode().strip() == "('garden',)", completed.stderr.decode()
    assert forget(hosted.wikis / "garden") == ()
    service = open_service(hosted.otter.data)
    assert "garden" not in [wiki.slug for wiki in service.list_wikis()]
    assert service.registry.keys.find_by_token(token) is None
    service.close()
    Repository(hosted.wikis / "garden" / "repo").commit(dict(NEW))
    assert "oldsecret" not in hosted.ask()("GET", "pages").text
    wait_until(lambda: hosted.otter.find_paths("newflower", slug="garden") == ["flowers"], hosted.otter.read_log)
