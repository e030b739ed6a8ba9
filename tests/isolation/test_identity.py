"""Identity of wikis: a repository that was deleted and created again at the same path is a new wiki."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.isolation.backends import find_traces_on_disk
from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import Application, build_service, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidSource, RepositoryReplaced, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.git import repository_identity
from wikiholt.git.repository import find_repositories
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.search.request import SearchRequest
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_discovery import WikiDiscovery
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.access import RequestIdentity
from wikiholt.wikis.service import WikiService

OLD = "The combination of the old owner's safe is oldsecret."
NEW = "The new owner grows newflower in pots."


class Garden:
    """An application with one directory of wikis, and a wiki `garden` with keys, backups and a query log."""

    def __init__(self, directory: Path, store: dict[str, object]) -> None:
        self.directory = directory
        self.root = directory / "wikis"
        self.root.mkdir()
        self.settings = load_settings(
            directory / "data", overrides={"queries.log": True, "sync.interval": 3600, **store}
        )
        self.application = self.open()
        self.path = self.root / "garden"

    @property
    def service(self) -> WikiService:
        return self.application.service

    def open(self) -> Application:
        service = build_service(self.settings, [self.root])
        embedder = FakeEmbedder()
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return open_application(self.settings, [self.root], service=service)

    def reopen(self) -> None:
        self.service.close()
        self.application = self.open()

    def make_discovery(self) -> WikiDiscovery:
        return WikiDiscovery(self.service, SchedulerState(), SchedulerConfig(), lambda: find_repositories(self.root))

    def create_old_wiki(self, *options: str, add: bool = True) -> str:
        """Create a wiki with an index, a backup, a query log and a key. Returns the token."""
        Repository(self.path, *options).commit({"Safe.md": f"# Safe\n\n{OLD}\n"})
        if add:
            self.service.add("garden", str(self.path), {})
        else:
            self.make_discovery().scan()
        handle = self.service.get_handle("garden")
        handle.sync()
        handle.search(SearchRequest("oldsecret"), interface=SearchInterface.HTTP)
        handle.query_log.build_report()
        handle.backups.create()
        return self.service.registry.keys.create(handle.wiki.id, Scope.ADMIN, "old owner's")[1]

    def replace_repository(self) -> None:
        """Delete the repository and create one of another owner at the same path."""
        shutil.rmtree(self.path)
        Repository(self.path).commit({"Flowers.md": f"# Flowers\n\n{NEW}\n"})


@pytest.fixture(params=["files", "postgres"])
def garden(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Garden]:
    store = {"store": request.getfixturevalue("database")} if request.param == "postgres" else {}
    made = Garden(tmp_path, store)
    yield made
    made.service.close()


@pytest.fixture
def file_garden(tmp_path: Path) -> Iterator[Garden]:
    made = Garden(tmp_path, {})
    yield made
    made.service.close()


USES: dict[str, Callable[[WikiService], object]] = {
    "search": lambda service: service.get_handle("garden").search(SearchRequest("oldsecret")),
    "ask": lambda service: service.get_handle("garden").ask("oldsecret"),
    "similar": lambda service: service.get_handle("garden").find_similar("Safe"),
    "duplicates": lambda service: service.get_handle("garden").find_duplicates(),
    "list": lambda service: service.get_handle("garden").pages.list(),
    "read": lambda service: service.get_handle("garden").pages.read("Safe"),
    "backups": lambda service: service.get_handle("garden").backups.list(),
    "restore": lambda service: service.get_handle("garden").restore(),
    "queries": lambda service: service.get_handle("garden").query_log.build_report(),
    "status": lambda service: service.get_handle("garden").get_status(),
    "sync": lambda service: service.get_background_handle("garden").sync(),
    "other embedder": lambda service: service.open_with_embedder("garden", FakeEmbedder()),
}


@pytest.mark.parametrize("fresh", [True, False], ids=["in a new process", "in the same process"])
def test_nothing_of_a_deleted_wiki_is_available_to_the_new_owner_of_its_path(garden: Garden, fresh: bool) -> None:
    token = garden.create_old_wiki()
    garden.replace_repository()
    if fresh:
        garden.reopen()
    for name, use in USES.items():
        with pytest.raises(RepositoryReplaced) as caught:
            use(garden.service)
        assert "wikiholt remove garden" in caught.value.hint, name
    for named in ("garden", None):
        with pytest.raises(Unauthorized):
            garden.application.access.authorize(RequestIdentity(token, named), Scope.READ)


def test_after_the_old_wiki_is_removed_the_new_one_has_nothing_of_it(garden: Garden) -> None:
    token = garden.create_old_wiki()
    old = garden.service.registry.get("garden").id
    garden.replace_repository()
    assert [key.label for key in garden.service.remove("garden").keys] == ["old owner's"]
    new = garden.service.add("garden", str(garden.path), {})
    assert new.id != old
    handle = garden.service.get_handle("garden")
    assert handle.backups.list() == []
    handle.sync()
    assert [hit.path for hit in handle.search(SearchRequest("oldsecret newflower")).hits] == ["Flowers"]
    assert handle.query_log.build_report().queries == 0
    assert garden.service.registry.keys.list(new.id) == []
    with pytest.raises(Unauthorized):
        garden.application.access.authorize(RequestIdentity(token, "garden"), Scope.READ)
    assert find_traces_on_disk(garden.directory / "data", old) == []


def test_serve_adds_the_new_repository_as_a_new_wiki(file_garden: Garden, caplog: pytest.LogCaptureFixture) -> None:
    token = file_garden.create_old_wiki(add=False)
    old = file_garden.service.registry.get("garden")
    discovery = file_garden.make_discovery()
    discovery.scan()
    assert file_garden.service.registry.get("garden").id == old.id
    file_garden.replace_repository()
    with pytest.raises(RepositoryReplaced):
        file_garden.service.get_handle("garden")
    discovery.scan()
    new = file_garden.service.registry.get("garden")
    assert (new.id != old.id, new.settings) == (True, old.settings)
    assert "1 keys of the previous wiki were removed" in caplog.text
    assert file_garden.service.registry.keys.find_by_token(token) is None
    handle = file_garden.service.get_handle("garden")
    handle.sync()
    assert [page.path for page in handle.pages.list().pages] == ["Flowers"]
    assert handle.backups.list() == []
    discovery.scan()
    assert file_garden.service.registry.get("garden").id == new.id


def test_over_http_the_old_key_opens_nothing_and_no_response_has_an_old_page(file_garden: Garden) -> None:
    token = file_garden.create_old_wiki(add=False)
    operator = file_garden.service.registry.keys.create(None, Scope.ADMIN)[1]
    routes = ("search?q=oldsecret", "pages", "pages/Safe", "backups", "keys", "status", "changelog", "report")
    with TestClient(create_app(file_garden.application)) as client:

        def request(path: str, key: str, method: str = "GET", **more: object) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {key}"}
            answer = client.request(method, f"/w/garden/api/v1/{path}", headers=headers, **more)
            return answer.status_code, answer.text

        assert request("search?q=oldsecret", token)[0] == 200
        file_garden.replace_repository()
        for path in routes:
            status, text = request(path, token)
            assert (status, "old owner" in text or "oldsecret" in text.replace("q=oldsecret", "")) == (401, False), path
        assert request("pages/Mine", token, "PUT", json={"content": "defaced"})[0] == 401
        assert request("search?q=oldsecret", operator)[0] in (404, 503)
        file_garden.make_discovery().scan()
        assert request("search?q=oldsecret", token)[0] == 401
        assert "oldsecret" not in request("pages", operator)[1]


def test_forgetting_a_path_removes_its_wiki(file_garden: Garden) -> None:
    token = file_garden.create_old_wiki()
    old = file_garden.service.registry.get("garden").id
    shutil.rmtree(file_garden.path)
    assert [removed.wiki.slug for removed in file_garden.service.forget(str(file_garden.root / "gard"))] == []
    assert [removed.wiki.slug for removed in file_garden.service.forget(f"{file_garden.path}/")] == ["garden"]
    assert file_garden.service.forget("garden") == []
    for path in ("/", "//", ""):
        with pytest.raises(InvalidSource):
            file_garden.service.forget(path)
    with pytest.raises(WikiNotFound):
        file_garden.service.get_handle("garden")
    assert file_garden.service.registry.keys.find_by_token(token) is None
    assert find_traces_on_disk(file_garden.directory / "data", old) == []


def test_a_repository_created_again_after_its_wiki_was_removed_is_discovered(file_garden: Garden) -> None:
    file_garden.create_old_wiki(add=False)
    discovery = file_garden.make_discovery()
    discovery.scan()
    file_garden.service.remove("garden")
    discovery.scan()
    with pytest.raises(WikiNotFound):
        file_garden.service.get_handle("garden")  # the existing repository is not added again
    file_garden.replace_repository()
    discovery.scan()
    assert file_garden.service.get_handle("garden").wiki.slug == "garden"


def _replace_by_copy(garden: Garden, *command: str) -> None:
    copy = garden.directory / "copy"
    subprocess.run([*command, str(garden.path), str(copy)], check=True, capture_output=True)
    shutil.rmtree(garden.path)
    subprocess.run(["cp", "-a", str(copy), str(garden.path)], check=True)


@pytest.mark.parametrize("options", [(), ("--bare",)], ids=["work tree", "bare"])
def test_a_full_copy_restored_by_its_owner_is_the_same_wiki(file_garden: Garden, options: tuple[str, ...]) -> None:
    source = Repository(file_garden.directory / "origin")
    source.commit({"Safe.md": f"# Safe\n\n{OLD}\n"})
    subprocess.run(["git", "clone", "-q", *options, str(source.path), str(file_garden.path)], check=True)
    wiki = file_garden.service.add("garden", str(file_garden.path), {})
    file_garden.service.get_handle("garden").sync()
    _replace_by_copy(file_garden, "cp", "-a")
    file_garden.reopen()
    assert file_garden.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    # The recorded identity is updated, so the marker may be lost from now on.
    assert file_garden.service.registry.get("garden").repository != wiki.repository
    next(file_garden.path.rglob(f"wikiholt-{wiki.id}")).unlink()
    assert file_garden.service.get_handle("garden").wiki.id == wiki.id


def test_a_clone_at_the_same_path_is_another_wiki_unless_the_operator_rebinds_it(file_garden: Garden) -> None:
    token = file_garden.create_old_wiki()
    _replace_by_copy(file_garden, "git", "clone", "-q")
    with pytest.raises(RepositoryReplaced):
        file_garden.service.get_handle("garden")
    file_garden.make_discovery().scan()  # it was added by command, so nothing is removed
    with pytest.raises(Unauthorized):
        file_garden.application.access.authorize(RequestIdentity(token, "garden"), Scope.READ)
    file_garden.service.rebind("garden")
    assert file_garden.application.access.authorize(RequestIdentity(token, "garden"), Scope.READ).scope is Scope.ADMIN
    assert file_garden.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    assert len(file_garden.service.get_handle("garden").backups.list()) == 1


def test_a_repository_with_rewritten_history_stays_the_same_wiki(file_garden: Garden) -> None:
    file_garden.create_old_wiki()
    repository = Repository(file_garden.path)
    wiki = file_garden.service.registry.get("garden")
    repository.run_git("checkout", "--quiet", "--orphan", "other")
    repository.commit({"Other.md": "# Other\n"}, "Force-push")
    repository.run_git("branch", "--force", "main", "other")
    repository.run_git("gc", "--quiet", "--prune=now")
    assert file_garden.service.get_handle("garden").wiki == wiki
    # rsync --delete removes the marker; it is written again when the wiki is opened.
    marker = file_garden.path / ".git" / f"wikiholt-{wiki.id}"
    marker.unlink()
    assert file_garden.service.get_handle("garden").wiki == wiki
    file_garden.reopen()
    assert file_garden.service.get_handle("garden").wiki == wiki
    assert marker.is_file()
    file_garden.service.remove("garden")
    assert not marker.exists()


def test_a_repository_without_a_marker_is_identified_by_its_creation_time(
    file_garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_identity, "_write_marker", lambda *_: False)
    file_garden.create_old_wiki(add=False)
    wiki = file_garden.service.registry.get("garden")
    assert not list(file_garden.path.rglob("wikiholt-*"))
    assert file_garden.service.get_handle("garden").wiki == wiki
    _replace_by_copy(file_garden, "cp", "-a")  # may be the copy of another owner: the operator must decide
    file_garden.make_discovery().scan()
    with pytest.raises(RepositoryReplaced):
        file_garden.service.get_handle("garden")
    assert file_garden.service.registry.get("garden").id == wiki.id
    file_garden.replace_repository()  # a different history: certainly another repository
    file_garden.make_discovery().scan()
    assert file_garden.service.get_handle("garden").wiki.id != wiki.id


def test_without_creation_times_the_marker_identifies_the_repository(
    file_garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_identity, "get_creation_stamp", lambda _: "")
    file_garden.create_old_wiki()
    assert file_garden.service.get_handle("garden").wiki.repository == repository_identity.MARKED_WORD
    file_garden.replace_repository()
    with pytest.raises(RepositoryReplaced):
        file_garden.service.get_handle("garden")


def test_two_wikis_of_one_repository_and_its_work_trees_are_distinguished(file_garden: Garden) -> None:
    file_garden.create_old_wiki()
    file_garden.service.add("again", str(file_garden.path), {})
    tree = file_garden.directory / "tree"
    Repository(file_garden.path).run_git("worktree", "add", "--quiet", str(tree), "-b", "side")
    file_garden.service.add("tree", str(tree), {})
    for slug in ("garden", "again", "tree"):
        assert file_garden.service.get_handle(slug).wiki.slug == slug
    file_garden.service.remove("again")
    assert file_garden.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    file_garden.replace_repository()
    for slug in ("garden", "tree"):
        with pytest.raises(WikiholtError):
            file_garden.service.get_handle(slug).pages.read("Safe")


def test_a_marker_is_never_written_outside_the_repository(file_garden: Garden) -> None:
    """The owner of a repository may replace parts of it with symbolic links."""
    outside = file_garden.directory / "outside"
    Repository(outside)
    file_garden.path.mkdir()
    (file_garden.path / ".git").symlink_to(outside / ".git")
    before = sorted((outside / ".git").iterdir())
    wiki = file_garden.service.registry.add("garden", str(file_garden.path), {})
    assert sorted((outside / ".git").iterdir()) == before
    (file_garden.path / ".git").unlink()
    Repository(file_garden.path)
    (file_garden.path / ".git" / f"wikiholt-{wiki.id}").symlink_to(file_garden.directory / "victim")
    assert not repository_identity._write_marker(str(file_garden.path), f"{file_garden.path}/.git", wiki.id)
    assert not (file_garden.directory / "victim").exists()


def test_a_wiki_whose_repository_is_unavailable_stays_searchable(file_garden: Garden) -> None:
    file_garden.create_old_wiki()
    file_garden.path.rename(file_garden.directory / "unmounted")
    assert file_garden.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    (file_garden.directory / "unmounted").rename(file_garden.path)
    assert file_garden.service.get_handle("garden").search(SearchRequest("oldsecret")).hits


def test_the_command_line_reports_a_replaced_wiki_and_continues(
    file_garden: Garden, capsys: pytest.CaptureFixture[str]
) -> None:
    file_garden.create_old_wiki()
    Repository(file_garden.directory / "other").commit({"Other.md": "# Other\n"})
    file_garden.service.add("other", str(file_garden.directory / "other"), {})
    _replace_by_copy(file_garden, "git", "clone", "-q")
    file_garden.service.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--data", str(file_garden.directory / "data"), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    for command in (("status",), ("restore", "--list")):
        code, out, err = run(*command)
        assert ("other" in out, "Safe" in out) == (True, False), command
        assert "error: garden: The path of this wiki has another repository" in err, command
        assert code == (6 if command == ("status",) else 0)
    for command in (("status", "garden"), ("key", "create", "garden"), ("report", "garden"), ("backup", "garden")):
        code, out, err = run(*command)
        assert (code, out) == (6, ""), command
        assert "hint: " in err
        assert f"wikiholt --data {file_garden.directory / 'data'} rebind garden" in err
    code, out, _ = run("rebind", "garden")
    assert (code, "keys and backups are kept" in out) == (0, True)
    assert run("status", "garden")[0] == 0
    assert run("rebind", "nowhere")[0] == 3
    shutil.rmtree(file_garden.path)
    assert run("rebind", "garden")[0] == 6
    assert run("remove", "garden", "--yes")[0] == 0
