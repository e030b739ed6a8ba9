"""Conformance tests of lists, links, facets, notes and activity; part of `StoreConformance`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from wikiholt.domain.index import IndexChange, PageEntry, compute_page_means
from wikiholt.domain.page import PageMetadata, PageProperty
from wikiholt.domain.search import ALL_PROPERTIES, KeywordQuery, OrderOverride, PageFilter
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import Busy
from wikiholt.testing.fakes import FakeEmbedder, make_entry
from wikiholt.text.properties import parse_condition

EMBEDDER = FakeEmbedder()


def make_page(file: str, *texts: str, **options: Any) -> PageEntry:
    """A page with these chunks. The options are those of `make_entry`."""
    return make_entry(file, texts, EMBEDDER, **options)


def put_pages(index: WikiIndex, *pages: PageEntry, **changes: Any) -> int:
    """Apply one change with these pages and return the version of the index."""
    return index.apply(IndexChange(pages=pages, **changes))


class ListingConformance:
    """Lists, links and facets. `index` is an empty index of a new store."""

    def test_pages_are_listed_by_path_in_parts_and_filtered(self, index: WikiIndex) -> None:
        pages = [make_page(f"{name}.md", name, tags=["T"] if name > "b" else []) for name in ("c", "a", "d/e", "b")]
        put_pages(index, *pages)
        total, listed = index.list_pages(PageFilter(), 2, 1)
        assert (total, [page.path for page in listed]) == (4, ["b", "c"])
        total, listed = index.list_pages(PageFilter(tags=("t",)), None)
        assert (total, [page.path for page in listed]) == (2, ["c", "d/e"])
        assert [(page.words, page.length) for page in listed] == [(1, 1), (1, 3)]
        assert index.list_pages(PageFilter(), 5, 10) == (4, [])

    def test_links_are_found_from_both_ends(self, index: WikiIndex) -> None:
        targets = ["My Page", "../Home.md", "https://example.org"]
        one = make_page("dir/one.md", "x", links=targets)
        put_pages(index, one, make_page("my_page.md", "y"), make_page("a/My-Page.md", "z"))
        page = index.find_page("dir/one")
        assert page is not None
        links = index.get_links([page.page_id])
        assert [(link.target, link.line, link.wiki, link.paths) for link in links] == [
            ("My Page", 1, True, ("My Page",)),
            ("../Home.md", 2, False, ("Home",)),
            ("https://example.org", 3, True, ()),
        ]
        assert index.get_links() == links
        assert [link.target for link in index.find_links_by_key(["my-page"])] == ["My Page"]
        assert [link.target for link in index.find_links_by_key(["home", "my-page", "none"])] == [
            "My Page",
            "../Home.md",
        ]
        assert {page.file for page in index.find_pages_by_key(["my-page"])} == {"my_page.md", "a/My-Page.md"}
        assert {page.file for page in index.find_pages_by_key(["a/my-page", "none"])} == {"a/My-Page.md"}
        assert (index.find_pages_by_key([]), index.get_links([]), index.find_links_by_key([])) == ([], [], [])
        index.apply(IndexChange(deleted=("dir/one.md",)))
        assert index.get_links() == index.find_links_by_key(["my-page"]) == []
        assert index.check() == []

    def test_many_keys_in_one_query(self, index: WikiIndex) -> None:
        names = [f"p{number}" for number in range(1200)]
        put_pages(index, *(make_page(f"{name}.md", links=["p0"]) for name in names))
        assert len(index.find_pages_by_key(names)) == 1200
        assert len(index.find_links_by_key(names)) == 1200
        assert len(index.get_links([page.page_id for page in index.find_pages_by_key(names)])) == 1200

    def test_facets_fold_case_and_count_matching_pages(self, index: WikiIndex) -> None:
        pages = [make_page(f"x/{i}.md", "a", tags=["Soil"], category="Guide") for i in range(2)]
        pages.append(make_page("y.md", "a", tags=["soil", "Air"], category="guide"))
        put_pages(index, *pages)
        facets = index.get_facets(PageFilter())
        assert facets.pages == 3
        assert [(facet.value, facet.count) for facet in facets.tags] == [("Soil", 3), ("Air", 1)]
        assert [(facet.value, facet.count) for facet in facets.categories] == [("Guide", 3)]
        assert [(facet.value, facet.count) for facet in facets.folders] == [("x", 2)]
        assert [facet.value for facet in index.get_facets(PageFilter(tags=("air",))).tags] == ["Air", "soil"]

    def test_tags_are_the_same_in_the_plural(self, index: WikiIndex) -> None:
        tags = {"a": ["Assignee"], "b": ["assignees", "assignee"], "c": ["assignees"], "d": ["class"], "e": ["news"]}
        put_pages(index, *(make_page(f"{name}.md", "x", tags=values) for name, values in tags.items()))
        counts = sorted(facet.count for facet in index.get_facets(PageFilter()).tags)
        assert counts == [1, 1, 3]
        for tag in ("assignee", "ASSIGNEES"):
            _, pages = index.list_pages(PageFilter(tags=(tag,)), None)
            assert [page.path for page in pages] == ["a", "b", "c"]
        assert index.list_pages(PageFilter(tags=("new",)), None) == (0, [])

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("status=draft", {"a", "c"}),
            ("STATUS = Draft", {"a", "c"}),
            ("status!=draft", {"b"}),
            ("owner=ann", {"a", "b"}),
            ("owner=Ann Lee", {"c"}),
            ("owner!=ann", {"c"}),
            ("priority=3", {"a"}),
            ("priority>=3", {"a", "b"}),
            ("priority>3", {"b"}),
            ("priority<3", {"c"}),
            ("priority<=-1.5", {"c"}),
            ("due-date<2026-01-01", {"a"}),
            ("due date<=2026-01-01", {"a", "b"}),
            ("due_date=2026-01-01", {"b"}),
            ("duedate>2026-01-01", {"c"}),
            ("duedate>=2026-01-01", {"b", "c"}),
            ("due-date>2026-01-01T09:00", {"b", "c"}),
            ("due-date>3", set()),
            ("status>3", set()),
            ("nothing=x", set()),
            ("nothing!=x", set()),
            ("größe=schräg & 'quoted' \\ \"x\"", {"a"}),
            ('a.b\'s $[0] "n"=x', {"a"}),
        ],
    )
    def test_pages_are_filtered_by_any_property(self, index: WikiIndex, condition: str, expected: set[str]) -> None:
        pages = {
            "a": {"Status": ["Draft"], "owner": ["Ann"], "priority": ["3.0"], "due date": ["2025-12-31"]},
            "b": {"status": ["final"], "owner": ["Bob", "ann"], "priority": ["10"], "due_date": ["2026-01-01T12:00"]},
            "c": {"status": ["draft"], "owner": ["Ann  Lee"], "priority": ["-1.5"], "due-date": ["2026-01-02"]},
            "d": {},
        }
        pages["a"] |= {"Größe": ["schräg & 'quoted' \\ \"x\""], 'a.b\'s $[0] "n"': ["x"]}
        put_pages(
            index,
            *(
                make_page(f"{name}.md", "needle", metadata=_make_metadata(properties))
                for name, properties in pages.items()
            ),
        )
        where = PageFilter(properties=(parse_condition(condition),))
        assert {page.path for page in index.list_pages(where, None)[1]} == expected
        hits = index.search_keywords(KeywordQuery(terms=("needle",)), 10, where)
        assert {index.get_pages([hit.page_id])[hit.page_id].path for hit in hits} == expected
        assert index.get_facets(where).pages == len(expected)
        assert index.check() == []

    def test_facets_of_properties_count_pages_by_folded_value(self, index: WikiIndex) -> None:
        values: Sequence[Sequence[str]] = (["Draft"], ["Draft", "draft"], ["draft", "Final"], ["final"], [])
        pages = [
            make_page(f"{i}.md", "x", tags=[f"t{i}"], metadata=_make_metadata({"Status": status}))
            for i, status in enumerate(values)
        ]
        put_pages(index, *pages)
        (facets, missing) = index.get_facets(PageFilter(), ["status", "no-such"]).properties
        assert (facets.name, [(facet.value, facet.count) for facet in facets.values]) == (
            "status",
            [("draft", 3), ("Final", 2)],
        )
        assert (missing.name, missing.values) == ("no-such", ())
        (names,) = index.get_facets(PageFilter(), [ALL_PROPERTIES]).properties
        assert [(facet.value, facet.count) for facet in names.values] == [("status", 4)]
        (facets,) = index.get_facets(PageFilter(tags=("t3",)), ["STATUS"]).properties
        assert [(facet.value, facet.count) for facet in facets.values] == [("final", 1)]

    def test_alternatives_exclusions_and_titles(self, index: WikiIndex) -> None:
        aliases = PageMetadata(aliases=("Café crème",))
        put_pages(
            index,
            make_page("ops/a.md", "x", tags=["One"]),
            make_page("ops/b.md", "x", tags=["two"], metadata=aliases),
            make_page("dev/Coffee.md", "x"),
        )

        def find(where: PageFilter) -> list[str]:
            return [page.path for page in index.list_pages(where, None)[1]]

        one, two, ops = PageFilter(tags=("one",)), PageFilter(tags=("two",)), PageFilter(path_prefix="ops")
        assert find(PageFilter(any_of=((one, two),))) == ["ops/a", "ops/b"]
        assert find(PageFilter(any_of=((one, two), (two, PageFilter(path_prefix="dev"))))) == ["ops/b"]
        assert find(PageFilter(none_of=(one,))) == ["dev/Coffee", "ops/b"]
        assert find(PageFilter(none_of=(one, ops))) == ["dev/Coffee"]
        assert find(PageFilter(none_of=(PageFilter(categories=("x",)),))) == ["dev/Coffee", "ops/a", "ops/b"]
        assert find(PageFilter(languages=("x",))) == []
        assert find(PageFilter(titles=("COFF",))) == ["dev/Coffee"]
        assert find(PageFilter(titles=("cafe", "Crème"))) == ["ops/b"]
        assert find(PageFilter(titles=("%",))) == []

    def test_the_numbers_of_properties_are_listed_by_path(self, index: WikiIndex) -> None:
        pages: Mapping[str, Mapping[str, Sequence[str]]] = {
            "a": {"nav_order": ["2"], "weight": ["1.5"]},
            "b": {"Nav order": ["x", "-3", "7"]},
            "c": {"nav_order": ["first"]},
            "d": {"other": ["1"]},
            "e": {},
        }
        put_pages(
            index, *(make_page(f"{name}.md", "x", metadata=_make_metadata(fields)) for name, fields in pages.items())
        )
        assert index.get_numbers(["nav_order", "weight"]) == {"a": 2.0, "b": -3.0}
        assert index.get_numbers(["weight", "nav_order"]) == {"a": 1.5, "b": -3.0}
        assert index.get_numbers(["none"]) == index.get_numbers([]) == {}

    def test_pages_are_filtered_and_counted_by_language(self, index: WikiIndex) -> None:
        languages = {"a": "german", "b": "english", "c": "german", "d": "greek", "e": None}
        metadata = {name: PageMetadata(language=language) for name, language in languages.items()}
        hidden = make_page("h.md", "x", metadata=PageMetadata(language="dutch", hidden=True))
        put_pages(index, hidden, *(make_page(f"{name}.md", "x", metadata=data) for name, data in metadata.items()))

        def find(*names: str) -> list[str]:
            where = PageFilter(languages=names)
            hits = index.search_keywords(KeywordQuery(terms=("x",)), 10, where)
            listed = [page.path for page in index.list_pages(where, None)[1]]
            assert sorted(index.get_pages([hit.page_id])[hit.page_id].path for hit in hits) == listed
            return listed

        assert find("german") == ["a", "c"]
        assert find("english", "greek") == ["b", "d"]
        assert find("french") == []
        assert list(index.count_languages().items()) == [("german", 2), ("english", 1), ("greek", 1)]

    def test_aliases_are_names_and_overrides_are_listed(self, index: WikiIndex) -> None:
        metadata = PageMetadata(aliases=("Old Name", "dir/Other"), boost=2.5, pins=("How  To", "how to"))
        put_pages(
            index,
            make_page("a.md", "x", metadata=metadata),
            make_page("old-name.md", "x"),
            make_page("c.md", "x", metadata=PageMetadata(pins=("x",))),
            make_page("hidden.md", "x", metadata=PageMetadata(pins=("x",), boost=2, hidden=True)),
        )
        assert {page.path: page.aliases for page in index.find_pages_by_key(["old-name"])} == {
            "a": ("Old Name", "dir/Other"),
            "old-name": (),
        }
        assert [page.path for page in index.find_pages_by_key(["dir/other", "none"])] == ["a"]
        assert [page.path for page in index.find_pages_by_key(["other"])] == []
        assert index.get_order_overrides() == [OrderOverride(1, 2.5, ("how to",)), OrderOverride(3, 1.0, ("x",))]
        put_pages(index, make_page("a.md", "x"))
        assert [override.page_id for override in index.get_order_overrides()] == [3]
        assert [page.path for page in index.find_pages_by_key(["dir/other"])] == []
        assert index.check() == []

    def test_the_vectors_of_pages_come_with_their_chunks(self, index: WikiIndex) -> None:
        one, two = make_page("a.md", "alpha", "beta"), make_page("b.md", "gamma")
        put_pages(index, one, two)
        rows = index.get_page_vectors([2, 1])
        assert rows.page_ids.tolist() == [1, 1, 2]
        np.testing.assert_array_equal(rows.vectors, np.concatenate([one.vectors, two.vectors]))
        assert (
            index.get_page_vectors([]).vectors.shape
            == index.get_page_vectors([99]).vectors.shape
            == (0, EMBEDDER.dimensions)
        )

    def test_means_of_pages_are_those_of_their_vectors(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha", "beta"), make_page("b.md", "gamma"))
        put_pages(index, make_page("a.md", "alpha", "delta", "epsilon"))
        page_ids = np.array([1, 2, 9])
        means, ahead = index.get_page_means(page_ids), index.read_ahead(page_ids[:1])
        rows = index.get_page_vectors([1, 2])
        if means is not None:  # a store may have none
            np.testing.assert_array_equal(means, compute_page_means(rows, page_ids))
        if ahead is not None:
            np.testing.assert_array_equal(np.sort(ahead.chunk_ids), rows.chunk_ids[rows.page_ids == 1])


def _make_metadata(properties: Mapping[str, Sequence[str]]) -> PageMetadata:
    return PageMetadata(properties=tuple(PageProperty(name, tuple(values)) for name, values in properties.items()))


_WIKI_ID, _OTHER_WIKI_ID, _MISSING_WIKI_ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"


class NotesConformance:
    """Notes, activity and disk use. Each test runs on a new store with one empty index."""

    def test_a_note_is_read_as_written_and_belongs_to_one_wiki(self, store: IndexStore, index: WikiIndex) -> None:
        assert index.check() == []
        assert store.get_note(_WIKI_ID, "health") is None
        for text in ('{"a": "é ☕"}', "", "x" * 10_000):
            store.set_note(_WIKI_ID, "health", text)
            assert (store.get_note(_WIKI_ID, "health"), store.get_note(_WIKI_ID, "reindex")) == (text, None)
        store.set_note(_OTHER_WIKI_ID, "health", "other", create=True)
        assert (store.get_note(_WIKI_ID, "health"), store.get_note(_OTHER_WIKI_ID, "health")) == ("x" * 10_000, "other")

    def test_a_note_recreates_a_removed_wiki_only_on_request(self, store: IndexStore) -> None:
        store.set_note(_MISSING_WIKI_ID, "health", "text")
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health"), store.list_wiki_ids()) == (
            False,
            None,
            [],
        )
        store.set_note(_MISSING_WIKI_ID, "health", "text", create=True)
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health")) == (True, "text")
        assert store.delete(_MISSING_WIKI_ID)
        assert (store.exists(_MISSING_WIKI_ID), store.get_note(_MISSING_WIKI_ID, "health")) == (False, None)

    def test_concurrent_notes_are_atomic(self, store: IndexStore, index: WikiIndex) -> None:
        texts = [str(number) * 2000 for number in range(8)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda text: store.set_note(_WIKI_ID, "health", text), texts))
        assert store.get_note(_WIKI_ID, "health") in texts
        assert index.check() == []

    def test_activity_is_readable_until_its_lock_is_released(self, store: IndexStore, index: WikiIndex) -> None:
        assert (index.check(), store.get_activity(_WIKI_ID)) == ([], None)
        with store.activity_lock(_WIKI_ID) as report:
            assert store.get_activity(_WIKI_ID) == ""
            for text in ("a long first note", "short"):
                report(text)
                assert store.get_activity(_WIKI_ID) == text
            with pytest.raises(Busy), store.activity_lock(_WIKI_ID):
                pass
            assert store.get_activity(_WIKI_ID) == "short"
            with store.activity_lock(_OTHER_WIKI_ID):
                assert store.get_activity(_OTHER_WIKI_ID) == ""
        assert (store.get_activity(_WIKI_ID), store.get_activity(_OTHER_WIKI_ID)) == (None, None)
        with store.activity_lock(_WIKI_ID):
            assert store.get_activity(_WIKI_ID) == "", "the text of the last holder is gone"

    def test_activity_lock_and_write_lock_are_independent(self, store: IndexStore, index: WikiIndex) -> None:
        with store.activity_lock(_WIKI_ID), store.write_lock(_WIKI_ID, 1.0):
            assert index.get_version() == 0
        with store.write_lock(_WIKI_ID, 1.0), store.activity_lock(_WIKI_ID) as report:
            report("here")
            assert store.get_activity(_WIKI_ID) == "here"

    def test_quarantined_indexes_are_listed_and_disk_use_is_counted(self, store: IndexStore, index: WikiIndex) -> None:
        index.close()
        assert store.list_quarantined(_WIKI_ID) == []
        assert store.get_disk_bytes(_WIKI_ID) > 0
        with store.write_lock(_WIKI_ID, 1.0):
            names = [store.quarantine(_WIKI_ID, "it was broken")]
        assert list(store.list_quarantined(_WIKI_ID)) == names
        assert store.get_disk_bytes(_WIKI_ID) > 0
        assert (store.get_disk_bytes(_MISSING_WIKI_ID), store.list_quarantined(_MISSING_WIKI_ID)) == (0, [])
