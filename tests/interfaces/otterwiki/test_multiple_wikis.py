"""One process, several wikis: the request selects the wiki, and every wiki has its own index."""

import hashlib
import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Lock

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.git_repository import Repository
from tests.support.paths import PYTHON_PATH
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import open_service

pytestmark = pytest.mark.model


class MultipleWikis:
    """Two wikis, both with a page named Home, selected by the first part of the host name."""

    def __init__(self, place: Path, kind: str) -> None:
        self.kind = kind
        self.directory = place / "wikis"
        for name in ("garden", "kitchen"):
            Repository(self.directory / name / "repo").commit(
                {"home.md": f"# Home\n\nWelcome to the {name}, wayfarer.\n"}
            )
        environ = {"WIKIS_DIRECTORY": str(self.directory), "STORAGE_KIND": kind, "PYTHONPATH": PYTHON_PATH}
        environ |= {"WIKIHOLT_CHECK_INTERVAL": "0", "WIKIHOLT_BACKUP_INTERVAL": "0"}
        if kind == "resolver":
            environ["WIKIHOLT_OTTERWIKI_RESOLVER"] = "tests.interfaces.otterwiki.multi_wiki_app:resolve"
        threads = ("--threads", "1") if kind == "swap" else ()
        self.otter = OtterwikiServer.start(
            place,
            "gunicorn",
            environ=environ,
            workers=2,
            options=threads,
            app="tests.interfaces.otterwiki.multi_wiki_app",
            pages={"lobby.md": "# L\n"},
        )

    def get_slug(self, name: str) -> str:
        return f"the-{name}" if self.kind == "resolver" else name

    def make_client(self, name: str) -> httpx.Client:
        return self.otter.make_client(Host=f"{name}.example.org")

    def save_page(self, name: str, path: str, text: str) -> None:
        with self.make_client(name) as client:
            self.otter.save_page(path, text, client=client)

    def find_paths(self, name: str, query: str) -> list[str]:
        return self.otter.find_paths(query, slug=self.get_slug(name))

    def wait_until_found(self, name: str, query: str, path: str) -> None:
        self.otter.wait_until_found(query, path, slug=self.get_slug(name))

    def hash_files(self, name: str) -> dict[str, str]:
        """Hashes of the index files of a wiki once no process writes them, without files that readers create."""
        service = open_service(self.otter.data)
        wiki, store = service.registry.get(self.get_slug(name)), service.components.store
        directory = store.get_directory(wiki.id)
        wait_until(lambda: not service.get_handle(wiki.slug).get_status().stale, self.otter.read_log)
        wait_until(lambda: not (directory / "activity.json").exists(), self.otter.read_log)
        service.close()
        for index in directory.glob("g??????.sqlite"):
            with closing(sqlite3.connect(index)) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        files = (file for file in directory.rglob("*") if not file.name.endswith(("-wal", "-shm")))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module", params=["swap", "resolver"])
def wikis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MultipleWikis]:
    wikis = MultipleWikis(tmp_path_factory.mktemp("multiple"), request.param)
    with wikis.otter:
        yield wikis


def test_a_wiki_is_indexed_with_the_pages_it_has_when_one_of_them_is_first_viewed(wikis: MultipleWikis) -> None:
    for name in ("garden", "kitchen"):
        with wikis.make_client(name) as client:
            assert f"Welcome to the {name}" in client.get("/Home").text
        wikis.wait_until_found(name, "wayfarer", "home")


def test_the_search_page_shows_only_the_wiki_of_its_host(wikis: MultipleWikis) -> None:
    for name, other in (("garden", "kitchen"), ("kitchen", "garden")):
        with wikis.make_client(name) as client:
            page = client.get("/-/wikiholt/search?q=wayfarer").text
        assert f"Welcome to the {name}" in page
        assert other not in page


def test_pages_with_the_same_name_stay_separate(wikis: MultipleWikis) -> None:
    for name in ("garden", "kitchen"):
        wikis.save_page(name, "Shared", f"# Shared\n\nOnly the {name} has this, and a canary named {name}bird.\n")
    wikis.wait_until_found("garden", "gardenbird", "shared")
    wikis.wait_until_found("kitchen", "kitchenbird", "shared")
    assert wikis.find_paths("garden", "kitchenbird") == []
    assert wikis.find_paths("kitchen", "gardenbird") == []
    assert wikis.find_paths("garden", "wayfarer") == ["home"]


def test_concurrent_saves_in_two_wikis_stay_separate(wikis: MultipleWikis) -> None:
    # A save of Otterwiki changes the current directory of its process: two saves in threads of one process can fail.
    saving = nullcontext() if wikis.kind == "swap" else Lock()

    def write(name: str) -> None:
        for number in range(6):
            with saving:
                wikis.save_page(name, f"Page {number}", f"# Page {number}\n\nWritten in haste, {name}haste.\n")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ["garden", "kitchen"]))
    for name in ("garden", "kitchen"):
        wait_until(lambda name=name: len(wikis.find_paths(name, f"{name}haste")) == 6, wikis.otter.read_log)
    assert wikis.find_paths("garden", "kitchenhaste") == []
    assert wikis.find_paths("kitchen", "gardenhaste") == []


def test_reindexing_one_wiki_does_not_change_the_files_of_the_other(wikis: MultipleWikis) -> None:
    before = wikis.hash_files("kitchen")
    service = open_service(wikis.otter.data)
    report = service.get_handle(wikis.get_slug("garden")).sync(from_scratch=True)
    service.close()
    assert report.rebuilt
    wikis.save_page("garden", "After", "# After\n\nAftermath.\n")
    wikis.wait_until_found("garden", "aftermath", "after")
    assert wikis.hash_files("kitchen") == before


def test_every_worker_raises_its_limit_of_open_files(wikis: MultipleWikis) -> None:
    def is_raised(pid: int) -> bool:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        return soft == hard or soft >= 8192

    workers = wikis.otter.get_worker_pids()
    assert workers
    for pid in workers:
        wait_until(lambda pid=pid: is_raised(pid), wikis.otter.read_log)


def test_slugs_come_from_the_directory_or_the_resolver(wikis: MultipleWikis) -> None:
    service = open_service(wikis.otter.data)
    sources = {wiki.slug: wiki.source for wiki in service.list_wikis()}
    service.close()
    for name in ("garden", "kitchen"):
        assert sources[wikis.get_slug(name)] == str((wikis.directory / name / "repo").resolve())
    # With a resolver, the repository that Otterwiki was started with is not registered.
    assert len(sources) == (2 if wikis.kind == "resolver" else 3)


def test_no_error_was_logged(wikis: MultipleWikis) -> None:
    assert "Traceback" not in wikis.otter.read_log()


def test_a_wiki_without_commits_lists_and_finds_nothing_until_its_first_page(wikis: MultipleWikis) -> None:
    empty = Repository(wikis.directory / "empty" / "repo")
    with wikis.make_client("empty") as client:

        def ask(path: str) -> tuple[int, object, object]:
            answer = client.get(f"/api/v1/{path}")
            document = answer.json()
            return answer.status_code, document.get("total"), document.get("pages", document.get("results"))

        for _ in range(2):  # before and after a sync has found no commit
            for path in ("pages", "search?q=boat", "semantic-search?q=boat", "search?q=boat&mode=hybrid"):
                assert ask(path) == (200, 0, []), path
            wait_until(lambda: client.get("/api/v1/status").json()["error"], wikis.otter.read_log)
        empty.commit({"sea.md": "# Sea\n\nA boat.\n"})
        assert ask("pages")[:2] == (200, 1)
        wait_until(lambda: ask("search?q=boat&fresh=true")[:2] == (200, 1), wikis.otter.read_log)
