"""What every store must do for listing and links; part of `StoreConformance`."""

import numpy as np

from wikiholt.model import IndexChange, PageFilter
from wikiholt.ports import WikiIndex
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.testing.entries import make_entry

EMBEDDER = FakeEmbedder()


class ListingConformance:
    """The tests; `index` is an empty index of a fresh store."""

    def test_pages_are_listed_by_path_in_parts_and_filtered(self, index: WikiIndex) -> None:
        pages = [
            make_entry(f"{name}.md", [name], EMBEDDER, tags=["T"] if name > "b" else []) for name in ("c", "a", "d/e", "b")
        ]
        index.apply(IndexChange(pages=tuple(pages)))
        total, listed = index.list_pages(PageFilter(), 2, 1)
        assert (total, [page.path for page in listed]) == (4, ["b", "c"])
        total, listed = index.list_pages(PageFilter(tags=("t",)), None)
        assert (total, [page.path for page in listed]) == (2, ["c", "d/e"])
        assert [(page.words, page.length) for page in listed] == [(1, 1), (1, 3)]
        assert index.list_pages(PageFilter(), 5, 10) == (4, [])

    def test_links_are_found_from_both_ends(self, index: WikiIndex) -> None:
        links = ["My Page", "../Home.md", "https://example.org"]
        one = make_entry("dir/one.md", ["x"], EMBEDDER, links=links)
        index.apply(IndexChange(pages=(one, make_entry("my_page.md", ["y"], EMBEDDER), make_entry("a/My-Page.md", ["z"], EMBEDDER))))
        page = index.find_page("dir/one")
        assert page is not None
        found = index.get_links([page.page_id])
        assert [(link.target, link.line, link.wiki, link.paths) for link in found] == [
            ("My Page", 1, True, ("My Page",)),
            ("../Home.md", 2, False, ("Home",)),
            ("https://example.org", 3, True, ()),
        ]
        assert index.get_links() == found
        assert [link.target for link in index.find_links_by_key(["my-page"])] == ["My Page"]
        assert [link.target for link in index.find_links_by_key(["home", "my-page", "none"])] == ["My Page", "../Home.md"]
        assert {each.file for each in index.find_pages_by_key(["my-page"])} == {"my_page.md", "a/My-Page.md"}
        assert {each.file for each in index.find_pages_by_key(["a/my-page", "none"])} == {"a/My-Page.md"}
        assert (index.find_pages_by_key([]), index.get_links([]), index.find_links_by_key([])) == ([], [], [])
        index.apply(IndexChange(deleted=("dir/one.md",)))
        assert index.get_links() == index.find_links_by_key(["my-page"]) == []
        assert index.check() == []

    def test_many_keys_may_be_asked_for_at_once(self, index: WikiIndex) -> None:
        names = [f"p{number}" for number in range(1200)]
        index.apply(IndexChange(pages=tuple(make_entry(f"{name}.md", [], EMBEDDER, links=["p0"]) for name in names)))
        assert len(index.find_pages_by_key(names)) == 1200
        assert len(index.find_links_by_key(names)) == 1200
        assert len(index.get_links([page.page_id for page in index.find_pages_by_key(names)])) == 1200

    def test_facets_fold_case_and_count_what_passes(self, index: WikiIndex) -> None:
        pages = [make_entry(f"x/{i}.md", ["a"], EMBEDDER, tags=["Soil"], category="Guide") for i in range(2)]
        pages.append(make_entry("y.md", ["a"], EMBEDDER, tags=["soil", "Air"], category="guide"))
        index.apply(IndexChange(pages=tuple(pages)))
        facets = index.get_facets(PageFilter())
        assert facets.pages == 3
        assert [(facet.value, facet.count) for facet in facets.tags] == [("Soil", 3), ("Air", 1)]
        assert [(facet.value, facet.count) for facet in facets.categories] == [("Guide", 3)]
        assert [(facet.value, facet.count) for facet in facets.folders] == [("x", 2)]
        assert [facet.value for facet in index.get_facets(PageFilter(tags=("air",))).tags] == ["Air", "soil"]

    def test_the_vectors_of_pages_come_with_their_chunks(self, index: WikiIndex) -> None:
        one, two = make_entry("a.md", ["alpha", "beta"], EMBEDDER), make_entry("b.md", ["gamma"], EMBEDDER)
        index.apply(IndexChange(pages=(one, two)))
        rows = index.get_page_vectors([2, 1])
        assert rows.page_ids.tolist() == [1, 1, 2]
        np.testing.assert_array_equal(rows.vectors, np.concatenate([one.vectors, two.vectors]))
        assert (
            index.get_page_vectors([]).vectors.shape == index.get_page_vectors([99]).vectors.shape == (0, EMBEDDER.dimensions)
        )
