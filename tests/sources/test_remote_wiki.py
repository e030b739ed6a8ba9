"""A wiki whose source is a URL, from `add` to `remove`."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_repository import Repository
from servers import Server, advertising, git_backend, serving

from wikiholt.backups import BackupPlan
from wikiholt.errors import InvalidSource, SourceBroken, SourceMissing, WikiholtError, WikiNotFound
from wikiholt.grounds import ground_of
from wikiholt.handle import Workshop
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import Settings, load
from wikiholt.surfaces.cli.main import main
from wikiholt.surfaces.documents import status_document, wiki_document
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache
from wikiholt.wiring import open_farm, parts_of

SECRET = "hunter2"


@pytest.fixture
def server(repository: Repository) -> Iterator[Server]:
    with serving(git_backend(repository.path.parent)) as running:
        yield running


def opened(settings: Settings) -> Service:
    ground, embedder = ground_of(settings, BackupPlan()), FakeEmbedder()
    store = ground.store
    shop = Workshop(
        store,
        lambda: embedder,
        lambda index, wiki_id: ExactCache(index, store.directory(wiki_id)),
        lambda index, wiki_id: None,
        0.05,
    )
    return Service(ground.registry, shop, lambda wiki: parts_of(wiki, settings, ground))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    overrides = {"remote.schemes": "http", "remote.allow_private": True, "remote.timeout": 20}
    made = opened(load(tmp_path / "data", None, {}, overrides))
    yield made
    made.close()


def test_a_remote_wiki_is_added_fetched_synced_searched_and_removed_to_the_last_byte(
    repository: Repository, server: Server, service: Service, tmp_path: Path
) -> None:
    repository.commit({"home.md": "the heron stands still"})
    wiki = service.add("far", server.url("wiki/.git"), {})
    handle = service.wiki("far")
    assert isinstance(handle.status().error, SourceMissing)
    assert handle.fetch() is True
    handle.sync()
    assert [hit.path for hit in handle.search(Request("heron")).hits] == ["home"]
    repository.commit({"otter.md": "an otter swims"})
    assert not handle.status().stale
    handle.fetch()
    assert handle.status().stale
    handle.sync()
    assert next(hit.path for hit in handle.search(Request("otter")).hits) == "otter"
    place = service.workshop.store.directory(wiki.id)
    held = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert any(name.startswith("mirror.git/objects/pack/") for name in held)
    removed = service.remove("far")
    assert held <= {*removed.files, "g000001.sqlite-wal", "g000001.sqlite-shm"}
    assert not place.exists()


def test_the_stores_housekeeping_leaves_the_mirror_alone(
    repository: Repository, server: Server, service: Service, tmp_path: Path
) -> None:
    head = repository.commit({"home.md": "the heron stands still"})
    wiki = service.add("far", server.url("wiki/.git"), {})
    handle, store = service.wiki("far"), service.workshop.store
    handle.fetch()
    handle.sync()
    mirror = store.directory(wiki.id) / "mirror.git"

    def files() -> dict[str, bytes]:
        return {str(file.relative_to(mirror)): file.read_bytes() for file in mirror.rglob("*") if file.is_file()}

    before = files()
    handle.reindex()
    store.sweep(wiki.id)
    index = store.open(wiki.id)
    index.backup(tmp_path / "copy.sqlite")
    index.close()
    handle.close()
    store.set_aside(wiki.id, "a test")
    assert store.ids() == [wiki.id]
    assert files() == before
    handle = service.wiki("far")
    assert service.source(wiki).head() == head
    handle.sync()
    assert files() == before


def test_a_remote_that_cannot_be_read_or_may_not_be_is_not_registered(server: Server, service: Service) -> None:
    for source, kind in [
        (server.url("absent"), SourceBroken),
        ("https://git.example/w", InvalidSource),
        ("ftp://x/y", InvalidSource),
        ("ext::sh -c 'touch /tmp/x' ://", InvalidSource),
    ]:
        with pytest.raises(kind):
            service.add("far", source, {})
    assert service.wikis() == []


def test_with_the_settings_as_they_come_nothing_here_can_be_added(server: Server, tmp_path: Path) -> None:
    plain = opened(load(tmp_path / "plain", None, {}, {}))
    for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"):
        with pytest.raises(InvalidSource, match="private network"):
            plain.add("far", f"https://{host}:{server.port}/wiki", {})
    assert plain.wikis() == []
    assert server.asked == []
    plain.close()


def test_a_setting_can_be_changed_while_the_remote_is_down(repository: Repository, service: Service) -> None:
    repository.commit({"home.md": "x"})
    with serving(git_backend(repository.path.parent)) as server:
        service.add("far", server.url("wiki/.git"), {})
        service.wiki("far").fetch()
    assert service.configure("far", {"language": "german"}).settings["language"] == "german"


def test_a_remote_that_is_down_costs_nothing_that_was_indexed(repository: Repository, service: Service) -> None:
    repository.commit({"home.md": "the heron stands still"})
    with serving(git_backend(repository.path.parent)) as server:
        service.add("far", server.url("wiki/.git"), {})
        handle = service.wiki("far")
        handle.fetch()
        handle.sync()
    with pytest.raises(SourceBroken):
        handle.fetch()
    handle.sync()
    assert [hit.path for hit in handle.search(Request("heron")).hits] == ["home"]


def test_a_wiki_removed_while_it_is_fetched_leaves_nothing(service: Service, tmp_path: Path) -> None:
    release, arrived = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        arrived.set()
        release.wait(20)

    failures: list[WikiholtError] = []
    with serving(advertising(slow)) as server:
        wiki = service.registry.add("far", server.url(), {})
        handle = service.wiki("far")

        def fetch() -> None:
            try:
                handle.fetch()
            except WikiholtError as error:
                failures.append(error)

        thread = threading.Thread(target=fetch)
        thread.start()
        assert arrived.wait(10)
        service.remove("far")
        release.set()
        thread.join(20)
    assert len(failures) == 1
    assert not service.workshop.store.directory(wiki.id).exists()
    with pytest.raises(WikiNotFound):
        service.wiki("far")


def test_credentials_in_a_url_are_in_no_document(repository: Repository, server: Server, service: Service) -> None:
    repository.commit({"home.md": "x"})
    wiki = service.add("far", server.url("wiki/.git").replace("://", f"://bob:{SECRET}@"), {})
    handle = service.wiki("far")
    shown = [json.dumps(wiki_document(wiki)), json.dumps(status_document(handle.status()))]
    handle.fetch()
    shown.append(json.dumps(status_document(handle.status())))
    assert not any(SECRET in text for text in shown)
    assert all("***@127.0.0.1" in text for text in shown)
    held = service.workshop.store.directory(wiki.id).rglob("*")
    assert not any(SECRET.encode() in file.read_bytes() for file in held if file.is_file())


def test_the_keeper_fetches_a_remote_wiki_and_what_is_pushed_to_it(
    repository: Repository, server: Server, service: Service, tmp_path: Path
) -> None:
    repository.commit({"home.md": "the heron stands still"})
    settings = load(tmp_path / "data", None, {}, {"remote.schemes": "http", "remote.allow_private": True})
    wiki = service.add("far", server.url("wiki/.git"), {})
    farm = open_farm(settings, (), service=service)
    farm.keeper.start()
    try:
        assert farm.keeper.fresh(wiki.id, 20)
        assert [hit.path for hit in service.wiki("far").search(Request("heron")).hits] == ["home"]
        repository.commit({"otter.md": "an otter swims"})
        farm.keeper.wake(wiki.id)
        assert farm.keeper.fresh(wiki.id, 20)
        assert next(hit.path for hit in service.wiki("far").search(Request("otter")).hits) == "otter"
    finally:
        assert farm.keeper.stop(20)


def test_a_service_that_ends_does_not_wait_for_a_slow_remote(service: Service, tmp_path: Path) -> None:
    release, arrived = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        arrived.set()
        release.wait(30)

    settings = load(tmp_path / "data", None, {}, {})
    with serving(advertising(slow)) as server:
        wiki = service.registry.add("far", server.url(), {})
        farm = open_farm(settings, (), service=service)
        farm.keeper.start()
        farm.keeper.wake(wiki.id)
        assert arrived.wait(10)
        assert farm.keeper.stop(5)
        release.set()


@pytest.mark.real_model
def test_the_command_line_adds_syncs_and_searches_a_url_and_shows_no_password(
    repository: Repository,
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository.commit({"ops/backup.md": "# Backups\n\nCopies of every disk are taken at midnight."})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wikiholt.toml").write_text('[remote]\nschemes = ["http"]\nallow_private = true\n')
    url = server.url("wiki/.git").replace("://", f"://bob:{SECRET}@")

    def run(*arguments: str) -> int:
        return main(["--data", str(tmp_path / "data"), *arguments])

    assert run("add", "far", url) == 0
    assert run("sync", "far") == 0
    assert run("search", "far", "saving data at night") == 0
    assert "ops/backup" in capsys.readouterr().out
    assert run("add", "gone", url.replace("wiki", "absent")) == 6
    assert run("add", "bad", url.replace("http:", "ftp:")) == 2
    for command in (["list"], ["list", "--json"], ["status"], ["status", "far", "--json"], ["remove", "far"]):
        assert run(*command) == 0
    seen = capsys.readouterr()
    assert "***@127.0.0.1" in seen.out
    assert SECRET not in seen.out + seen.err + caplog.text
