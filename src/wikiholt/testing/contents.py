"""What every store must do for listing and links; part of `StoreConformance`."""

import numpy as np

from wikiholt.model import Change, Filter
from wikiholt.ports import WikiIndex
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.testing.entries import entry

EMBEDDER = FakeEmbedder()


class ContentsConformance:
    """The tests; `index` is an empty index of a fresh store."""

    def test_pages_are_listed_by_path_in_parts_and_filtered(self, index: WikiIndex) -> None:
        pages = [
            entry(f"{name}.md", [name], EMBEDDER, tags=["T"] if name > "b" else []) for name in ("c", "a", "d/e", "b")
        ]
        index.apply(Change(pages=tuple(pages)))
        total, listed = index.list_pages(Filter(), 2, 1)
        assert (total, [page.path for page in listed]) == (4, ["b", "c"])
        total, listed = index.list_pages(Filter(tags=("t",)), None)
        assert (total, [page.path for page in listed]) == (2, ["c", "d/e"])
        assert [(page.words, page.length) for page in listed] == [(1, 1), (1, 3)]
        assert index.list_pages(Filter(), 5, 10) == (4, [])

    def test_links_are_found_from_both_ends(self, index: WikiIndex) -> None:
        links = ["My Page", "../Home.md", "https://example.org"]
        one = entry("dir/one.md", ["x"], EMBEDDER, links=links)
        index.apply(Change(pages=(one, entry("my_page.md", ["y"], EMBEDDER), entry("a/My-Page.md", ["z"], EMBEDDER))))
        page = index.find_page("dir/one")
        assert page is not None
        found = index.links([page.page_id])
        assert [(link.target, link.line, link.wiki, link.paths) for link in found] == [
            ("My Page", 1, True, ("My Page",)),
            ("../Home.md", 2, False, ("Home",)),
            ("https://example.org", 3, True, ()),
        ]
        assert index.links() == found
        assert [link.target for link in index.links_naming(["my-page"])] == ["My Page"]
        assert [link.target for link in index.links_naming(["home", "my-page", "none"])] == ["My Page", "../Home.md"]
        assert {each.file for each in index.named(["my-page"])} == {"my_page.md", "a/My-Page.md"}
        assert {each.file for each in index.named(["a/my-page", "none"])} == {"a/My-Page.md"}
        assert (index.named([]), index.links([]), index.links_naming([])) == ([], [], [])
        index.apply(Change(deleted=("dir/one.md",)))
        assert index.links() == index.links_naming(["my-page"]) == []
        assert index.check() == []

    def test_many_keys_may_be_asked_for_at_once(self, index: WikiIndex) -> None:
        names = [f"p{number}" for number in range(1200)]
        index.apply(Change(pages=tuple(entry(f"{name}.md", [], EMBEDDER, links=["p0"]) for name in names)))
        assert len(index.named(names)) == 1200
        assert len(index.links_naming(names)) == 1200
        assert len(index.links([page.page_id for page in index.named(names)])) == 1200

    def test_facets_fold_case_and_count_what_passes(self, index: WikiIndex) -> None:
        pages = [entry(f"x/{i}.md", ["a"], EMBEDDER, tags=["Soil"], category="Guide") for i in range(2)]
        pages.append(entry("y.md", ["a"], EMBEDDER, tags=["soil", "Air"], category="guide"))
        index.apply(Change(pages=tuple(pages)))
        facets = index.facets(Filter())
        assert facets.pages == 3
        assert [(facet.value, facet.count) for facet in facets.tags] == [("Soil", 3), ("Air", 1)]
        assert [(facet.value, facet.count) for facet in facets.categories] == [("Guide", 3)]
        assert [(facet.value, facet.count) for facet in facets.folders] == [("x", 2)]
        assert [facet.value for facet in index.facets(Filter(tags=("air",))).tags] == ["Air", "soil"]

    def test_the_vectors_of_pages_come_with_their_chunks(self, index: WikiIndex) -> None:
        one, two = entry("a.md", ["alpha", "beta"], EMBEDDER), entry("b.md", ["gamma"], EMBEDDER)
        index.apply(Change(pages=(one, two)))
        rows = index.page_vectors([2, 1])
        assert rows.page_ids.tolist() == [1, 1, 2]
        np.testing.assert_array_equal(rows.vectors, np.concatenate([one.vectors, two.vectors]))
        assert (
            index.page_vectors([]).vectors.shape == index.page_vectors([99]).vectors.shape == (0, EMBEDDER.dimensions)
        )
