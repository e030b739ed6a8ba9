"""The isolation gate for identity: a wiki that was deleted and created again at the same path is a new wiki."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.isolation.backends import find_traces_on_disk
from tests.support.git_repository import Repository
from wikiholt.app.bootstrap import Application, build_service, open_application
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidSource, RepositoryReplaced, Unauthorized, WikiholtError, WikiNotFound
from wikiholt.git import repository_identity
from wikiholt.git.repository_discovery import find_repositories
from wikiholt.interfaces.cli.main import main
from wikiholt.interfaces.http.app import create_app
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_discovery import WikiDiscovery
from wikiholt.scheduler.wiki_records import SchedulerConfig
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.access import RequestIdentity
from wikiholt.wikis.service import WikiService

OLD = "The combination of the old owner's safe is oldsecret."
NEW = "The new owner grows newflower in pots."


class Ground:
    """A farm of one directory of wikis, `wikis`, with keys, backups and query logs."""

    def __init__(self, place: Path, store: dict[str, object]) -> None:
        self.place = place
        self.root = place / "wikis"
        self.root.mkdir()
        self.settings = load_settings(place / "data", overrides={"queries.log": True, "sync.interval": 3600, **store})
        self.farm = self.open()
        self.path = self.root / "garden"

    @property
    def service(self) -> WikiService:
        return self.farm.service

    def open(self) -> Application:
        service = build_service(self.settings, [self.root])
        embedder = FakeEmbedder()
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return open_application(self.settings, [self.root], service=service)

    def reopen(self) -> None:
        self.service.close()
        self.farm = self.open()

    def roots(self) -> WikiDiscovery:
        return WikiDiscovery(self.service, SchedulerState(), SchedulerConfig(), lambda: find_repositories(self.root))

    def old_owner(self, *options: str, add: bool = True) -> str:
        """A wiki with an index, a backup, a query log and a key, which is returned."""
        Repository(self.path, *options).commit({"Safe.md": f"# Safe\n\n{OLD}\n"})
        if add:
            self.service.add("garden", str(self.path), {})
        else:
            self.roots().scan()
        handle = self.service.get_handle("garden")
        handle.sync()
        handle.search(SearchRequest("oldsecret"), interface=SearchInterface.HTTP)
        handle.query_log.build_report()
        handle.backups.create()
        return self.service.registry.keys.create(handle.wiki.id, Scope.ADMIN, "old owner's")[1]

    def new_owner(self) -> None:
        """The wiki's directory is removed and another owner's repository made in its place."""
        shutil.rmtree(self.path)
        Repository(self.path).commit({"Flowers.md": f"# Flowers\n\n{NEW}\n"})


@pytest.fixture(params=["files", "postgres"])
def ground(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    store = {"store": request.getfixturevalue("database")} if request.param == "postgres" else {}
    made = Ground(tmp_path, store)
    yield made
    made.service.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path, {})
    yield made
    made.service.close()


USES: dict[str, Callable[[WikiService], object]] = {
    "search": lambda service: service.get_handle("garden").search(SearchRequest("oldsecret")),
    "similar": lambda service: service.get_handle("garden").find_similar("Safe"),
    "list": lambda service: service.get_handle("garden").pages.list(),
    "read": lambda service: service.get_handle("garden").pages.read("Safe"),
    "backups": lambda service: service.get_handle("garden").backups.list(),
    "restore": lambda service: service.get_handle("garden").restore(),
    "queries": lambda service: service.get_handle("garden").query_log.build_report(),
    "status": lambda service: service.get_handle("garden").get_status(),
    "sync": lambda service: service.get_background_handle("garden").sync(),
    "lent": lambda service: service.open_with_embedder("garden", FakeEmbedder()),
}


@pytest.mark.parametrize("fresh", [True, False], ids=["in a new process", "in the process that has it open"])
def test_nothing_of_a_deleted_wiki_is_there_for_who_has_its_path_now(ground: Ground, fresh: bool) -> None:
    token = ground.old_owner()
    ground.new_owner()
    if fresh:
        ground.reopen()
    for name, use in USES.items():
        with pytest.raises(RepositoryReplaced) as caught:
            use(ground.service)
        assert "wikiholt remove garden" in caught.value.hint, name
    for named in ("garden", None):
        with pytest.raises(Unauthorized):
            ground.farm.access.authorize(RequestIdentity(token, named), Scope.READ)


def test_once_the_old_wiki_is_removed_the_new_one_has_nothing_of_it(ground: Ground) -> None:
    token = ground.old_owner()
    old = ground.service.registry.get("garden").id
    ground.new_owner()
    assert [key.label for key in ground.service.remove("garden").keys] == ["old owner's"]
    new = ground.service.add("garden", str(ground.path), {})
    assert new.id != old
    handle = ground.service.get_handle("garden")
    assert handle.backups.list() == []
    handle.sync()
    assert [hit.path for hit in handle.search(SearchRequest("oldsecret newflower")).hits] == ["Flowers"]
    assert handle.query_log.build_report().queries == 0
    assert ground.service.registry.keys.list(new.id) == []
    with pytest.raises(Unauthorized):
        ground.farm.access.authorize(RequestIdentity(token, "garden"), Scope.READ)
    assert find_traces_on_disk(ground.place / "data", old) == []


def test_serve_takes_the_new_repository_for_a_new_wiki_by_itself(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    token = ground.old_owner(add=False)
    old = ground.service.registry.get("garden")
    roots = ground.roots()
    roots.scan()
    assert ground.service.registry.get("garden").id == old.id
    ground.new_owner()
    with pytest.raises(RepositoryReplaced):
        ground.service.get_handle("garden")
    roots.scan()
    new = ground.service.registry.get("garden")
    assert (new.id != old.id, new.settings) == (True, old.settings)
    assert "1 keys of the previous wiki were removed" in caplog.text
    assert ground.service.registry.keys.find_by_token(token) is None
    handle = ground.service.get_handle("garden")
    handle.sync()
    assert [page.path for page in handle.pages.list().pages] == ["Flowers"]
    assert handle.backups.list() == []
    roots.scan()
    assert ground.service.registry.get("garden").id == new.id


def test_over_http_the_old_key_opens_nothing_and_the_first_answer_has_no_old_page(ground: Ground) -> None:
    token = ground.old_owner(add=False)
    operator = ground.service.registry.keys.create(None, Scope.ADMIN)[1]
    routes = ("search?q=oldsecret", "pages", "pages/Safe", "backups", "keys", "status", "changelog", "report")
    with TestClient(create_app(ground.farm)) as client:

        def ask(path: str, key: str, method: str = "GET", **more: object) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {key}"}
            answer = client.request(method, f"/w/garden/api/v1/{path}", headers=headers, **more)
            return answer.status_code, answer.text

        assert ask("search?q=oldsecret", token)[0] == 200
        ground.new_owner()
        for path in routes:
            status, text = ask(path, token)
            assert (status, "old owner" in text or "oldsecret" in text.replace("q=oldsecret", "")) == (401, False), path
        assert ask("pages/Mine", token, "PUT", json={"content": "defaced"})[0] == 401
        assert ask("search?q=oldsecret", operator)[0] in (404, 503)
        ground.roots().scan()
        assert ask("search?q=oldsecret", token)[0] == 401
        assert "oldsecret" not in ask("pages", operator)[1]


def test_a_farm_says_that_a_wiki_is_gone(ground: Ground) -> None:
    token = ground.old_owner()
    old = ground.service.registry.get("garden").id
    shutil.rmtree(ground.path)
    assert [gone.wiki.slug for gone in ground.service.forget(str(ground.root / "gard"))] == []
    assert [gone.wiki.slug for gone in ground.service.forget(f"{ground.path}/")] == ["garden"]
    assert ground.service.forget("garden") == []
    for odd in ("/", "//", ""):
        with pytest.raises(InvalidSource):
            ground.service.forget(odd)
    with pytest.raises(WikiNotFound):
        ground.service.get_handle("garden")
    assert ground.service.registry.keys.find_by_token(token) is None
    assert find_traces_on_disk(ground.place / "data", old) == []


def test_a_repository_made_again_after_its_wiki_was_forgotten_is_found(ground: Ground) -> None:
    ground.old_owner(add=False)
    roots = ground.roots()
    roots.scan()
    ground.service.remove("garden")
    roots.scan()
    with pytest.raises(WikiNotFound):
        ground.service.get_handle("garden")  # the repository that is still there is not taken up again
    ground.new_owner()
    roots.scan()
    assert ground.service.get_handle("garden").wiki.slug == "garden"


def _copied(ground: Ground, *command: str) -> None:
    aside = ground.place / "aside"
    subprocess.run([*command, str(ground.path), str(aside)], check=True, capture_output=True)
    shutil.rmtree(ground.path)
    subprocess.run(["cp", "-a", str(aside), str(ground.path)], check=True)


@pytest.mark.parametrize("options", [(), ("--bare",)], ids=["work tree", "bare"])
def test_a_full_copy_that_its_owner_restores_is_the_same_wiki(files: Ground, options: tuple[str, ...]) -> None:
    source = Repository(files.place / "origin")
    source.commit({"Safe.md": f"# Safe\n\n{OLD}\n"})
    subprocess.run(["git", "clone", "-q", *options, str(source.path), str(files.path)], check=True)
    wiki = files.service.add("garden", str(files.path), {})
    files.service.get_handle("garden").sync()
    _copied(files, "cp", "-a")
    files.reopen()
    assert files.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    # What is recorded follows, so that the marker may be lost from now on.
    assert files.service.registry.get("garden").repository != wiki.repository
    next(files.path.rglob(f"wikiholt-{wiki.id}")).unlink()
    assert files.service.get_handle("garden").wiki.id == wiki.id


def test_a_clone_in_its_place_is_another_wiki_unless_the_operator_says_so(files: Ground) -> None:
    token = files.old_owner()
    _copied(files, "git", "clone", "-q")
    with pytest.raises(RepositoryReplaced):
        files.service.get_handle("garden")
    files.roots().scan()  # it was added by hand: nothing is removed
    with pytest.raises(Unauthorized):
        files.farm.access.authorize(RequestIdentity(token, "garden"), Scope.READ)
    files.service.rebind("garden")
    assert files.farm.access.authorize(RequestIdentity(token, "garden"), Scope.READ).scope is Scope.ADMIN
    assert files.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    assert len(files.service.get_handle("garden").backups.list()) == 1


def test_a_repository_that_only_changes_stays_the_same_wiki(files: Ground) -> None:
    files.old_owner()
    repository = Repository(files.path)
    wiki = files.service.registry.get("garden")
    repository.run_git("checkout", "--quiet", "--orphan", "other")
    repository.commit({"Other.md": "# Other\n"}, "Pushed with force")
    repository.run_git("branch", "--force", "main", "other")
    repository.run_git("gc", "--quiet", "--prune=now")
    assert files.service.get_handle("garden").wiki == wiki
    # rsync --delete from where there is no marker; it is written again by whoever opens the wiki first.
    marker = files.path / ".git" / f"wikiholt-{wiki.id}"
    marker.unlink()
    assert files.service.get_handle("garden").wiki == wiki
    files.reopen()
    assert files.service.get_handle("garden").wiki == wiki
    assert marker.is_file()
    files.service.remove("garden")
    assert not marker.exists()


def test_a_repository_that_cannot_be_marked_is_known_by_its_creation(
    files: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_identity, "_write_marker", lambda *_: False)
    files.old_owner(add=False)
    wiki = files.service.registry.get("garden")
    assert not list(files.path.rglob("wikiholt-*"))
    assert files.service.get_handle("garden").wiki == wiki
    _copied(files, "cp", "-a")  # may be a stranger's copy as well: the operator is asked
    files.roots().scan()
    with pytest.raises(RepositoryReplaced):
        files.service.get_handle("garden")
    assert files.service.registry.get("garden").id == wiki.id
    files.new_owner()  # no history of its own: surely another
    files.roots().scan()
    assert files.service.get_handle("garden").wiki.id != wiki.id


def test_a_file_system_that_knows_no_creation_is_served_by_the_marker(
    files: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_identity, "_get_creation", lambda _: "")
    files.old_owner()
    assert files.service.get_handle("garden").wiki.repository == repository_identity.MARKED_WORD
    files.new_owner()
    with pytest.raises(RepositoryReplaced):
        files.service.get_handle("garden")


def test_two_wikis_of_one_repository_and_its_work_trees_are_told_apart(files: Ground) -> None:
    files.old_owner()
    files.service.add("again", str(files.path), {})
    tree = files.place / "tree"
    Repository(files.path).run_git("worktree", "add", "--quiet", str(tree), "-b", "side")
    files.service.add("tree", str(tree), {})
    for slug in ("garden", "again", "tree"):
        assert files.service.get_handle(slug).wiki.slug == slug
    files.service.remove("again")
    assert files.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    files.new_owner()
    for slug in ("garden", "tree"):
        with pytest.raises(WikiholtError):
            files.service.get_handle(slug).pages.read("Safe")


def test_a_marker_is_written_nowhere_else(files: Ground) -> None:
    """Whoever owns a repository may make links of its parts."""
    outside = files.place / "outside"
    Repository(outside)
    files.path.mkdir()
    (files.path / ".git").symlink_to(outside / ".git")
    before = sorted((outside / ".git").iterdir())
    wiki = files.service.registry.add("garden", str(files.path), {})
    assert sorted((outside / ".git").iterdir()) == before
    (files.path / ".git").unlink()
    Repository(files.path)
    (files.path / ".git" / f"wikiholt-{wiki.id}").symlink_to(files.place / "victim")
    assert not repository_identity._write_marker(str(files.path), f"{files.path}/.git", wiki.id)
    assert not (files.place / "victim").exists()


def test_a_wiki_whose_repository_is_away_goes_on_answering(files: Ground) -> None:
    files.old_owner()
    files.path.rename(files.place / "unmounted")
    assert files.service.get_handle("garden").search(SearchRequest("oldsecret")).hits
    (files.place / "unmounted").rename(files.path)
    assert files.service.get_handle("garden").search(SearchRequest("oldsecret")).hits


def test_the_command_line_names_a_replaced_wiki_and_goes_on(files: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    files.old_owner()
    Repository(files.place / "other").commit({"Other.md": "# Other\n"})
    files.service.add("other", str(files.place / "other"), {})
    _copied(files, "git", "clone", "-q")
    files.service.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--data", str(files.place / "data"), *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    for command in (("status",), ("restore", "--list")):
        code, out, err = run(*command)
        assert ("other" in out, "Safe" in out) == (True, False), command
        assert "error: garden: The path of this wiki has another repository" in err, command
        assert code == (6 if command == ("status",) else 0)
    for command in (("status", "garden"), ("key", "create", "garden"), ("report", "garden"), ("backup", "garden")):
        code, out, err = run(*command)
        assert (code, out) == (6, ""), command
        assert "hint: " in err
        assert "wikiholt rebind garden" in err
    code, out, _ = run("rebind", "garden")
    assert (code, "keys and backups are kept" in out) == (0, True)
    assert run("status", "garden")[0] == 0
    assert run("rebind", "nowhere")[0] == 3
    shutil.rmtree(files.path)
    assert run("rebind", "garden")[0] == 6
    assert run("remove", "garden")[0] == 0
