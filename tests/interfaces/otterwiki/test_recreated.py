"""A host deletes a wiki and gives its name to a new owner: same path and slug, no data of the old wiki."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_client import (
    HELPER_PATH,
    NO_KEEPALIVE,
    SHARED_KEY,
    ApiClient,
    create_registry_key,
)
from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.fork_server import OTTERWIKI_MODULES, run_forked
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.wiki import Scope
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.otterwiki import forget

pytestmark = pytest.mark.model

OLD = {"safe.md": "# Safe\n\nThe old owner's combination is oldsecret.\n", "plan.md": "# Plan\n\noldsecret again.\n"}
NEW = {"flowers.md": "# Flowers\n\nThe new owner grows newflower.\n"}
UNKNOWN_KEY = (401, 429)
"""A worker that has seen many unknown keys answers 429; how many it sees depends on the other worker."""
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
    """One wiki in the directory layout of robot.wtf: WIKIS/SLUG/repo, deleted by removing WIKIS/SLUG."""

    def __init__(self, otter: OtterwikiServer, slug: str) -> None:
        self.otter = otter
        self.slug = slug
        self.directory = otter.place / "wikis" / slug
        Repository(self.directory / "repo").commit(dict(OLD))

    def ask(self, key: str | None = SHARED_KEY) -> ApiClient:
        host = {"Host": f"{self.slug}.example.org"}
        client = httpx.Client(base_url=self.otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, headers=host)
        return ApiClient(self.otter, key, client)

    def old_owner(self) -> str:
        self.ask()("GET", "pages")
        self.otter.wait_until_found("oldsecret", "safe", slug=self.slug)
        with closing(open_service(self.otter.data)) as service:
            service.get_handle(self.slug).backups.create()
        assert len(self.ask().get_json("backups")["backups"]) == 1
        return create_registry_key(self.otter, Scope.ADMIN, self.slug)

    def new_owner(self) -> None:
        shutil.rmtree(self.directory)
        Repository(self.directory / "repo").commit(dict(NEW))


@pytest.fixture(scope="module")
def otter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A server with one wiki per test, selected by the host name."""
    place = tmp_path_factory.mktemp("hosted")
    environ = {"WIKIS_DIRECTORY": str(place / "wikis"), "STORAGE_KIND": "proxy", "OTTERWIKI_API_KEY": SHARED_KEY}
    environ |= {**HELPER_PATH, "WIKIHOLT_QUERIES_LOG": "true", "WIKIHOLT_SYNC_INTERVAL": "3600"}
    environ["WIKIHOLT_BACKUP_INTERVAL"] = "0"  # tests count the backups
    with OtterwikiServer.start(
        place,
        "gunicorn",
        environ=environ,
        workers=2,
        app="tests.interfaces.otterwiki.multi_wiki_app",
        pages={"lobby.md": "# Lobby\n"},
    ) as running:
        yield running


def test_the_next_owner_of_a_slug_inherits_nothing(otter: OtterwikiServer) -> None:
    hosted = HostedWiki(otter, "garden")
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
                    assert answer.status_code in UNKNOWN_KEY, (path, answer.text)
    assert hosted.ask(token)("PUT", "pages/Defaced", {"content": "defaced"}).status_code in UNKNOWN_KEY
    assert hosted.ask()("POST", "restore").status_code == 404
    assert not (hosted.directory / "repo" / "defaced.md").exists()
    otter.wait_until_found("newflower", "flowers", slug="garden")
    assert hosted.ask().get_json("backups")["backups"] == []
    assert [page["path"] for page in hosted.ask().get_json("pages")["pages"]] == ["Flowers"]
    assert "another repository is at its path" in otter.read_log()


def test_a_host_reports_that_a_wiki_was_removed(otter: OtterwikiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = HostedWiki(otter, "orchard")
    token = hosted.old_owner()
    monkeypatch.delenv("WIKIHOLT_DATA", raising=False)
    with pytest.raises(WikiholtError, match="not set"):
        forget("orchard")
    monkeypatch.setenv("WIKIHOLT_DATA", str(otter.data))
    shutil.rmtree(hosted.directory)
    code = f"from wikiholt.interfaces.otterwiki import forget; print(forget({str(hosted.directory)!r}))"
    completed = run_forked([sys.executable, "-c", code], modules=OTTERWIKI_MODULES, check=False)
    assert completed.stdout.decode().strip() == "('orchard',)", completed.stderr.decode()
    assert forget(hosted.directory) == ()
    service = open_service(otter.data)
    assert "orchard" not in [wiki.slug for wiki in service.list_wikis()]
    assert service.registry.keys.find_by_token(token) is None
    service.close()
    Repository(hosted.directory / "repo").commit(dict(NEW))
    assert "oldsecret" not in hosted.ask()("GET", "pages").text
    wait_until(lambda: otter.find_paths("newflower", slug="orchard") == ["flowers"], otter.read_log)
