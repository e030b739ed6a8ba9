"""`wikiholt move --all`: from files to PostgreSQL and back, resumable, checked, and never over another wiki."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api import store_migration
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.api.store_migration import MigrationOutcome, StoreMigration
from wikiholt.domain.index import IndexState
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexCorrupt, WikiExists
from wikiholt.interfaces.cli.main import main
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

OpenService = Callable[..., WikiService]
PAGES = {
    "Home.md": "# Home\n\nSee [[Stock/Lentils]] and [[Nowhere]].\n",
    "Stock/Lentils.md": "---\ntags: [dry, food]\n---\n# Lentils\n\nThey keep for years.\n\n## Red\n\nCook faster.\n",
    "Stock/Café ☕.md": "# Café ☕\n\nGround beans lose their taste.\n",
    "broken.md": "---\ntitle: [\n---\n# Broken\n",
}


@pytest.fixture
def opened() -> Iterator[OpenService]:
    with ExitStack() as stack:

        def call(data: Path, store: str = "") -> WikiService:
            service = build_service(load_settings(data, overrides={"store": store} if store else {}))
            embedder = FakeEmbedder()
            service.components = replace(service.components, embedder=lambda: embedder, identity=None)
            return stack.enter_context(closing(service))

        yield call


@pytest.fixture
def source(opened: OpenService, tmp_path: Path) -> WikiService:
    """Two wikis with indexes, one without, keys of a wiki and of the operator."""
    service = opened(tmp_path / "files")
    for slug, host in (("pantry", "pantry.example"), ("cellar", ""), ("attic", "")):
        repository = Repository(tmp_path / slug)
        repository.commit({**PAGES, f"{slug}.md": f"# {slug}\n\nonly in the {slug}\n"})
        service.add(slug, str(repository.path), {"hosts": host} if host else {})
        if slug != "attic":
            service.get_handle(slug).sync()
    service.registry.keys.create(service.registry.get("pantry").id, Scope.READ)
    service.registry.keys.create(None, Scope.ADMIN)
    return service


def read_contents(service: WikiService) -> dict[str, tuple[IndexState, dict[str, str], list[object]]]:
    """Everything that a move must keep, except the generation number."""
    contents = {}
    for wiki in service.list_wikis():
        if service.components.store.get_published(wiki.id) is not None:
            with closing(service.components.store.open(wiki.id)) as index:
                rows = index.get_page_vectors([page.page_id for page in index.list_pages(PageFilter(), None)[1]])
                contents[wiki.slug] = (
                    replace(index.get_state(), generation=0),
                    dict(index.get_page_blobs()),
                    [*index.get_problems(), *index.get_links(), rows.chunk_ids.tolist(), rows.vectors.tobytes()],
                )
    return contents


def find_paths(service: WikiService, slug: str, query: str) -> list[tuple[str, float]]:
    answer = service.get_handle(slug).search(SearchRequest(query, mode=SearchMode.KEYWORD))
    return [(hit.path, hit.score) for hit in answer.hits]


def test_all_wikis_move_to_postgresql_and_back_without_loss(
    source: WikiService, opened: OpenService, database: str, tmp_path: Path
) -> None:
    before, files = read_contents(source), sorted(tmp_path.glob("files/wikis/*/g*"))
    target = opened(tmp_path / "node", database)
    planned = StoreMigration(source, target, tmp_path / "scratch").plan()
    assert target.registry.list_wikis() == []
    moved = StoreMigration(source, target, tmp_path / "scratch").run()
    assert planned == moved
    assert {wiki.slug: wiki.outcome for wiki in moved.wikis} == {
        "attic": MigrationOutcome.NO_INDEX,
        "cellar": MigrationOutcome.MOVED,
        "pantry": MigrationOutcome.MOVED,
    }
    assert read_contents(target) == before
    assert target.registry.read_rows() == source.registry.read_rows()
    assert find_paths(target, "pantry", "lentils") == find_paths(source, "pantry", "lentils")
    assert sorted(tmp_path.glob("files/wikis/*/g*")) == files
    assert not (tmp_path / "scratch").exists()

    back = opened(tmp_path / "back")
    again = StoreMigration(target, back, tmp_path / "scratch").run()
    assert [wiki.outcome for wiki in again.wikis] == [wiki.outcome for wiki in moved.wikis]
    assert read_contents(back) == before
    assert back.registry.read_rows() == source.registry.read_rows()
    assert [service.get_handle("pantry").check() for service in (target, back)] == [[], []]
    report = back.get_handle("pantry").sync()
    assert (report.added, report.changed, report.chunks_embedded) == (0, 0, 0)


def test_an_interrupted_move_continues_and_keeps_what_is_done(
    source: WikiService, opened: OpenService, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(tmp_path / "node", database)
    store = target.components.store
    adopted: list[str] = []
    adopt = store.import_backup

    def killed(wiki_id: str, file: Path) -> int:
        if adopted:
            raise KeyboardInterrupt
        adopted.append(wiki_id)
        return adopt(wiki_id, file)

    monkeypatch.setattr(store, "import_backup", killed)
    with pytest.raises(KeyboardInterrupt):
        StoreMigration(source, target, tmp_path / "scratch").run()
    assert target.registry.list_wikis() == [], "nothing is registered before it is complete"
    monkeypatch.undo()
    source.get_handle("pantry").sync()
    outcomes = [wiki.outcome for wiki in StoreMigration(source, target, tmp_path / "scratch").run().wikis]
    assert outcomes == [MigrationOutcome.NO_INDEX, MigrationOutcome.ALREADY_THERE, MigrationOutcome.MOVED]
    assert read_contents(target) == read_contents(source)


def test_newer_data_in_the_target_is_not_replaced(
    source: WikiService, opened: OpenService, tmp_path: Path, database: str
) -> None:
    target = opened(tmp_path / "node", database)
    StoreMigration(source, target, tmp_path / "scratch").run()
    Repository(tmp_path / "pantry").commit({"New.md": "# New\n\nwritten since\n"})
    target.get_handle("pantry").sync()
    again = StoreMigration(source, target, tmp_path / "scratch").run()
    assert {wiki.outcome for wiki in again.wikis} == {MigrationOutcome.ALREADY_THERE, MigrationOutcome.NO_INDEX}
    assert [path for path, _ in find_paths(target, "pantry", "written")] == ["New"]


def test_a_target_with_other_wikis_of_the_same_name_is_rejected_first(
    source: WikiService, opened: OpenService, tmp_path: Path, database: str
) -> None:
    target = opened(tmp_path / "node", database)
    other = Repository(tmp_path / "other")
    other.commit({"a.md": "# A\n"})
    target.add("pantry", str(other.path), {})
    before = target.registry.read_rows()
    for attempt in (StoreMigration.plan, StoreMigration.run):
        with pytest.raises(WikiExists, match="Another wiki 'pantry'"):
            attempt(StoreMigration(source, target, tmp_path / "scratch"))
    assert target.registry.read_rows() == before
    assert list(target.components.store.list_wiki_ids()) == []


def test_a_wiki_with_a_wrong_copy_is_reported_and_not_registered(
    source: WikiService, opened: OpenService, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(tmp_path / "node", database)
    require = store_migration._require_equal
    refused: list[str] = []

    def doubt(copied: object, there: object) -> None:
        if not refused:
            refused.append("one")
            raise IndexCorrupt("what arrived is not what was sent")
        require(copied, there)  # type: ignore[arg-type]

    monkeypatch.setattr(store_migration, "_require_equal", doubt)
    report = StoreMigration(source, target, tmp_path / "scratch").run()
    assert [wiki.outcome for wiki in report.wikis] == [
        MigrationOutcome.NO_INDEX,
        MigrationOutcome.FAILED,
        MigrationOutcome.MOVED,
    ]
    assert [wiki.slug for wiki in target.registry.list_wikis()] == ["attic", "pantry"]
    refused.clear()
    again = StoreMigration(source, target, tmp_path / "scratch").run()
    assert [wiki.outcome for wiki in again.wikis] == [
        MigrationOutcome.NO_INDEX,
        MigrationOutcome.MOVED,
        MigrationOutcome.ALREADY_THERE,
    ], "the copy is not trusted"
    assert read_contents(target) == read_contents(source)


def test_the_move_command_reports_its_result_and_the_next_setting(
    source: WikiService, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.close()
    move = ["--data", str(tmp_path / "files"), "move", "--all", "--to", database]
    assert main([*move, "--dry-run"]) == 0
    assert "Nothing was changed." in capsys.readouterr().out
    assert main(move) == 0
    out = capsys.readouterr().out
    assert "pantry: moved (5 pages)" in out
    assert "Next: set store" in out
    assert database not in out
    assert main([*move[:-1], str(tmp_path / "files")]) == 2
    assert "already there" in capsys.readouterr().err
