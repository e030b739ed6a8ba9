"""Dialects of whole wikis: detected, links resolved, rewritten and rendered accordingly, and reindexed on a change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import ADA, IndexedWiki, PageFiles
from tests.text.dialect_pages import LOGSEQ_PAGE
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.request import SearchRequest
from wikiholt.text.dialect import GFM, OBSIDIAN

DETECT = TextPipeline(detects_dialect=True)

VAULT: PageFiles = {
    ".obsidian/app.json": "{}",
    "Home.md": "# Home\n\n[[soil|The soil]], [[beds/Leek]], [[Peas#Sowing]], ![[pane.png]] and [[Nowhere]]. #start\n",
    "garden/Soil.md": "status:: wet\n\nDark. %%secret%% Made by [worms](Worms.md), see ![[Leek]].\n",
    "garden/Worms.md": "> [!note] Useful\n> Never cut [[Worms|them]].\n",
    "garden/beds/Leek.md": "Near [[Peas]]. #vegetable/winter\n",
    "garden/beds/Peas.md": "# Peas\n\n## Sowing\n\nIn [[Soil]]. #vegetable\n",
    "old/archive/Peas.md": "Last year's. See [[Peas|ours]].\n",
    "pane.png": b"png",
}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, VAULT, pipeline=DETECT).sync()
    yield made
    made.close()


def test_obsidian_links_are_resolved_by_name_from_anywhere(vault: IndexedWiki) -> None:
    graph = vault.pages.build_graph()
    assert set(graph.edges) == {
        ("Home", "garden/Soil"),
        ("Home", "garden/beds/Leek"),
        ("Home", "garden/beds/Peas"),
        ("garden/Soil", "garden/Worms"),
        ("garden/Soil", "garden/beds/Leek"),
        ("garden/beds/Leek", "garden/beds/Peas"),
        ("garden/beds/Peas", "garden/Soil"),
    }
    assert graph.missing == (("Home", "Nowhere"),)


def test_backlinks_follow_the_dialect(vault: IndexedWiki) -> None:
    assert [link.path for link in vault.pages.read("garden/beds/Leek").linked_from] == ["Home", "garden/Soil"]
    peas = vault.pages.read("garden/beds/Peas")
    assert [(link.path, link.anchor) for link in peas.linked_from] == [("Home", "Sowing"), ("garden/beds/Leek", "")]
    # The same folder comes before the shortest path.
    assert vault.pages.read("old/archive/Peas").linked_from == ()


def test_inline_tags_and_comments_follow_the_dialect(vault: IndexedWiki) -> None:
    tags = {facet.value: facet.count for facet in vault.pages.get_facets().tags}
    assert tags == {"start": 1, "vegetable": 1, "vegetable/winter": 1}
    assert [page.path for page in vault.pages.list(PageFilter(tags=("vegetable",))).pages] == ["garden/beds/Peas"]
    for mode in SearchMode:
        hits = vault.handle.search(SearchRequest("secret", mode=mode)).hits
        assert "secret" not in "".join(hit.text + hit.snippet.text for hit in hits)
    hit = vault.handle.search(SearchRequest("dark worms", mode=SearchMode.KEYWORD)).hits[0]
    assert hit.snippet.text == "status: wet · Dark. Made by worms, see Leek."


@pytest.mark.parametrize(
    ("old", "new", "rewritten"),
    [
        ("garden/Soil", "garden/Earth", {"Home.md": "[[Earth|The soil]]", "garden/beds/Peas.md": "In [[Earth]]."}),
        ("garden/beds/Leek", "beds/Leek", {}),
        ("garden/Worms", "animals/Worms", {}),
        ("garden/Worms", "animals/Earthworms", {"garden/Soil.md": "[worms](../animals/Earthworms.md)"}),
        ("garden/beds/Peas", "Beans", {"Home.md": "[[Beans#Sowing]]", "garden/beds/Leek.md": "Near [[Beans]]."}),
    ],
)
def test_a_rename_rewrites_the_target_and_keeps_the_text(
    vault: IndexedWiki, old: str, new: str, rewritten: dict[str, str]
) -> None:
    renamed = vault.pages.rename(old, new, ADA)
    for file, text in rewritten.items():
        assert text in vault.read_file(file)
    assert {f"{path}.md" for path in renamed.updated} == set(rewritten)


def test_a_changed_dialect_parses_again_and_keeps_vectors_of_equal_text(tmp_path: Path) -> None:
    pages: PageFiles = {f"page{n}.md": f"# Page {n}\n\nText number {n}.\n" for n in range(8)}
    pages["links.md"] = "To [[page1|the first]] page.\n"
    wiki = IndexedWiki(tmp_path, pages, pipeline=TextPipeline(dialect=GFM))
    assert wiki.handle.sync().chunks_embedded == 9
    wiki.close()
    again = IndexedWiki(tmp_path, None, pipeline=TextPipeline(dialect=OBSIDIAN))
    report = again.handle.sync()
    assert (report.rebuilt, report.chunks_embedded, report.chunks_reused) == (True, 1, 8)
    assert again.handle.get_status().dialect == "obsidian"
    again.close()


def test_the_dialect_is_detected_again_when_the_wiki_changes(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {"a.md": "Text.\n", "b.md": "[[c|the c]].\n"}, pipeline=DETECT)
    wiki.sync()
    assert wiki.handle.get_status().dialect == "gfm"
    head = wiki.repository.get_head()
    assert wiki.handle.get_indexed_revision() == head
    wiki.repository.commit({"c.md": "Text.\n"})
    assert wiki.handle.sync().rebuilt
    assert wiki.handle.get_status().dialect == "obsidian"
    assert wiki.pages.read("b").links_to[0].text == "the c"
    # Without evidence it stays, also in another process.
    wiki.repository.commit({"b.md": "None.\n"})
    again = IndexedWiki(tmp_path, None, pipeline=DETECT)
    assert not again.handle.sync().rebuilt
    assert again.handle.get_status().dialect == "obsidian"
    wiki.repository.commit({"mkdocs.yml": "site_name: x\n", "b.md": '!!! note "Box"\n    In it.\n'})
    assert again.handle.sync().rebuilt
    (hit,) = again.handle.search(SearchRequest("box", mode=SearchMode.KEYWORD)).hits
    assert (again.handle.get_status().dialect, hit.snippet.text) == ("mkdocs", "Box In it.")
    again.close()
    wiki.close()


def test_a_gollum_wiki_and_a_logseq_graph_are_detected(tmp_path: Path) -> None:
    gollum = IndexedWiki(tmp_path / "g", {"Home.md": "[[Read it|Manual]]", "Manual.md": "x"}, pipeline=DETECT).sync()
    assert gollum.handle.get_status().dialect == "gollum"
    assert [(link.path, link.text) for link in gollum.pages.get_links("Home").links_to] == [("Manual", "Read it")]
    gollum.close()
    graph: PageFiles = {"logseq/config.edn": "{}", "pages/Tank.md": LOGSEQ_PAGE, "pages/Autumn jobs.md": "- None\n"}
    logseq = IndexedWiki(tmp_path / "l", graph, pipeline=DETECT).sync()
    assert logseq.handle.get_status().dialect == "obsidian"
    assert [link.path for link in logseq.pages.read("pages/Autumn jobs").linked_from] == ["pages/Tank"]
    assert [page.name for page in logseq.pages.list(PageFilter(tags=("rain",))).pages] == ["Water tank"]
    logseq.close()


def test_files_that_are_no_pages_are_counted(vault: IndexedWiki) -> None:
    assert vault.handle.get_status().skipped == {".png": 1}
    vault.repository.commit({"pane.png": None, "a.docx": "x", "b.docx": "x", "LICENSE": "x"})
    assert vault.handle.get_status().skipped == {".docx": 2, "": 1}
