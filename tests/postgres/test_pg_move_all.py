"""`wikiholt move --all`: from files to PostgreSQL and back, resumable, checked, and never over another wiki."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from git_repository import Repository

from wikiholt import moving
from wikiholt.errors import IndexCorrupt, WikiExists
from wikiholt.model import Filter, Mode, Scope, State
from wikiholt.moving import Mover, Outcome
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.surfaces.cli.main import main
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build

Open = Callable[..., Service]
PAGES = {
    "Home.md": "# Home\n\nSee [[Stock/Lentils]] and [[Nowhere]].\n",
    "Stock/Lentils.md": "---\ntags: [dry, food]\n---\n# Lentils\n\nThey keep for years.\n\n## Red\n\nCook faster.\n",
    "Stock/Café ☕.md": "# Café ☕\n\nGround beans lose their taste.\n",
    "broken.md": "---\ntitle: [\n---\n# Broken\n",
}


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:

        def call(data: Path, store: str = "") -> Service:
            service = build(load(data, overrides={"store": store} if store else {}))
            embedder = FakeEmbedder()
            service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
            return stack.enter_context(closing(service))

        yield call


@pytest.fixture
def source(opened: Open, tmp_path: Path) -> Service:
    """Two wikis with indexes, one without, keys of a wiki and of the operator."""
    service = opened(tmp_path / "files")
    for slug, host in (("pantry", "pantry.example"), ("cellar", ""), ("attic", "")):
        repository = Repository(tmp_path / slug)
        repository.commit({**PAGES, f"{slug}.md": f"# {slug}\n\nonly in the {slug}\n"})
        service.add(slug, str(repository.path), {"hosts": host} if host else {})
        if slug != "attic":
            service.wiki(slug).sync()
    service.registry.keys.create(service.registry.get("pantry").id, Scope.READ)
    service.registry.keys.create(None, Scope.ADMIN)
    return service


def contents(service: Service) -> dict[str, tuple[State, dict[str, str], list[object]]]:
    """Everything that a move must keep, but the number of the generation."""
    found = {}
    for wiki in service.wikis():
        if service.workshop.store.published(wiki.id) is not None:
            with closing(service.workshop.store.open(wiki.id)) as index:
                rows = index.page_vectors([page.page_id for page in index.list_pages(Filter(), None)[1]])
                found[wiki.slug] = (
                    replace(index.state(), generation=0),
                    dict(index.pages()),
                    [*index.problems(), *index.links(), rows.chunk_ids.tolist(), rows.vectors.tobytes()],
                )
    return found


def found_by(service: Service, slug: str, query: str) -> list[tuple[str, float]]:
    answer = service.wiki(slug).search(Request(query, mode=Mode.KEYWORD))
    return [(hit.path, hit.score) for hit in answer.hits]


def test_all_wikis_go_to_postgresql_and_back_and_nothing_is_lost(
    source: Service, opened: Open, database: str, tmp_path: Path
) -> None:
    before, files = contents(source), sorted(tmp_path.glob("files/wikis/*/g*"))
    target = opened(tmp_path / "node", database)
    foreseen = Mover(source, target, tmp_path / "scratch").foresee()
    assert target.registry.list() == []
    moved = Mover(source, target, tmp_path / "scratch").move()
    assert foreseen == moved
    assert {each.slug: each.outcome for each in moved.wikis} == {
        "attic": Outcome.BARE,
        "cellar": Outcome.MOVED,
        "pantry": Outcome.MOVED,
    }
    assert contents(target) == before
    assert target.registry.rows() == source.registry.rows()
    assert found_by(target, "pantry", "lentils") == found_by(source, "pantry", "lentils")
    assert sorted(tmp_path.glob("files/wikis/*/g*")) == files
    assert not (tmp_path / "scratch").exists()

    back = opened(tmp_path / "back")
    again = Mover(target, back, tmp_path / "scratch").move()
    assert [each.outcome for each in again.wikis] == [each.outcome for each in moved.wikis]
    assert contents(back) == before
    assert back.registry.rows() == source.registry.rows()
    assert [service.wiki("pantry").check() for service in (target, back)] == [[], []]
    report = back.wiki("pantry").sync()
    assert (report.added, report.changed, report.chunks_embedded) == (0, 0, 0)


def test_a_move_that_was_cut_off_goes_on_and_what_is_there_is_left(
    source: Service, opened: Open, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(tmp_path / "node", database)
    store = target.workshop.store
    adopted: list[str] = []
    adopt = store.adopt

    def killed(wiki_id: str, file: Path) -> int:
        if adopted:
            raise KeyboardInterrupt
        adopted.append(wiki_id)
        return adopt(wiki_id, file)

    monkeypatch.setattr(store, "adopt", killed)
    with pytest.raises(KeyboardInterrupt):
        Mover(source, target, tmp_path / "scratch").move()
    assert target.registry.list() == [], "nothing is registered before it is whole"
    monkeypatch.undo()
    source.wiki("pantry").sync()
    outcomes = [each.outcome for each in Mover(source, target, tmp_path / "scratch").move().wikis]
    assert outcomes == [Outcome.BARE, Outcome.THERE, Outcome.MOVED]
    assert contents(target) == contents(source)


def test_what_lives_there_by_now_is_not_replaced_by_what_was_here(
    source: Service, opened: Open, tmp_path: Path, database: str
) -> None:
    target = opened(tmp_path / "node", database)
    Mover(source, target, tmp_path / "scratch").move()
    Repository(tmp_path / "pantry").commit({"New.md": "# New\n\nwritten since\n"})
    target.wiki("pantry").sync()
    again = Mover(source, target, tmp_path / "scratch").move()
    assert {each.outcome for each in again.wikis} == {Outcome.THERE, Outcome.BARE}
    assert [path for path, _ in found_by(target, "pantry", "written")] == ["New"]


def test_a_target_with_other_wikis_of_the_same_name_is_refused_before_anything_is_done(
    source: Service, opened: Open, tmp_path: Path, database: str
) -> None:
    target = opened(tmp_path / "node", database)
    other = Repository(tmp_path / "other")
    other.commit({"a.md": "# A\n"})
    target.add("pantry", str(other.path), {})
    before = target.registry.rows()
    for attempt in (Mover.foresee, Mover.move):
        with pytest.raises(WikiExists, match="another wiki 'pantry'"):
            attempt(Mover(source, target, tmp_path / "scratch"))
    assert target.registry.rows() == before
    assert list(target.workshop.store.ids()) == []


def test_a_wiki_whose_copy_is_not_the_same_is_told_of_and_not_registered(
    source: Service, opened: Open, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(tmp_path / "node", database)
    require = moving._require_equal
    refused: list[str] = []

    def doubt(copied: object, there: object) -> None:
        if not refused:
            refused.append("one")
            raise IndexCorrupt("what arrived is not what was sent")
        require(copied, there)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "_require_equal", doubt)
    done = Mover(source, target, tmp_path / "scratch").move()
    assert [each.outcome for each in done.wikis] == [Outcome.BARE, Outcome.FAILED, Outcome.MOVED]
    assert [wiki.slug for wiki in target.registry.list()] == ["attic", "pantry"]
    refused.clear()
    again = Mover(source, target, tmp_path / "scratch").move()
    assert [each.outcome for each in again.wikis] == [Outcome.BARE, Outcome.MOVED, Outcome.THERE], "it is not trusted"
    assert contents(target) == contents(source)


def test_the_command_says_what_it_did_and_what_to_set_next(
    source: Service, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    assert "there already" in capsys.readouterr().err
