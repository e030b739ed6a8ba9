"""A wiki whose source is a URL, from `add` to `remove`."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import LocalServer, make_advertising_handler, make_git_handler, run_http_server
from tests.support.wait import TIMEOUT_S
from wikiholt.api.backends import open_backend
from wikiholt.api.bootstrap import build_wiki_config, open_application
from wikiholt.api.documents.admin_documents import build_status_document, build_wiki_document
from wikiholt.api.settings.definitions import Settings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSource, SourceCorrupt, SourceMissing, WikiholtError, WikiNotFound
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.live_index import Components
from wikiholt.wikis.service import WikiService

SECRET = "hunter2"


def open_test_service(settings: Settings) -> WikiService:
    directory, embedder = open_backend(settings, BackupPolicy()), FakeEmbedder()
    store = directory.store
    components = Components(
        store,
        lambda: embedder,
        lambda index, wiki_id: None,
        0.05,
    )
    return WikiService(directory.registry, components, lambda wiki: build_wiki_config(wiki, settings, directory))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[WikiService]:
    overrides = {"remote.schemes": "http", "remote.allow_private": True, "remote.timeout": TIMEOUT_S}
    made = open_test_service(load_settings(tmp_path / "data", None, {}, overrides))
    yield made
    made.close()


def test_a_remote_wiki_is_added_fetched_synced_searched_and_removed_completely(
    repository: Repository, server: LocalServer, service: WikiService, tmp_path: Path
) -> None:
    repository.commit({"home.md": "the heron stands still"})
    wiki = service.add("far", server.get_url("wiki/.git"), {})
    handle = service.get_handle("far")
    assert isinstance(handle.get_status().error, SourceMissing)
    assert handle.fetch() is True
    handle.sync()
    assert [hit.path for hit in handle.search(SearchRequest("heron")).hits] == ["home"]
    repository.commit({"otter.md": "an otter swims"})
    assert not handle.get_status().stale
    handle.fetch()
    assert handle.get_status().stale
    handle.sync()
    assert next(hit.path for hit in handle.search(SearchRequest("otter")).hits) == "otter"
    place = service.components.store.get_directory(wiki.id)
    held = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert any(name.startswith("mirror.git/objects/pack/") for name in held)
    removed = service.remove("far")
    assert held <= {*removed.files, "g000001.sqlite-wal", "g000001.sqlite-shm"}
    assert not place.exists()


def test_cleanup_of_the_store_keeps_the_mirror(
    repository: Repository, server: LocalServer, service: WikiService, tmp_path: Path
) -> None:
    head = repository.commit({"home.md": "the heron stands still"})
    wiki = service.add("far", server.get_url("wiki/.git"), {})
    handle, store = service.get_handle("far"), service.components.store
    handle.fetch()
    handle.sync()
    mirror = store.get_directory(wiki.id) / "mirror.git"

    def files() -> dict[str, bytes]:
        return {str(file.relative_to(mirror)): file.read_bytes() for file in mirror.rglob("*") if file.is_file()}

    before = files()
    handle.sync(from_scratch=True)
    store.remove_old_generations(wiki.id)
    index = store.open(wiki.id)
    index.write_backup(tmp_path / "copy.sqlite")
    index.close()
    handle.close()
    store.quarantine(wiki.id, "a test")
    assert store.list_wiki_ids() == [wiki.id]
    assert files() == before
    handle = service.get_handle("far")
    assert service.get_source(wiki).get_head() == head
    handle.sync()
    assert files() == before


def test_an_unreadable_or_forbidden_remote_is_not_registered(server: LocalServer, service: WikiService) -> None:
    for source, kind in [
        (server.get_url("absent"), SourceCorrupt),
        ("https://git.example/w", InvalidSource),
        ("ftp://x/y", InvalidSource),
        ("ext::sh -c 'touch /tmp/x' ://", InvalidSource),
    ]:
        with pytest.raises(kind):
            service.add("far", source, {})
    assert service.list_wikis() == []


def test_with_default_settings_no_local_server_can_be_added(server: LocalServer, tmp_path: Path) -> None:
    plain = open_test_service(load_settings(tmp_path / "plain", None, {}, {}))
    for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"):
        with pytest.raises(InvalidSource, match="private network"):
            plain.add("far", f"https://{host}:{server.port}/wiki", {})
    assert plain.list_wikis() == []
    assert server.requested_paths == []
    plain.close()


def test_a_setting_can_be_changed_while_the_remote_is_down(repository: Repository, service: WikiService) -> None:
    repository.commit({"home.md": "x"})
    with run_http_server(make_git_handler(repository.path.parent)) as server:
        service.add("far", server.get_url("wiki/.git"), {})
        service.get_handle("far").fetch()
    assert service.configure("far", {"language": "german"}).settings["language"] == "german"


def test_the_index_answers_while_the_remote_is_down(repository: Repository, service: WikiService) -> None:
    repository.commit({"home.md": "the heron stands still"})
    with run_http_server(make_git_handler(repository.path.parent)) as server:
        service.add("far", server.get_url("wiki/.git"), {})
        handle = service.get_handle("far")
        handle.fetch()
        handle.sync()
    with pytest.raises(SourceCorrupt):
        handle.fetch()
    handle.sync()
    assert [hit.path for hit in handle.search(SearchRequest("heron")).hits] == ["home"]


def test_a_wiki_removed_while_it_is_fetched_leaves_nothing(service: WikiService, tmp_path: Path) -> None:
    release, arrived = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        arrived.set()
        release.wait(TIMEOUT_S)

    failures: list[WikiholtError] = []
    with run_http_server(make_advertising_handler(slow)) as server:
        wiki = service.registry.add("far", server.get_url(), {})
        handle = service.get_handle("far")

        def fetch() -> None:
            try:
                handle.fetch()
            except WikiholtError as error:
                failures.append(error)

        thread = threading.Thread(target=fetch)
        thread.start()
        assert arrived.wait(TIMEOUT_S)
        service.remove("far")
        release.set()
        thread.join(TIMEOUT_S)
    assert len(failures) == 1
    assert not service.components.store.get_directory(wiki.id).exists()
    with pytest.raises(WikiNotFound):
        service.get_handle("far")


def test_credentials_in_a_url_are_in_no_document(
    repository: Repository, server: LocalServer, service: WikiService
) -> None:
    repository.commit({"home.md": "x"})
    wiki = service.add("far", server.get_url("wiki/.git").replace("://", f"://bob:{SECRET}@"), {})
    handle = service.get_handle("far")
    shown = [json.dumps(build_wiki_document(wiki)), json.dumps(build_status_document(handle.get_status()))]
    handle.fetch()
    shown.append(json.dumps(build_status_document(handle.get_status())))
    assert not any(SECRET in text for text in shown)
    assert all("***@127.0.0.1" in text for text in shown)
    held = service.components.store.get_directory(wiki.id).rglob("*")
    assert not any(SECRET.encode() in file.read_bytes() for file in held if file.is_file())


def test_closing_a_service_does_not_wait_for_a_slow_remote(service: WikiService, tmp_path: Path) -> None:
    release, arrived = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        arrived.set()
        release.wait(TIMEOUT_S)

    settings = load_settings(tmp_path / "data", None, {}, {})
    with run_http_server(make_advertising_handler(slow)) as server:
        wiki = service.registry.add("far", server.get_url(), {})
        application = open_application(settings, (), service=service)
        application.scheduler.start()
        application.scheduler.notify_changed(wiki.id)
        assert arrived.wait(TIMEOUT_S)
        assert application.scheduler.stop(TIMEOUT_S / 2)
        release.set()


@pytest.mark.model
def test_the_command_line_adds_syncs_and_searches_a_url_and_shows_no_password(
    repository: Repository,
    server: LocalServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository.commit({"ops/backup.md": "# Backups\n\nCopies of every disk are taken at midnight."})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wikiholt.toml").write_text('[remote]\nschemes = ["http"]\nallow_private = true\n')
    url = server.get_url("wiki/.git").replace("://", f"://bob:{SECRET}@")

    def run(*arguments: str) -> int:
        return main(["--data", str(tmp_path / "data"), *arguments])

    assert run("add", "far", url) == 0
    assert run("sync", "far") == 0
    assert run("search", "-w", "far", "saving data at night") == 0
    assert "ops/backup" in capsys.readouterr().out
    assert run("add", "gone", url.replace("wiki", "absent")) == 6
    assert run("add", "bad", url.replace("http:", "ftp:")) == 2
    for command in (["list"], ["list", "--json"], ["status"], ["status", "far", "--json"], ["remove", "far", "--yes"]):
        assert run(*command) == 0
    seen = capsys.readouterr()
    assert "***@127.0.0.1" in seen.out
    assert SECRET not in seen.out + seen.err + caplog.text
