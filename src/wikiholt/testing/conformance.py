"""Conformance tests of a store. Subclass `StoreConformance`, define the `store` fixture, and run with pytest."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from wikiholt.domain.index import IndexChange, IndexedPageMove, PageContents, Recipe
from wikiholt.domain.page import PageMetadata, PageProblem, PageProperty, PageTerms, PageWarnings
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import Busy, IndexForeign, IndexMissing, IndexUnavailable, WikiholtError
from wikiholt.testing.conformance_mixins import (
    EMBEDDER,
    ListingConformance,
    NotesConformance,
    make_page,
    put_pages,
)
from wikiholt.text.bm25 import build_name_terms, make_name_term

ONE, OTHER = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")


class StoreConformance(ListingConformance, NotesConformance):
    """Each test runs on a new store with one empty index."""

    @pytest.fixture
    def index(self, store: IndexStore) -> Iterator[WikiIndex]:
        index = store.create(ONE, RECIPE)
        yield index
        index.close()

    # ── create, open, delete ─────────────────────────────────────────────────────────────────────

    def test_a_new_index_is_empty_and_intact(self, index: WikiIndex) -> None:
        state = index.get_state()
        assert (state.pages, state.chunks, state.problems, state.revision, state.version) == (0, 0, 0, None, 0)
        assert state.recipe == RECIPE
        assert index.check() == []

    def test_an_index_that_was_never_created_is_missing(self, store: IndexStore) -> None:
        with pytest.raises(IndexMissing) as caught:
            store.open(ONE)
        assert caught.value.hint

    def test_creating_twice_keeps_the_pages(self, store: IndexStore, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"))
        again = store.create(ONE, RECIPE)
        assert list(again.get_page_blobs()) == ["a.md"]
        again.close()

    def test_delete_returns_the_deleted_names_and_keeps_other_wikis(self, store: IndexStore, index: WikiIndex) -> None:
        other = store.create(OTHER, RECIPE)
        put_pages(other, make_page("b.md", "beta"))
        index.close()
        assert store.delete(ONE)
        assert store.list_wiki_ids() == [OTHER]
        assert store.delete(ONE) == []
        assert list(other.get_page_blobs()) == ["b.md"]
        with pytest.raises(IndexMissing):
            store.open(ONE)
        other.close()

    @pytest.mark.parametrize("bad", ["", "..", "../x", "UPPER123", "a/b/c/d/e", "short", "x" * 65, "nul\0nulnul"])
    def test_only_opaque_ids_name_an_index(self, store: IndexStore, bad: str) -> None:
        with pytest.raises(WikiholtError):
            store.create(bad, RECIPE)

    # ── changes ──────────────────────────────────────────────────────────────────────────────────

    def test_a_page_is_stored_with_its_metadata_and_chunks(self, index: WikiIndex) -> None:
        when = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
        put_pages(index, make_page("Dir/a.md", "alpha", "beta", tags=["X"], category="C", updated=when))
        page = index.find_page("Dir/a")
        assert page is not None
        assert (page.name, page.tags, page.category, page.last_updated, page.chunks) == ("a", ("X",), "C", when, 2)
        chunks = index.get_page_chunks([page.page_id])[page.page_id]
        assert [(c.number, c.text, c.heading_path) for c in chunks] == [
            (0, "alpha", ("Heading",)),
            (1, "beta", ("Heading",)),
        ]
        assert index.get_chunks([c.chunk_id for c in chunks]).keys() == {c.chunk_id for c in chunks}
        assert index.find_page("dir/A") is None
        assert index.check() == []

    def test_applying_a_change_twice_changes_nothing_more(self, index: WikiIndex) -> None:
        change = IndexChange(pages=(make_page("a.md", "alpha", "beta"),), revision="r1")
        version = index.apply(change)
        chunks = index.get_page_chunks([1])
        assert index.apply(change) == version
        assert index.get_page_chunks([1]) == chunks

    def test_the_old_text_of_a_changed_page_is_gone(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha", "beta"))
        put_pages(index, make_page("a.md", "gamma"))
        assert index.get_state().chunks == 1
        assert not index.search_keywords(KeywordQuery(terms=("beta",)), 10, PageFilter())
        assert index.search_keywords(KeywordQuery(terms=("gamma",)), 10, PageFilter())
        hits = index.search_vectors(EMBEDDER.embed_query("beta"), 10, None)
        assert [c.text for c in index.get_chunks(hits.chunk_ids.tolist()).values()] == ["gamma"]
        assert index.check() == []

    def test_deleted_page_leaves_both_channels(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"), make_page("b.md", "beta"))
        index.apply(IndexChange(deleted=("a.md", "never-there.md")))
        assert list(index.get_page_blobs()) == ["b.md"]
        assert not index.search_keywords(KeywordQuery(terms=("alpha",)), 10, PageFilter())
        assert len(index.search_vectors(EMBEDDER.embed_query("alpha"), 10, None).chunk_ids) == 1
        assert index.check() == []

    def test_problems_replace_pages_and_pages_replace_problems(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"))
        index.apply(IndexChange(problems=(PageProblem("a.md", "blob", "binary", "not text"),)))
        assert index.get_page_blobs() == {}
        assert [problem.reason for problem in index.get_problems()] == ["binary"]
        put_pages(index, make_page("a.md", "alpha"))
        assert index.get_problems() == []
        assert index.check() == []

    def test_pages_with_warnings_are_counted_and_listed_by_file(self, index: WikiIndex) -> None:
        assert index.list_warnings(5) == (0, [])
        one, other, odd = "`date` is 'none'; \u2028\x01", "not closed", "a\x01'.md"
        put_pages(index, make_page("c.md", "x", warnings=[other]), make_page("b.md", "x", warnings=[one, other]))
        put_pages(index, make_page(odd, "x", warnings=[other]), make_page("fine.md", "x"))
        first, second = PageWarnings(odd, (other,)), PageWarnings("b.md", (one, other))
        assert index.list_warnings(2) == (3, [first, second])
        put_pages(index, make_page("b.md", "y"))
        assert index.list_warnings(5) == (2, [first, PageWarnings("c.md", (other,))])

    def test_a_change_that_fails_leaves_no_trace(self, index: WikiIndex) -> None:
        good, bad = make_page("a.md", "alpha"), make_page("b.md", "beta", "gamma")
        broken = type(bad)(bad.blob, bad.page, bad.chunks, bad.hashes, bad.vectors[:1], bad.terms)
        before = index.get_state()
        with pytest.raises(ValueError, match="zip"):
            put_pages(index, good, broken, revision="r1")
        assert index.get_state() == before
        assert index.check() == []

    def test_the_version_grows_with_every_change(self, index: WikiIndex) -> None:
        versions = [put_pages(index, make_page("a.md", text)) for text in "abc"]
        assert versions == [1, 2, 3]
        assert index.get_version() == 3

    def test_vectors_are_found_again_by_the_hash_of_their_text(self, index: WikiIndex) -> None:
        stored = make_page("a.md", "alpha", "beta")
        put_pages(index, stored)
        vectors = index.find_vectors_by_hash([*stored.hashes, b"no such hash"])
        assert vectors.keys() == set(stored.hashes)
        np.testing.assert_array_equal(vectors[stored.hashes[1]], stored.vectors[1])

    def test_contents_of_pages_are_read_as_they_were_stored(self, index: WikiIndex) -> None:
        metadata = PageMetadata(aliases=("X",), properties=(PageProperty("K", ("1",)),))
        links = ["other.md", "wiki"]
        stored = make_page("a.md", "alpha", "bet\u0101", tags=["T"], links=links, metadata=metadata)
        put_pages(index, stored, make_page("b.md"))
        contents = index.get_page_contents(["a.md", "b.md", "gone.md"])
        assert contents.keys() == {"a.md", "b.md"}
        assert contents["a.md"] == PageContents("a", False, ("T",), ("X",), (), frozenset({"k"}), 2, stored.page.links)

    def test_a_moved_page_keeps_its_chunks(self, index: WikiIndex) -> None:
        stored = make_page("a.md", "alpha", "beta", tags=["T"], links=["c.md"])
        problem = PageProblem("dir/b.md", "blob", "binary", "not text")
        version = put_pages(index, stored, make_page("c.md", "gamma"), problems=(problem,))
        page = index.find_page("a")
        assert page is not None
        chunks = index.get_page_chunks([page.page_id])
        change = IndexChange(
            moved=(IndexedPageMove("a.md", "dir/b.md", "dir/b", "New", ("a",), None, "new dir b a", None),)
        )
        assert index.apply(change) == version + 1
        assert dict(index.get_page_blobs())["dir/b.md"] == stored.blob
        assert index.find_page("a.md") is None
        moved = index.find_page("dir/b")
        assert moved is not None
        assert (moved.page_id, moved.name, moved.aliases, moved.tags) == (page.page_id, "New", ("a",), ("T",))
        assert index.get_page_chunks([page.page_id]) == chunks
        assert index.get_problems() == []
        for word, pages in (("new", 1), ("beta", 1), ("heading", 2)):
            assert len(index.search_keywords(KeywordQuery(terms=(word,)), 10, PageFilter())) == pages
        assert index.get_page_contents(["dir/b.md"])["dir/b.md"].links == stored.page.links
        assert index.apply(change) == version + 1
        assert index.check() == []

    def test_a_move_may_replace_the_links_of_a_page(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha", links=["c.md", "x.md"]))
        links = make_page("dir/b.md", links=["c.md"]).page.links
        index.apply(IndexChange(moved=(IndexedPageMove("a.md", "dir/b.md", "dir/b", "b", (), None, "b", links),)))
        assert index.get_page_contents(["dir/b.md"])["dir/b.md"].links == links
        assert len(index.find_links_by_key(["dir/c"])) == 1
        assert not index.find_links_by_key(["c"])
        assert index.check() == []

    # ── search ───────────────────────────────────────────────────────────────────────────────────

    def test_words_rank_rarer_and_more_frequent_words_higher(self, index: WikiIndex) -> None:
        pages = [make_page(f"{i}.md", "common filler text") for i in range(5)]
        pages += [make_page("once.md", "rare common"), make_page("twice.md", "rare rare")]
        put_pages(index, *pages)
        hits = index.search_keywords(KeywordQuery(terms=("common", "rare")), 10, PageFilter())
        names = [index.get_pages([hit.page_id])[hit.page_id].name for hit in hits]
        assert set(names[:2]) == {"once", "twice"}
        assert len(hits) == 7
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_phrases_exclusions_and_prefixes(self, index: WikiIndex) -> None:
        texts = {"a.md": "red green blue", "b.md": "green red blue", "c.md": "greenhouse red"}
        put_pages(index, *(make_page(file, text) for file, text in texts.items()))

        def find_names(query: KeywordQuery) -> set[str]:
            hits = index.search_keywords(query, 10, PageFilter())
            return {page.name for page in index.get_pages([hit.page_id for hit in hits]).values()}

        assert find_names(KeywordQuery(phrases=(("red", "green"),))) == {"a"}
        assert find_names(KeywordQuery(terms=("red",), excluded=(("blue",),))) == {"c"}
        assert find_names(KeywordQuery(terms=("blue",), phrases=(("green", "red"),))) == {"b"}
        assert find_names(KeywordQuery(terms=("green",), prefix="green")) == {"a", "b", "c"}
        assert find_names(KeywordQuery(terms=('"', "OR", "NEAR(", "*"))) == set()
        matching = index.find_matching_page_ids(
            KeywordQuery(phrases=(("red",),), excluded=(("green", "blue"),))
        ).tolist()
        assert {page.name for page in index.get_pages(matching).values()} == {"b", "c"}
        assert index.count_pages(["red", "green", "nowhere"]) == {"red": 3, "green": 2, "nowhere": 0}

    def test_a_page_is_found_by_the_term_of_any_of_its_names(self, index: WikiIndex) -> None:
        names = {"guides/set_up.md": "Réglages: ½ “x” 🫠", "guides/other.md": "a\u200db", "guides/empty.md": "日本語"}
        entries = [make_page(file, "text") for file in names]
        pages = [
            replace(
                entry, terms=PageTerms(build_name_terms(names[entry.page.file], entry.page.path, (), (), ""), "", "")
            )
            for entry in entries
        ]
        put_pages(index, *pages)

        def find_files(name: str) -> list[str]:
            found = index.find_matching_page_ids(KeywordQuery(phrases=((make_name_term(name),),)))
            return sorted(page.file for page in index.get_pages(found.tolist()).values())

        for page in entries:
            for name in (names[page.page.file], page.page.file, page.page.path, page.page.file.rpartition("/")[2]):
                assert find_files(name) == [page.page.file]
        assert find_files("guides") == []

    def test_filters_apply_to_both_channels_before_the_limit(self, index: WikiIndex) -> None:
        old, new = datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
        many = [make_page(f"noise/{i}.md", "needle", updated=old) for i in range(40)]
        one = make_page("ops/backup.md", "needle in other words", tags=["Ops"], category="Guide", updated=new)
        put_pages(index, *many, one)
        for where in (
            PageFilter(tags=("ops",)),
            PageFilter(categories=("guide", "none")),
            PageFilter(path_prefix="ops"),
            PageFilter(path_prefix="ops/backup"),
            PageFilter(updated_since=new),
        ):
            allowed = index.filter_page_ids(where)
            assert allowed is not None
            assert len(index.search_vectors(EMBEDDER.embed_query("needle"), 3, allowed).chunk_ids) == 1
            assert len(index.search_keywords(KeywordQuery(terms=("needle",)), 3, where)) == 1
        none = index.filter_page_ids(PageFilter(path_prefix="op"))
        assert none is not None
        assert len(none) == 0
        assert index.filter_page_ids(PageFilter()) is None

    def test_nearest_is_exact_and_ordered(self, index: WikiIndex) -> None:
        texts = [f"word{i} word{i % 7} word{i % 3}" for i in range(60)]
        put_pages(index, *(make_page(f"{i}.md", text) for i, text in enumerate(texts)))
        query = EMBEDDER.embed_query("word3 word5")
        hits = index.search_vectors(query, 10, None)
        expected = np.sort(1 - EMBEDDER.embed_passages(texts) @ query)[:10]
        np.testing.assert_allclose(hits.distances, expected, atol=1e-5)

    # ── caches ───────────────────────────────────────────────────────────────────────────────────

    def test_a_snapshot_does_not_see_later_writes(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"))
        with index.open_vector_snapshot() as snapshot, index.open_keywords() as keywords:
            put_pages(index, make_page("b.md", "beta"))
            assert sum(len(block.chunk_ids) for block in snapshot.iter_blocks()) == 1
            assert [terms.body for _, terms in keywords.iter_terms()] == ["alpha"]
            assert keywords.version == snapshot.version == 1

    def test_the_key_of_a_page_changes_with_its_terms(self, index: WikiIndex) -> None:
        put_pages(index, *(make_page(f"{name}.md", name) for name in ("alpha", "beta", "gamma")))
        with index.open_keywords() as keywords:
            before = set(keywords.page_keys.tolist())
            assert [key >> 32 for key in sorted(before)] == [page_id for page_id, _ in keywords.iter_terms()]
        put_pages(index, make_page("alpha.md", "alpha two"), make_page("delta.md", "delta"), deleted=("beta.md",))
        with index.open_keywords() as keywords:
            after = set(keywords.page_keys.tolist())
            changed = sorted(key >> 32 for key in after - before)
            assert {terms.body for _, terms in keywords.iter_terms(changed)} == {"alpha two", "delta"}
            assert len(before & after) == 1

    def test_terms_are_counted_by_pages(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha alpha über"), make_page("b.md", "beta"))
        put_pages(index, make_page("b.md", "beta alpha"), make_page("c.md", "gamma"))
        put_pages(index, deleted=("c.md",))
        version, counts = index.count_terms()
        assert version == index.get_version()
        assert list(counts) == sorted(counts)
        assert {term: counts.get(term) for term in ("alpha", "beta", "über", "gamma")} == {
            "alpha": 2,
            "beta": 1,
            "über": 1,
            "gamma": None,
        }

    # ── generations, locks, backups, threads ─────────────────────────────────────────────────────

    def test_a_generation_is_used_only_once_published(self, store: IndexStore, index: WikiIndex) -> None:
        put_pages(index, make_page("old.md", "old"), revision="r1")
        recipe = Recipe("other", EMBEDDER.dimensions, "test")
        building = store.create_generation(ONE, recipe)
        put_pages(building, make_page("new.md", "new"), revision="r2")
        building.close()
        serving = store.open(ONE)
        assert list(serving.get_page_blobs()) == ["old.md"]
        serving.close()
        resumed = store.create_generation(ONE, recipe)
        assert list(resumed.get_page_blobs()) == ["new.md"]
        store.publish(ONE, resumed.generation)
        assert store.get_published(ONE) == resumed.generation
        resumed.close()
        published = store.open(ONE)
        assert list(published.get_page_blobs()) == ["new.md"]
        assert published.get_state().recipe == recipe
        published.close()
        assert list(index.get_page_blobs()) == ["old.md"], "an open reader keeps its generation"

    def test_a_generation_records_its_model(self, store: IndexStore) -> None:
        recipe = Recipe("m/int8/1234", EMBEDDER.dimensions, "test", "models/m", "int8")
        store.create(ONE, recipe).close()
        opened = store.open(ONE)
        kept = opened.get_state().recipe
        opened.close()
        assert (kept.model, kept.precision) == ("models/m", "int8")
        assert kept == Recipe("m/int8/1234", EMBEDDER.dimensions, "test", "moved/m", "int8"), (
            "the model's location is not compared"
        )

    def test_the_change_token_changes_with_every_write(self, store: IndexStore) -> None:
        with store.write_lock(ONE, 0):
            index = store.create(ONE, RECIPE)
            put_pages(index, make_page("a.md", "alpha"), revision="r1")
            index.close()
        before = store.get_change_token(ONE)
        assert store.get_change_token(ONE) == before
        index = store.open(ONE)
        index.apply(IndexChange(deleted=("a.md",)))
        index.close()
        assert store.get_change_token(ONE) != before

    def test_a_check_can_be_stopped(self, index: WikiIndex) -> None:
        put_pages(index, make_page("a.md", "alpha"))
        with pytest.raises(Busy):
            index.check(lambda: True)
        assert index.check(lambda: False) == []

    def test_one_writer_at_a_time(self, store: IndexStore) -> None:
        with store.write_lock(ONE, 0), pytest.raises(Busy) as caught, store.write_lock(ONE, 0.05):
            pass
        assert caught.value.hint
        with store.write_lock(ONE, 0), store.write_lock(OTHER, 0):
            assert True

    def test_a_backup_is_a_complete_copy(self, store: IndexStore, index: WikiIndex, tmp_path: Path) -> None:
        put_pages(index, make_page("a.md", "alpha"), revision="r1")
        state = index.write_backup(tmp_path / "copy")
        index.apply(IndexChange(deleted=("a.md",), revision="r2"))
        copy = store.open_backup(tmp_path / "copy")
        assert copy.get_state() == state
        assert copy.check() == []
        assert list(copy.get_page_blobs()) == ["a.md"]
        copy.close()

    def test_a_backup_can_be_stopped(self, index: WikiIndex, tmp_path: Path) -> None:
        put_pages(index, make_page("a.md", "alpha"))
        with pytest.raises(Busy):
            index.write_backup(tmp_path / "copy", lambda: True)

    def test_an_imported_backup_is_used_only_once_published(
        self, store: IndexStore, index: WikiIndex, tmp_path: Path
    ) -> None:
        put_pages(index, make_page("a.md", "alpha"), revision="r1")
        index.write_backup(tmp_path / "copy")
        index.apply(IndexChange(deleted=("a.md",), revision="r2"))
        generation = store.import_backup(ONE, tmp_path / "copy")
        assert generation > index.generation == store.get_published(ONE)
        assert list(index.get_page_blobs()) == []
        store.publish(ONE, generation)
        restored = store.open(ONE)
        assert (restored.generation, restored.get_state().revision, list(restored.get_page_blobs())) == (
            generation,
            "r1",
            ["a.md"],
        )
        assert restored.check() == []
        restored.close()

    def test_a_backup_of_another_wiki_is_not_imported(
        self, store: IndexStore, index: WikiIndex, tmp_path: Path
    ) -> None:
        put_pages(index, make_page("a.md", "alpha"), revision="r1")
        index.write_backup(tmp_path / "copy")
        copy = store.open_backup(tmp_path / "copy")
        assert index.wiki_id == copy.wiki_id == ONE
        copy.close()
        with pytest.raises(IndexForeign) as caught:
            store.import_backup(OTHER, tmp_path / "copy")
        assert caught.value.hint
        assert store.get_published(OTHER) is None

    def test_an_invalid_backup_is_refused_and_changes_nothing(
        self, store: IndexStore, index: WikiIndex, tmp_path: Path
    ) -> None:
        (tmp_path / "invalid").write_bytes(b"no index at all")
        for file in (tmp_path / "invalid", tmp_path / "missing"):
            with pytest.raises(IndexUnavailable):
                store.open_backup(file)
            with pytest.raises(IndexUnavailable):
                store.import_backup(ONE, file)
        assert store.get_published(ONE) == index.generation

    def test_readers_see_complete_pages_while_a_writer_replaces_them(self, index: WikiIndex) -> None:
        def make_texts(round_number: int) -> list[str]:
            return [f"round {round_number} chunk {i}" for i in range(5)]

        put_pages(index, make_page("a.md", *make_texts(0)))

        def read() -> set[str]:
            chunks = index.get_page_chunks([1])[1]
            return {chunk.text.split(" chunk")[0] for chunk in chunks} | {str(len(chunks))}

        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(read) for _ in range(200)]
            for round_number in range(1, 30):
                put_pages(index, make_page("a.md", *make_texts(round_number)))
            for future in reads:
                assert len(future.result()) == 2
                assert "5" in future.result()
