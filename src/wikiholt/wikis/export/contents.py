"""What an export contains: the pages that a search can find, with their passages and terms, read from an index."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.domain.page import PageTerms
from wikiholt.domain.search import PageFilter, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import Busy, IndexUnavailable, NothingIndexed
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.hits import strip_leading_headings
from wikiholt.search.spell_check import list_english_words
from wikiholt.text.analysis import Analyser, get_analyser, split_languages
from wikiholt.text.bm25 import NAME_MARK, count_weighted_terms
from wikiholt.text.dialect import Dialect
from wikiholt.text.display_text import to_display_text
from wikiholt.wikis.export.encoder import StaticEncoder, build_encoder

_NO_FILTER = PageFilter()


class ExportedPassage(NamedTuple):
    """The text of a passage as it is shown, and its place."""

    headings: tuple[str, ...]
    anchor: str
    text: str


class SearchedPage(NamedTuple):
    """A page with its passages. `length` is the number of its terms."""

    page: StoredPage
    length: int
    passages: tuple[ExportedPassage, ...]


@dataclass(frozen=True, slots=True)
class ExportContents:
    """Everything that an export makes public."""

    languages: tuple[str, ...]
    revision: str
    pages: tuple[SearchedPage, ...]
    postings: Mapping[str, Sequence[tuple[int, int]]]
    """Term → the pages that contain it, by their place in `pages`, and the weighted counts."""
    stems: Mapping[str, tuple[str, ...]]
    """Word → its term in each language, where it differs from the word."""
    encoder: StaticEncoder
    terms: Mapping[str, int]
    """Term → its place in the encoder."""


class _StoredPages(NamedTuple):
    """What is read from an index in one go."""

    revision: str
    pages: Sequence[StoredPage]
    terms: Mapping[int, PageTerms]
    chunks: Mapping[int, Sequence[StoredChunk]]
    vectors: Mapping[int, FloatArray]


def read_contents(index: WikiIndex, pipeline: TextPipeline) -> ExportContents:
    """Read the index with the pipeline that it was built with. Hidden pages are left out.

    Raises NothingIndexed, IndexUnavailable if passages have no vectors yet, and Busy if the index changes meanwhile.
    """
    stored = _read_index(index, pipeline)
    places = {page.page_id: place for place, page in enumerate(stored.pages)}
    counts = {page_id: count_weighted_terms(terms) for page_id, terms in stored.terms.items()}
    postings: dict[str, list[tuple[int, int]]] = {}
    for page_id, place in places.items():
        for term, count in counts[page_id][0].items():
            if term.startswith(NAME_MARK):
                continue  # the script compares names itself
            postings.setdefault(term, []).append((place, int(count)))
    pages = tuple(
        SearchedPage(
            page,
            counts[page.page_id][1],
            tuple(_show(chunk, pipeline.dialect) for chunk in stored.chunks.get(page.page_id, ())),
        )
        for page in stored.pages
    )
    encoder, terms = _fit_encoder(stored, get_analyser(pipeline.language))
    return ExportContents(
        tuple(split_languages(pipeline.language)),
        stored.revision,
        pages,
        postings,
        _find_stems(stored, pipeline.language, postings.keys() | terms.keys()),
        encoder,
        terms,
    )


def _read_index(index: WikiIndex, pipeline: TextPipeline) -> _StoredPages:
    version, state = index.get_version(), index.get_state()
    if state.revision is None or state.pending_chunks:
        raise IndexUnavailable("The index is not complete yet.", hint="Write `wikiholt sync` and export again.")
    with index.open_keywords() as snapshot:
        terms = {page_id: terms for page_id, terms in snapshot.iter_terms() if any(terms.fields)}
    _, listed = index.list_pages(_NO_FILTER, None)
    # A page that searches never return has no terms. The settings are asked too: the index may be older than they are.
    pages = [page for page in listed if page.page_id in terms and not pipeline.is_hidden(page.file)]
    if not pages:
        raise NothingIndexed("The wiki has no page that a search can find.", hint="`wikiholt status` says why.")
    pages.sort(key=lambda page: page.page_id)
    chunks = index.get_page_chunks([page.page_id for page in pages])
    with index.open_vector_snapshot() as vectors:
        rows = {
            chunk_id: vector
            for block in vectors.iter_blocks()
            for chunk_id, vector in zip(block.chunk_ids.tolist(), block.vectors, strict=True)
        }
    if index.get_version() != version:
        raise Busy("The index changed while it was read.", hint="Export again.")
    return _StoredPages(state.revision, pages, terms, chunks, rows)


def _show(chunk: StoredChunk, dialect: Dialect) -> ExportedPassage:
    text = to_display_text(strip_leading_headings(chunk.text), dialect).text
    return ExportedPassage(chunk.heading_path, chunk.anchor, text)


def _fit_encoder(stored: _StoredPages, analyser: Analyser) -> tuple[StaticEncoder, Mapping[str, int]]:
    terms: dict[str, int] = {}
    pages, vectors, term_counts = [], [], []
    for place, page in enumerate(stored.pages):
        for chunk in stored.chunks.get(page.page_id, ()):
            counts: dict[int, int] = {}
            for term in analyser.to_terms("\n".join((page.name, *chunk.heading_path, chunk.text))):
                number = terms.setdefault(term, len(terms))
                counts[number] = counts.get(number, 0) + 1
            pages.append(place)
            vectors.append(stored.vectors[chunk.chunk_id])
            term_counts.append(counts)
    if not vectors:
        nothing = np.zeros((0, 0), np.float32)
        return StaticEncoder(np.zeros(0, np.int64), nothing, nothing, np.zeros(0, np.float32)), {}
    return build_encoder(np.array(vectors), pages, term_counts, len(terms)), terms


def _find_stems(stored: _StoredPages, language: str, known: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The terms of all words of the pages, and of other English words if a page has another form of them."""
    languages = split_languages(language)
    texts = "\n".join(text for page in stored.pages for text in _iter_texts(page, stored.chunks.get(page.page_id, ())))
    analysers = [get_analyser(each) for each in languages]
    by_language = [analyser.find_word_stems(texts) for analyser in analysers]
    if "english" in languages:
        terms = frozenset(known)
        stems = by_language[languages.index("english")]
        added = get_analyser("english").find_word_stems("\n".join(list_english_words()))
        stems |= {word: stem for word, stem in added.items() if stem in terms and word not in stems}
    words = dict.fromkeys(word for stems in by_language for word in stems)
    found = {word: tuple(stems.get(word, word) for stems in by_language) for word in words}
    return {word: stems for word, stems in found.items() if any(stem != word for stem in stems)}


def _iter_texts(page: StoredPage, chunks: Iterable[StoredChunk]) -> Iterable[str]:
    yield from (page.name, page.path.replace("/", "\n"), *page.tags, *page.aliases)
    for chunk in chunks:
        yield from (*chunk.heading_path, chunk.text)
