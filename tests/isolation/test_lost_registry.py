"""A registry that is lost opens nothing: whatever happened to its file, whatever is left beside it, whoever asks.

A farm of private wikis is made once. For each combination of what is lost a copy of it is asked by every way in, wikis
are looked for by every way that registers them, and then it is asked again: nobody without a key reads a page.
"""

import itertools
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.git_repository import Repository
from wikiholt.app import bootstrap
from wikiholt.app.bootstrap import Application, build_service, open_application
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Conflict, IndexCorrupt, WikiholtError
from wikiholt.git.repository_discovery import find_repositories
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_discovery import WikiDiscovery
from wikiholt.scheduler.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder

CANARY = "heroncanary"
COMMAND = "wikiholt restore --registry"


@dataclass(frozen=True)
class Template:
    """A farm that is not used itself: its data, its repositories, registries of earlier moments, and a key."""

    data: Path
    roots: Path
    unkeyed: Path
    without_log: Path
    key: str


def _opened(data: Path, roots: Path, **settings: object) -> Application:
    chosen = load_settings(
        data, overrides={"limit.address_per_minute": 0, "backup.interval": 0.0, "sync.interval": 3600.0, **settings}
    )
    service = build_service(chosen, [roots])
    service.components = replace(service.components, embedder=FakeEmbedder, identity=None)
    return open_application(chosen, [roots], service=service)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    place = tmp_path_factory.mktemp("template")
    roots, data = place / "roots", place / "data"
    roots.mkdir()
    for name in ("alpha", "beta"):
        Repository(roots / name).commit({"Home.md": f"# Home\n\nThe {CANARY} stands by the pond."})
    farm = _opened(data, roots)
    registry = farm.service.registry
    for name in ("alpha", "beta"):
        farm.service.add(name, str(roots / name), {"public": "false"})
        farm.service.get_handle(name).sync()
        farm.service.get_handle(name).backups.create()
    registry.backups.create()
    registry.close()
    unkeyed = shutil.copy(data / "registry.sqlite", place / "unkeyed.sqlite")
    with closing(sqlite3.connect(data / "registry.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM wikis").fetchall()  # keeps what is written next in the log
        key = registry.keys.create(registry.get("alpha").id, Scope.READ)[1]
        without_log = shutil.copy(data / "registry.sqlite", place / "without-log.sqlite")
        assert (data / "registry.sqlite-wal").stat().st_size
    registry.backups.create()
    farm.service.close()
    assert not (data / "registry.sqlite-wal").exists()
    return Template(data, roots, Path(unkeyed), Path(without_log), key)


# ── what happens to the registry, and to what lies beside it ──


def missing(file: Path, _: Template) -> None:
    file.unlink()


def missing_with_its_seal(file: Path, _: Template) -> None:
    file.unlink()
    file.with_name("registry.sqlite-seal").unlink()


def empty(file: Path, _: Template) -> None:
    os.truncate(file, 0)


def zeroed(file: Path, _: Template) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def truncated(file: Path, _: Template) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garbage(file: Path, _: Template) -> None:
    file.write_bytes(b"nothing that could be a registry " * 500)


def a_directory(file: Path, _: Template) -> None:
    file.unlink()
    file.mkdir()


def an_older_copy(file: Path, template: Template) -> None:
    file.unlink()
    shutil.copy(template.unkeyed, file)


def an_older_copy_in_place(file: Path, template: Template) -> None:
    file.write_bytes(template.unkeyed.read_bytes())


def log_lost(file: Path, template: Template) -> None:
    file.unlink()
    shutil.copy(template.without_log, file)


def a_new_one(file: Path, _: Template) -> None:
    """As an earlier version, or another program, would have made it."""
    made = file.with_name("made") / "registry.sqlite"
    registry = bootstrap.Registry(made)
    registry.keys.create(None, Scope.ADMIN)
    registry.keys.revoke(registry.keys.list()[0].id)
    registry.close()
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("DELETE FROM marks")
        db.execute("UPDATE sealed SET digest = ?", ("0" * 32,))
    file.unlink()
    file.with_name("registry.sqlite-seal").unlink()
    shutil.copy(made, file)
    shutil.rmtree(made.parent)


LOSSES = (
    missing,
    missing_with_its_seal,
    empty,
    zeroed,
    truncated,
    garbage,
    a_directory,
    an_older_copy,
    an_older_copy_in_place,
    log_lost,
    a_new_one,
)
BACKUPS = ("good", "damaged", "missing")
KEPT = (True, False)


def _harm(data: Path, template: Template, loss: Callable[[Path, Template], None], backups: str) -> None:
    shelf = data / "backups" / "registry"
    if backups == "missing":
        shutil.rmtree(shelf)
    elif backups == "damaged":
        for file in shelf.glob("*.sqlite"):
            file.write_bytes(file.read_bytes()[:-4096] + bytes(4096))
    loss(data / "registry.sqlite", template)


def _without_indexes_or_backups(data: Path, *, indexes: bool, wiki_backups: bool) -> None:
    if not indexes:
        shutil.rmtree(data / "wikis")
    if not wiki_backups:
        for place in (data / "backups").iterdir():
            if place.name != "registry":
                shutil.rmtree(place)


# ── who asks ──


@contextmanager
def _serving(data: Path, template: Template, **settings: object) -> Iterator[Application]:
    farm = _opened(data, template.roots, **settings)
    try:
        yield farm
    finally:
        _CLIENTS.pop(id(farm), None)
        farm.service.close()


_CLIENTS: dict[int, TestClient] = {}


def _client(farm: Application) -> TestClient:
    """Somebody without a key on this machine; the application takes long to make, so it is made once."""
    if id(farm) not in _CLIENTS:
        app = create_app(farm)
        _CLIENTS[id(farm)] = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    return _CLIENTS[id(farm)]


def _opens_nothing(farm: Application) -> None:
    """Nobody without a key is told a word or a slug, by the API or by the protocol of agents."""
    client = _client(farm)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    asked = {"name": "search", "arguments": {"query": CANARY}}
    accepts = {"Accept": "application/json, text/event-stream"}
    answers = [
        client.get("/w/alpha/api/v1/search", params={"q": CANARY, "mode": "keyword"}),
        client.get("/w/alpha/api/v1/pages/Home"),
        client.get("/api/v1/wikis"),
        client.post("/w/alpha/mcp", json={**call, "params": asked}, headers=accepts),
    ]
    for answer in answers:
        nothing = answer.status_code in (401, 503) or answer.json() == {"wikis": [], "total": 0}
        assert (nothing, CANARY in answer.text, "alpha" in answer.text) == (True, False, False), answer.text


def _found(farm: Application, template: Template) -> None:
    """What `wikiholt serve ROOT` does again and again."""
    WikiDiscovery(farm.service, SchedulerState(), SchedulerConfig(), partial(find_repositories, template.roots)).scan()


def _taken_up_by_otterwiki(farm: Application, template: Template) -> None:
    WikiRegistrar(farm.service, None).get_or_register(WikiLocation(str((template.roots / "alpha").resolve())))


def _added(farm: Application, template: Template) -> None:
    farm.service.add("alpha", str(template.roots / "alpha"), {})


def _keyed(farm: Application, _: Template) -> None:
    farm.service.registry.keys.create(None, Scope.ADMIN)


def _refused(farm: Application, template: Template, act: Callable[[Application, Template], None]) -> None:
    """The act fails, and its error names the command that restores."""
    with pytest.raises(IndexCorrupt) as caught:
        act(farm, template)
    assert COMMAND in caught.value.hint


def _opens_with_the_old_key(farm: Application, template: Template) -> bool:
    answer = _client(farm).get("/w/alpha/api/v1/status", headers={"Authorization": f"Bearer {template.key}"})
    return answer.status_code == 200


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("backups", BACKUPS)
def test_a_registry_that_is_lost_opens_no_wiki_and_says_how_to_restore(
    tmp_path: Path,
    template: Template,
    loss: Callable[[Path, Template], None],
    backups: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number, (indexes, wiki_backups) in enumerate(itertools.product(KEPT, KEPT)):
        data = tmp_path / str(number)
        shutil.copytree(template.data, data)
        _without_indexes_or_backups(data, indexes=indexes, wiki_backups=wiki_backups)
        _harm(data, template, loss, backups)
        nothing_left = backups == "missing" and not indexes and not wiki_backups
        if nothing_left and loss in (missing_with_its_seal, a_new_one):
            continue  # there is nothing by which this could be told from a new directory
        with _serving(data, template) as farm:
            _opens_nothing(farm)
            for act in (_added, _taken_up_by_otterwiki, _keyed):
                _refused(farm, template, act)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                _found(farm, template)
            assert COMMAND in caplog.text
            _opens_nothing(farm)
        _recovers(data, template, backups)


def _recovers(data: Path, template: Template, backups: str) -> None:
    """By the commands that the errors name; afterwards wikis have keys again, and none is open without one."""
    with _serving(data, template, **{"serve.public": True}) as farm:
        registry = farm.service.registry.backups
        if backups == "good":
            with pytest.raises(Conflict, match="good backup"):
                registry.start_empty()
            registry.restore()
            assert _opens_with_the_old_key(farm, template)
        else:
            with pytest.raises(WikiholtError, match="no good backup") as caught:
                registry.restore()
            assert f"{COMMAND} --empty" in caught.value.hint
            registry.start_empty()
            _found(farm, template)
            assert [wiki.slug for wiki in farm.service.registry.list_wikis()] == ["alpha", "beta"]
            with pytest.raises(Conflict, match="not lost"):
                registry.start_empty()
        _opens_nothing(farm)
    with _serving(data, template) as again:
        _opens_nothing(again)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_service_that_runs_while_its_registry_is_lost_opens_nothing(
    tmp_path: Path, template: Template, loss: Callable[[Path, Template], None]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(template.data, data)
    with _serving(data, template) as farm:
        _opens_nothing(farm)
        assert _opens_with_the_old_key(farm, template)
        loss(data / "registry.sqlite", template)
        _opens_nothing(farm)
        _found(farm, template)
        for act in (_added, _taken_up_by_otterwiki):
            with pytest.raises(IndexCorrupt):
                act(farm, template)
        _opens_nothing(farm)
        farm.service.registry.backups.restore()
        _opens_nothing(farm)
        assert _opens_with_the_old_key(farm, template)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_every_command_ends_with_the_command_that_restores(
    tmp_path: Path,
    template: Template,
    loss: Callable[[Path, Template], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, alpha = tmp_path / "data", str(template.roots / "alpha")
    shutil.copytree(template.data, data)
    loss(data / "registry.sqlite", template)
    for arguments in (
        ["list"],
        ["status"],
        ["search", "alpha", CANARY, "--mode", "keyword"],
        ["add", "alpha", alpha],
        ["sync", "alpha"],
        ["sync"],
        ["key", "create", "--operator"],
        ["key", "list"],
        ["serve", str(template.roots), "--port", "0"],
        ["mcp", "alpha"],
    ):
        code = main(["--data", str(data), *arguments])
        said = capsys.readouterr()
        assert (code, CANARY in said.out) == (7, False), (arguments, said)
        assert COMMAND in said.err, (arguments, said.err)
    assert main(["--data", str(data), "restore", "--registry"]) == 0
    assert main(["--data", str(data), "list", "--json"]) == 0
    assert '"alpha"' in capsys.readouterr().out


def test_an_empty_registry_is_started_by_command_only_where_it_must_be(
    tmp_path: Path, template: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(template.data, data)
    empty_one = ["--data", str(data), "restore", "--registry", "--empty"]
    assert main(empty_one) == 4
    assert "not lost" in capsys.readouterr().err
    assert main(["--data", str(data), "restore", "--empty"]) == 2
    (data / "registry.sqlite").write_bytes(b"damaged")
    assert main(empty_one) == 4
    assert "good backup" in capsys.readouterr().err
    shutil.rmtree(data / "backups" / "registry")
    assert main([*empty_one, "--json"]) == 0
    aside = json.loads(capsys.readouterr().out)["aside"]
    assert (data / aside).read_bytes() == b"damaged"
    with _serving(data, template, **{"serve.public": True}) as farm:
        farm.service.add("alpha", str(template.roots / "alpha"), {})
        _opens_nothing(farm)
        farm.service.configure("alpha", {"public": "true"})
        assert _client(farm).get("/w/alpha/api/v1/pages").status_code != 401, "who says so makes it public"


def test_a_new_directory_is_no_lost_registry(tmp_path: Path, template: Template) -> None:
    with _serving(tmp_path / "data", template) as farm:
        assert farm.service.list_wikis() == []
        _found(farm, template)
        assert [wiki.slug for wiki in farm.service.list_wikis()] == ["alpha", "beta"]
        for slug in ("alpha", "beta"):
            farm.service.remove(slug)
        assert farm.service.list_wikis() == []
    (tmp_path / "data" / "registry.sqlite").unlink()
    with _serving(tmp_path / "data", template) as farm:
        assert farm.service.list_wikis() == [], "nothing was in it, and no key was ever made"
