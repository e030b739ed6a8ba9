"""A directory as a wiki, from `add` to `remove`, in the service and in the scheduler."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.folder.conftest import Vault
from tests.support.git_repository import Repository
from wikiholt.api.backends import open_backend
from wikiholt.api.bootstrap import build_wiki_config
from wikiholt.api.isolation_check import check_isolation
from wikiholt.api.settings.definitions import Settings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.git import Author
from wikiholt.domain.search import SearchMode
from wikiholt.errors import (
    InvalidSource,
    NoPages,
    PageExists,
    RepositoryReplaced,
    RevisionMismatch,
    SourceMissing,
)
from wikiholt.folder.source_kind import detect_source_kind, find_wiki_at
from wikiholt.index.index_backups import BackupPolicy
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components
from wikiholt.wikis.service import WikiService

ADA = Author("Ada", "ada@example.org")


def open_test_service(settings: Settings) -> WikiService:
    backend, embedder = open_backend(settings, BackupPolicy()), FakeEmbedder()
    components = Components(
        backend.store,
        lambda: embedder,
        lambda index, wiki_id: None,
        5.0,
    )
    return WikiService(
        backend.registry,
        components,
        lambda wiki: build_wiki_config(wiki, settings, backend),
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(tmp_path / "data", None, {}, {"sync.interval": 1, "discover.interval": 1})


@pytest.fixture
def service(settings: Settings) -> Iterator[WikiService]:
    opened = open_test_service(settings)
    yield opened
    opened.close()


def add_vault(service: WikiService, vault: Vault) -> WikiHandle:
    service.add("notes", str(vault.path), {})
    handle = service.get_handle("notes")
    handle.fetch()
    handle.sync()
    return handle


def find(handle: WikiHandle, query: str) -> list[str]:
    return [hit.path for hit in handle.search(SearchRequest(query, mode=SearchMode.KEYWORD)).hits]


def test_a_directory_is_added_synced_searched_and_removed_completely(service: WikiService, vault: Vault) -> None:
    vault.write("Heron.md", "the heron stands still")
    wiki = service.add("notes", str(vault.path), {})
    assert wiki.settings == {"kind": "directory"}
    handle = service.get_handle("notes")
    assert isinstance(handle.get_status().error, SourceMissing), "nothing has been read yet"
    assert handle.fetch() is True
    report = handle.sync()
    result = handle.search(SearchRequest("heron"))
    assert [hit.path for hit in result.hits] == ["Heron"]
    assert (result.indexed_revision, result.stale) == (report.revision, False)
    (vault.path / "Heron.md").rename(vault.path / "Bird.md")
    handle.fetch()
    assert handle.get_status().stale
    moved = handle.sync()
    assert (moved.moved, moved.chunks_embedded) == (1, 0)
    directory = service.components.store.get_directory(wiki.id)
    service.remove("notes")
    assert not directory.exists()
    assert [file.name for file in vault.path.iterdir()] == ["Bird.md"], "nothing was written into the directory"


def test_a_page_that_changes_after_the_scan_is_indexed_as_it_is_and_does_not_stop_the_sync(
    service: WikiService, vault: Vault
) -> None:
    for file in ("Heron.md", "Gone.md", "Moved.md", "Same.md"):
        vault.write(file, f"the heron of {file} stands still")
    handle = add_vault(service, vault)
    for file in ("Heron.md", "Gone.md"):
        vault.write(file, f"the heron of {file} has moved")
    vault.path.joinpath("Moved.md").rename(vault.path / "New.md")
    handle.fetch()
    vault.write("Heron.md", "the heron has left")
    vault.write("New.md", "a stork")
    vault.path.joinpath("Gone.md").unlink()
    report = handle.sync()
    assert (find(handle, "has left"), find(handle, "same")) == (["Heron"], ["Same"])
    assert [problem.file for problem in report.problems] == ["Gone.md"]
    assert all(result.ok for result in check_isolation(service, "notes"))
    handle.fetch()
    report = handle.sync()
    assert (report.pages, report.problems, report.chunks_embedded) == (3, (), 0)
    assert (find(handle, "has left"), find(handle, "stork"), find(handle, "moved")) == (["Heron"], ["New"], [])


def test_pages_are_written_through_the_wiki(service: WikiService, vault: Vault) -> None:
    vault.write("Home.md", "see [it](Heron.md)")
    vault.write("Heron.md", "the heron stands still")
    handle = add_vault(service, vault)
    page = handle.pages.read("Heron")
    written = handle.pages.write("Heron", "the heron has left", ADA, expected=page.revision)
    assert handle.pages.read("Heron").revision == written.revision
    with pytest.raises(RevisionMismatch):
        handle.pages.write("Heron", "lost", ADA, expected=page.revision)
    renamed = handle.pages.rename("Heron", "Birds/Heron", ADA)
    assert renamed.updated == ("Home",)
    assert (vault.path / "Home.md").read_text() == "see [it](Birds/Heron.md)"
    handle.sync()
    assert find(handle, "heron left") == ["Birds/Heron"]
    vault.write("Birds/Heron.md", "edited in another program")
    handle.pages.append("Birds/Heron", "and here", ADA)
    assert (vault.path / "Birds/Heron.md").read_text() == "edited in another program\nand here\n"
    handle.pages.add_attachment("Home", "a.png", b"png", ADA)
    assert handle.pages.read_attachment("Home", "a.png").data == b"png"
    assert [file.filename for file in handle.pages.list_attachments("Home").files] == ["a.png"]
    assert (vault.path / "Home/a.png").read_bytes() == b"png"
    assert handle.pages.read_history("Birds/Heron")


def test_a_rename_moves_the_folder_of_a_page_on_disk(service: WikiService, vault: Vault) -> None:
    vault.write("Home.md", "![p](Birds/p.png) [h](Birds/Heron.md)")
    vault.write("Birds.md", "[h](Birds/Heron.md)")
    vault.write("Birds/Heron.md", "the heron stands still ![p](p.png)")
    vault.write("Birds/p.png", b"\xff" * 100)
    handle = add_vault(service, vault)
    renamed = handle.pages.rename("Birds", "Fauna/Flying", ADA)
    assert [moved.new for moved in renamed.moved] == ["Fauna/Flying/Heron.md", "Fauna/Flying/p.png"]
    assert (vault.path / "Home.md").read_text() == "![p](Fauna/Flying/p.png) [h](Fauna/Flying/Heron.md)"
    assert (vault.path / "Fauna/Flying.md").read_text() == "[h](Flying/Heron.md)"
    assert (vault.path / "Fauna/Flying/p.png").read_bytes() == b"\xff" * 100
    assert not (vault.path / "Birds").exists()
    assert handle.sync().chunks_embedded == 0
    assert find(handle, "heron still") == ["Fauna/Flying/Heron"]
    vault.write("Other/p.png", b"mine")
    with pytest.raises(PageExists):
        handle.pages.rename("Fauna/Flying", "Other", ADA)
    assert (vault.path / "Fauna/Flying.md").exists()


def test_an_unreadable_directory_keeps_its_index(service: WikiService, vault: Vault) -> None:
    vault.write("Heron.md", "the heron stands still")
    handle = add_vault(service, vault)
    vault.path.rename(vault.path.with_name("away"))
    with pytest.raises(SourceMissing):
        handle.fetch()
    assert isinstance(handle.get_status().error, SourceMissing)
    assert find(handle, "heron") == ["Heron"]
    vault.path.with_name("away").rename(vault.path)
    (vault.path / "Heron.md").unlink()
    with pytest.raises(NoPages):
        handle.fetch()
    handle.sync()
    assert find(handle, "heron") == ["Heron"]


def test_an_unreadable_folder_in_the_directory_is_listed_as_a_folder(
    service: WikiService, vault: Vault, deny: Callable[[str], None]
) -> None:
    vault.write("Heron.md", "the heron stands still")
    vault.write("Locked.md", "text")
    vault.write("private/Page.md", "text")
    deny("private")
    deny("Locked.md")
    problems = add_vault(service, vault).get_status().problems
    assert {problem.file: problem.detail for problem in problems} == {
        "Locked.md": "the content of this page cannot be read",
        "private": "this folder cannot be read",
    }


def test_another_directory_at_the_same_path_is_not_the_same_wiki(service: WikiService, vault: Vault) -> None:
    vault.write("Heron.md", "the heron stands still")
    add_vault(service, vault)
    shutil.copytree(vault.path, vault.path.with_name("copy"))
    shutil.rmtree(vault.path)
    vault.path.with_name("copy").rename(vault.path)
    with pytest.raises(RepositoryReplaced) as error:
        service.get_handle("notes")
    assert "rebind notes" in error.value.hint
    service.rebind("notes")
    assert find(service.get_handle("notes"), "heron") == ["Heron"]


def test_a_git_init_in_a_directory_changes_nothing(service: WikiService, vault: Vault) -> None:
    vault.write("Heron.md", "the heron stands still")
    add_vault(service, vault)
    Repository(vault.path)
    handle = service.get_handle("notes")
    vault.write("Otter.md", "an otter swims")
    handle.fetch()
    handle.sync()
    assert find(handle, "otter") == ["Otter"]


def test_a_checkout_is_read_at_head_or_from_disk(service: WikiService, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "checkout")
    repository.commit({"Home.md": "committed"})
    (tmp_path / "checkout" / "Draft.md").write_text("not committed")
    assert service.add("head", str(repository.path), {}).settings == {}
    service.add("disk", str(repository.path), {"kind": "directory"})
    indexed = {}
    for slug in ("head", "disk"):
        handle = service.get_handle(slug)
        handle.fetch()
        handle.sync()
        indexed[slug] = {page.path for page in handle.pages.list().pages}
    assert indexed == {"head": {"Home"}, "disk": {"Home", "Draft"}}
    service.configure("head", {"kind": "directory"})
    handle = service.get_handle("head")
    handle.fetch()
    report = handle.sync()
    assert (report.added, report.unchanged) == (1, 1), "the same content is not indexed again"
    service.configure("head", {"kind": ""})
    service.get_handle("head").sync()


def test_a_directory_inside_a_repository_names_the_choices(service: WikiService, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "checkout")
    repository.commit({"docs/Home.md": "text"})
    with pytest.raises(InvalidSource, match="inside a git repository") as error:
        service.add("docs-wiki", str(repository.path / "docs"), {})
    assert "--worktree" in error.value.hint
    assert "subdirectory=docs" in error.value.hint
    wiki = service.add("docs-wiki", str(repository.path / "docs"), {"kind": "directory"})
    assert service.get_source(wiki).get_head()


def test_the_kind_of_a_source_is_detected(vault: Vault, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    assert detect_source_kind(str(vault.path), {"public": "true"}) == {"public": "true", "kind": "directory"}
    assert detect_source_kind(str(vault.path), {"kind": "git"}) == {"kind": "git"}
    for source in (str(repository.path), "https://git.example/wiki.git", str(tmp_path / "missing")):
        assert detect_source_kind(source, {}) == {}
    (repository.path / ".git" / "HEAD").unlink()
    assert detect_source_kind(str(repository.path), {}) == {}, "a damaged repository is not a directory of pages"


def test_a_served_path_is_one_wiki_or_a_directory_of_repositories(vault: Vault, tmp_path: Path) -> None:
    assert find_wiki_at(vault.path) is None, "it may get repositories"
    vault.write("a/.hidden/Home.md", "text")
    vault.write("a/node_modules/Home.md", "text")
    assert find_wiki_at(vault.path) is None
    vault.write("a/b/Home.md", "text")
    found = find_wiki_at(vault.path)
    assert found is not None
    assert (found.slug, found.path, found.kind) == ("vault", vault.path, "directory")
    Repository(vault.path / "inner")
    assert find_wiki_at(vault.path) is None
    repository = Repository(tmp_path / "My Wiki")
    found = find_wiki_at(repository.path)
    assert found is not None
    assert (found.slug, found.kind) == ("my-wiki", "")


def test_add_and_sync_on_the_command_line(vault: Vault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vault.write("Home.md", "text")
    data = ["--data", str(tmp_path / "data")]
    assert main([*data, "add", "notes", str(vault.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {"kind": "directory"}
    Repository(tmp_path / "checkout").commit({"Home.md": "text"})
    assert main([*data, "add", "checkout", str(tmp_path / "checkout"), "--worktree", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {"kind": "directory"}
    bare = Repository(tmp_path / "bare", "--bare")
    assert main([*data, "add", "bare", str(bare.path), "--worktree"]) == 2
    assert "without --worktree" in capsys.readouterr().err


def test_the_dialect_of_a_vault_is_detected_and_can_be_set(service: WikiService, vault: Vault) -> None:
    vault.write(".obsidian/app.json", "{}")
    vault.write("Home.md", "To [[deep/Soil|the soil]]. #start %%secret%%")
    vault.write("garden/deep/Soil.md", "Dark.")
    vault.write("garden/notes.txt", "Text.")
    vault.write("pane.png", b"\x89PNG")
    handle = add_vault(service, vault)
    status = handle.get_status()
    assert (status.dialect, dict(status.skipped), status.state and status.state.pages) == ("obsidian", {".png": 1}, 3)
    assert [link.path for link in handle.pages.read("Home").links_to] == ["garden/deep/Soil"]
    assert handle.pages.read("Home").metadata.tags == ("start",)
    service.configure("notes", {"dialect": "otterwiki"})
    handle = service.get_handle("notes")
    handle.fetch()
    assert handle.sync().rebuilt
    status = handle.get_status()
    assert (status.dialect, dict(status.skipped), status.state and status.state.pages) == (
        "otterwiki",
        {".png": 1, ".txt": 1},
        2,
    )
