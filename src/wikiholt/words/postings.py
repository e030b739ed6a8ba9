"""An inverted index of one version of a wiki: which pages hold a term, and how much."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import FloatArray, IntArray
from wikiholt.words.vocabulary import Vocabulary, make_vocabulary

RowNumbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Postings:
    """Immutable arrays, in memory or mapped from a file. A row is a page; rows are sorted by page id.

    The pages of term t are `rows[offsets[t]:offsets[t + 1]]`, ascending; `counts` beside them holds how often each
    page has the term, every occurrence counted with the weight of its field.
    """

    version: int
    terms: Vocabulary
    offsets: IntArray
    rows: RowNumbers
    counts: FloatArray
    page_ids: IntArray
    lengths: IntArray
    """How many terms each page has, over all fields."""

    def find_rows(self, page_ids: IntArray) -> IntArray:
        """The rows of those of these pages that are here."""
        places = np.searchsorted(self.page_ids, page_ids)
        places = places[places < len(self.page_ids)] if len(self.page_ids) else places[:0]
        return np.asarray(places[np.isin(self.page_ids[places], page_ids)], np.int64)


def build_postings(
    version: int, terms: Sequence[str], triples: tuple[RowNumbers, RowNumbers, FloatArray], page_ids: IntArray, lengths: IntArray
) -> Postings:
    """Postings from loose triples (number in `terms`, row, count); terms that nothing holds are left out."""
    numbers, rows, counts = triples
    held = np.bincount(numbers, minlength=len(terms))
    by_text = sorted(np.flatnonzero(held).tolist(), key=terms.__getitem__)
    place = np.zeros(len(terms), np.int32)
    place[by_text] = np.arange(len(by_text), dtype=np.int32)
    order = np.lexsort((rows, place[numbers]))
    offsets = np.zeros(len(by_text) + 1, np.int64)
    np.cumsum(held[by_text], out=offsets[1:])
    sorted_terms = make_vocabulary(terms[number] for number in by_text)
    return Postings(version, sorted_terms, offsets, rows[order], counts[order], page_ids, lengths)
