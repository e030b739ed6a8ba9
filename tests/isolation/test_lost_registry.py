"""A lost registry opens no wiki, however it was lost and whatever other files are left.

An application with private wikis is created once. For each combination of losses, a copy of it gets requests without a
key, then wikis are registered in every possible way, and the requests are repeated: none of them may read a page.
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
from tests.support.tiers import IS_FULL
from wikiholt.api import bootstrap
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import Conflict, IndexCorrupt, WikiholtError
from wikiholt.git.repository import find_repositories
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_discovery import WikiDiscovery
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder

CANARY = "heroncanary"
COMMAND = "wikiholt restore --registry"


@dataclass(frozen=True)
class Template:
    """An application that is only copied: its data, its repositories, earlier states of the registry, and a key."""

    data: Path
    roots: Path
    without_keys: Path
    key: str


def _open_application(data: Path, roots: Path, **settings: object) -> Application:
    chosen = load_settings(
        data, overrides={"limit.address_per_minute": 0, "backup.interval": 0.0, "sync.interval": 3600.0, **settings}
    )
    service = build_service(chosen, [roots])
    service.components = replace(service.components, embedder=FakeEmbedder, identity=None)
    return open_application(chosen, [roots], service=service)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    parent = tmp_path_factory.mktemp("template")
    roots, data = parent / "roots", parent / "data"
    roots.mkdir()
    for name in ("alpha", "beta"):
        Repository(roots / name).commit({"Home.md": f"# Home\n\nThe {CANARY} stands by the pond."})
    application = _open_application(data, roots)
    registry = application.service.registry
    for name in ("alpha", "beta"):
        application.service.add(name, str(roots / name), {"public": "false"})
        application.service.get_handle(name).sync()
        application.service.get_handle(name).backups.create()
    registry.backups.create()
    registry.close()
    without_keys = shutil.copy(data / "registry.sqlite", parent / "without-keys.sqlite")
    key = registry.keys.create(registry.get("alpha").id, Scope.READ)[1]
    registry.backups.create()
    application.service.close()
    return Template(data, roots, Path(without_keys), key)


# ── damage to the registry and to other files ──


def missing(file: Path, _: Template) -> None:
    file.unlink()


def missing_with_its_list(file: Path, _: Template) -> None:
    for lost in (file, *file.parent.rglob("revoked")):
        lost.unlink()


def without_its_list(file: Path, _: Template) -> None:
    for lost in file.parent.rglob("revoked"):
        lost.unlink()


def damaged_list(file: Path, _: Template) -> None:
    for damaged in file.parent.rglob("revoked"):
        damaged.write_bytes(damaged.read_bytes().replace(b"fact", b"face"))


def empty(file: Path, _: Template) -> None:
    os.truncate(file, 0)


def zeroed(file: Path, _: Template) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def truncated(file: Path, _: Template) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garbage(file: Path, _: Template) -> None:
    file.write_bytes(b"nothing that could be a registry " * 500)


def directory(file: Path, _: Template) -> None:
    file.unlink()
    file.mkdir()


def older_copy(file: Path, template: Template) -> None:
    file.unlink()
    shutil.copy(template.without_keys, file)


def older_content(file: Path, template: Template) -> None:
    file.write_bytes(template.without_keys.read_bytes())


def new_registry(file: Path, template: Template) -> None:
    """A new registry, as an earlier version or another program would create it."""
    made = file.with_name("made") / "registry.sqlite"
    registry = bootstrap.Registry(made)
    registry.keys.create(None, Scope.ADMIN)
    registry.keys.revoke(registry.keys.list()[0].id)
    registry.close()
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("DELETE FROM revoked")
    missing_with_its_list(file, template)
    shutil.copy(made, file)
    shutil.rmtree(made.parent)


LOSSES = (
    missing,
    missing_with_its_list,
    without_its_list,
    damaged_list,
    empty,
    zeroed,
    truncated,
    garbage,
    directory,
    older_copy,
    older_content,
    new_registry,
)
LOSSES_OF_THE_LIST = (missing_with_its_list, without_its_list, damaged_list, new_registry)
"""After these it is unknown which keys were revoked, so no key is restored."""
BACKUPS = ("good", "damaged", "missing")
PRESENT = (True, False)


def _damage(data: Path, template: Template, loss: Callable[[Path, Template], None], backups: str) -> None:
    registry_backups = data / "backups" / "registry"
    if backups == "missing":
        shutil.rmtree(registry_backups)
    elif backups == "damaged":
        for file in registry_backups.glob("*.sqlite"):
            file.write_bytes(file.read_bytes()[:-4096] + bytes(4096))
    loss(data / "registry.sqlite", template)


def _remove_indexes_or_backups(data: Path, *, indexes: bool, wiki_backups: bool) -> None:
    if not indexes:
        shutil.rmtree(data / "wikis")
    if not wiki_backups:
        for folder in (data / "backups").iterdir():
            if folder.name != "registry":
                shutil.rmtree(folder)


# ── requests ──


@contextmanager
def _run_application(data: Path, template: Template, **settings: object) -> Iterator[Application]:
    application = _open_application(data, template.roots, **settings)
    try:
        yield application
    finally:
        _CLIENTS.pop(id(application), None)
        application.service.close()


_CLIENTS: dict[int, TestClient] = {}


def _get_client(application: Application) -> TestClient:
    """A client without a key. The application is slow to create, so it is created once."""
    if id(application) not in _CLIENTS:
        app = create_app(application)
        _CLIENTS[id(application)] = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    return _CLIENTS[id(application)]


def _assert_nothing_is_readable(application: Application) -> None:
    """Without a key, neither the API nor MCP returns content or a slug."""
    client = _get_client(application)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    search = {"name": "search", "arguments": {"query": CANARY}}
    accepts = {"Accept": "application/json, text/event-stream"}
    answers = [
        client.get("/w/alpha/api/v1/search", params={"q": CANARY, "mode": "keyword"}),
        client.get("/w/alpha/api/v1/pages/Home"),
        client.get("/api/v1/wikis"),
        client.post("/w/alpha/mcp", json={**call, "params": search}, headers=accepts),
    ]
    for answer in answers:
        nothing = answer.status_code in (401, 503) or answer.json() == {"wikis": [], "total": 0}
        assert (nothing, CANARY in answer.text, "alpha" in answer.text) == (True, False, False), answer.text


def _discover_wikis(application: Application, template: Template) -> None:
    """Scan for repositories, as `wikiholt serve ROOT` does periodically."""
    WikiDiscovery(
        application.service, SchedulerState(), SchedulerConfig(), partial(find_repositories, template.roots)
    ).scan()


def _register_from_otterwiki(application: Application, template: Template) -> None:
    WikiRegistrar(application.service).get_or_register(WikiLocation(str((template.roots / "alpha").resolve())))


def _add_wiki(application: Application, template: Template) -> None:
    application.service.add("alpha", str(template.roots / "alpha"), {})


def _create_key(application: Application, _: Template) -> None:
    application.service.registry.keys.create(None, Scope.ADMIN)


def _assert_refused(
    application: Application, template: Template, action: Callable[[Application, Template], None]
) -> None:
    """The action fails, and its error names the restore command."""
    with pytest.raises(IndexCorrupt) as caught:
        action(application, template)
    assert COMMAND in caught.value.hint


def _is_readable_with_the_old_key(application: Application, template: Template) -> bool:
    answer = _get_client(application).get("/w/alpha/api/v1/status", headers={"Authorization": f"Bearer {template.key}"})
    return answer.status_code == 200


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("backups", BACKUPS)
def test_a_lost_registry_opens_no_wiki_and_names_the_restore_command(
    tmp_path: Path,
    template: Template,
    loss: Callable[[Path, Template], None],
    backups: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cases = list(itertools.product(PRESENT, PRESENT))
    if not IS_FULL:  # one of the four, and the others with the next losses
        cases = cases[(LOSSES.index(loss) + BACKUPS.index(backups)) % 4 :][:1]
    for number, (indexes, wiki_backups) in enumerate(cases):
        data = tmp_path / str(number)
        shutil.copytree(template.data, data)
        _remove_indexes_or_backups(data, indexes=indexes, wiki_backups=wiki_backups)
        _damage(data, template, loss, backups)
        nothing_left = backups == "missing" and not indexes and not wiki_backups
        if nothing_left and loss in (missing_with_its_list, new_registry):
            continue  # this cannot be distinguished from a new directory
        with _run_application(data, template) as application:
            _assert_nothing_is_readable(application)
            if backups == "missing" and loss in (older_copy, older_content):
                # Accepted as the registry, but the list of revoked keys says that there was a key.
                _discover_wikis(application, template)
                _assert_nothing_is_readable(application)
                continue
            for action in (_add_wiki, _register_from_otterwiki, _create_key):
                _assert_refused(application, template, action)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                _discover_wikis(application, template)
            assert COMMAND in caplog.text
            _assert_nothing_is_readable(application)
        _assert_recovers(data, template, backups, restores_keys=loss not in LOSSES_OF_THE_LIST)


def _assert_recovers(data: Path, template: Template, backups: str, *, restores_keys: bool) -> None:
    """Recover with the commands that the errors name. Afterwards no wiki is readable without a key."""
    with _run_application(data, template, **{"serve.public": True}) as application:
        registry = application.service.registry.backups
        if backups == "good":
            with pytest.raises(Conflict, match="good backup"):
                registry.start_empty()
            registry.restore()
            assert _is_readable_with_the_old_key(application, template) == restores_keys
        else:
            with pytest.raises(WikiholtError, match="no good backup") as caught:
                registry.restore()
            assert f"{COMMAND} --empty" in caught.value.hint
            registry.start_empty()
            _discover_wikis(application, template)
            assert [wiki.slug for wiki in application.service.registry.list_wikis()] == ["alpha", "beta"]
            with pytest.raises(Conflict, match="not lost"):
                registry.start_empty()
        _assert_nothing_is_readable(application)
    with _run_application(data, template) as again:
        _assert_nothing_is_readable(again)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_running_service_whose_registry_is_lost_opens_nothing(
    tmp_path: Path, template: Template, loss: Callable[[Path, Template], None]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(template.data, data)
    with _run_application(data, template) as application:
        _assert_nothing_is_readable(application)
        assert _is_readable_with_the_old_key(application, template)
        loss(data / "registry.sqlite", template)
        _assert_nothing_is_readable(application)
        _discover_wikis(application, template)
        for action in (_add_wiki, _register_from_otterwiki):
            with pytest.raises(IndexCorrupt):
                action(application, template)
        _assert_nothing_is_readable(application)
        application.service.registry.backups.restore()
        _assert_nothing_is_readable(application)
        assert _is_readable_with_the_old_key(application, template) == (loss not in LOSSES_OF_THE_LIST)


@pytest.mark.parametrize("loss", [missing, garbage, older_copy], ids=lambda loss: loss.__name__)
def test_every_command_prints_the_restore_command(
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
        ["search", "-w", "alpha", CANARY, "--mode", "keyword"],
        ["add", "alpha", alpha],
        ["sync", "alpha"],
        ["sync"],
        ["key", "create", "--operator"],
        ["key", "list"],
        ["serve", str(template.roots), "--port", "0"],
        ["mcp", "alpha"],
    ):
        code = main(["--data", str(data), *arguments])
        captured = capsys.readouterr()
        assert (code, CANARY in captured.out) == (7, False), (arguments, captured)
        assert f"wikiholt --data {data} restore --registry" in captured.err, (arguments, captured.err)
    assert main(["--data", str(data), "restore", "--registry"]) == 0
    assert main(["--data", str(data), "list", "--json"]) == 0
    assert '"alpha"' in capsys.readouterr().out


def test_an_empty_registry_is_created_by_command_only_if_necessary(
    tmp_path: Path, template: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(template.data, data)
    command = ["--data", str(data), "restore", "--registry", "--empty"]
    assert main(command) == 4
    assert "not lost" in capsys.readouterr().err
    assert main(["--data", str(data), "restore", "--empty"]) == 2
    (data / "registry.sqlite").write_bytes(b"damaged")
    assert main(command) == 4
    assert "good backup" in capsys.readouterr().err
    shutil.rmtree(data / "backups" / "registry")
    assert main([*command, "--json"]) == 0
    aside = json.loads(capsys.readouterr().out)["quarantined_as"]
    assert (data / aside).read_bytes() == b"damaged"
    with _run_application(data, template, **{"serve.public": True}) as application:
        application.service.add("alpha", str(template.roots / "alpha"), {})
        _assert_nothing_is_readable(application)
        application.service.configure("alpha", {"public": "true"})
        assert _get_client(application).get("/w/alpha/api/v1/pages").status_code != 401, (
            "an explicit setting makes it public"
        )


def test_a_new_directory_is_not_a_lost_registry(tmp_path: Path, template: Template) -> None:
    with _run_application(tmp_path / "data", template) as application:
        assert application.service.list_wikis() == []
        _discover_wikis(application, template)
        assert [wiki.slug for wiki in application.service.list_wikis()] == ["alpha", "beta"]
        for slug in ("alpha", "beta"):
            application.service.remove(slug)
        assert application.service.list_wikis() == []
    (tmp_path / "data" / "registry.sqlite").unlink()
    with _run_application(tmp_path / "data", template) as application:
        assert application.service.list_wikis() == [], "it was empty, and no key was ever created"
