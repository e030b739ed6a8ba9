"""Postings of one version and the pages changed since: one immutable state that a search works on from end to end.

Rows of changed pages follow the rows of the postings. A page that changed or went keeps its old row, marked dead, until
the next merge; the number of pages, their average length and every term's number of pages are counted over living rows
only, so scores are exact at every version. An update costs what changed, and a few nanoseconds a page for the copies.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.keywords.postings import Postings, RowNumbers, build_postings
from wikiholt.domain.index import FloatArray, IntArray, KeywordDelta, KeywordRow
from wikiholt.text.bm25 import K1, B, count_weighted_terms

MERGE_MIN_ROWS, MERGE_DIVISOR = 200, 20

DoubleArray = NDArray[np.float64]
PostingList = tuple[RowNumbers, FloatArray]
"""The rows that hold a term, and its count in each."""


@dataclass(frozen=True, slots=True)
class KeywordView:
    """The index at `version`. `alive` is None while no row is dead."""

    version: int
    postings: Postings
    added: Mapping[str, PostingList]
    added_terms: Sequence[str]
    added_rows: Mapping[int, int]
    page_ids: IntArray
    lengths: IntArray
    alive: NDArray[np.bool_] | None
    page_count: int
    norms: DoubleArray
    """What a page's length makes of its counts: BM25's k1 · (1 - b + b · length / average length)."""

    @property
    def changed_count(self) -> int:
        """How many rows were added since the postings, or are dead."""
        added = len(self.page_ids) - len(self.postings.page_ids)
        return max(added, len(self.page_ids) - self.page_count)

    @property
    def needs_merge(self) -> bool:
        """Whether so much has changed that it is worth a merge."""
        return self.changed_count > max(MERGE_MIN_ROWS, len(self.postings.page_ids) // MERGE_DIVISOR)

    def get_posting_list(self, term: str) -> PostingList | None:
        """The living rows that hold the term, or None when there are none."""
        number = self.postings.terms.find_number(term)
        found = []
        if number is not None:
            start, end = self.postings.offsets[number : number + 2].tolist()
            found.append((self.postings.rows[start:end], self.postings.counts[start:end]))
        if term in self.added:
            found.append(self.added[term])
        if not found:
            return None
        rows, counts = found[0] if len(found) == 1 else (np.concatenate(parts) for parts in zip(*found, strict=True))
        if self.alive is not None:
            living = self.alive[rows]
            rows, counts = rows[living], counts[living]
        return (rows, counts) if len(rows) else None

    def apply(self, delta: KeywordDelta) -> "KeywordView":
        """This state with a delta applied to it."""
        touched = np.concatenate([[row.page_id for row in delta.changed], delta.dropped]).astype(np.int64)
        start = len(self.page_ids)
        alive = np.ones(start + len(delta.changed), np.bool_)
        if self.alive is not None:
            alive[:start] = self.alive
        alive[self.postings.find_rows(touched)] = False
        added_rows = dict(self.added_rows)
        for page_id in touched.tolist():
            old = added_rows.pop(page_id, None)
            if old is not None:
                alive[old] = False
        added_rows.update((row.page_id, start + at) for at, row in enumerate(delta.changed))
        added, lengths = _append_terms(self.added, delta.changed, start)
        fresh = [term for term in added if term not in self.added]
        return _build_view(
            delta.version,
            self.postings,
            added,
            sorted([*self.added_terms, *sorted(fresh)]) if fresh else self.added_terms,
            added_rows,
            np.concatenate([self.page_ids, np.fromiter((row.page_id for row in delta.changed), np.int64)]),
            np.concatenate([self.lengths, lengths]),
            None if alive.all() else alive,
        )


def make_view(postings: Postings) -> KeywordView:
    """The state in which nothing has changed since."""
    return _build_view(postings.version, postings, {}, (), {}, postings.page_ids, postings.lengths, None)


def _build_view(
    version: int,
    postings: Postings,
    added: Mapping[str, PostingList],
    added_terms: Sequence[str],
    added_rows: Mapping[int, int],
    page_ids: IntArray,
    lengths: IntArray,
    alive: NDArray[np.bool_] | None,
) -> KeywordView:
    living = lengths if alive is None else lengths[alive]
    # Without a single term there is no average length, and nothing that could be found either.
    average = int(living.sum()) / len(living) if living.any() else 1.0
    norms: DoubleArray = K1 * (1 - B + B * lengths.astype(np.float64) / average)
    return KeywordView(version, postings, added, added_terms, added_rows, page_ids, lengths, alive, len(living), norms)


def _append_terms(
    added: Mapping[str, PostingList], changed: Sequence[KeywordRow], start: int
) -> tuple[dict[str, PostingList], IntArray]:
    """The lists with these pages' terms appended, and the pages' lengths."""
    fresh: defaultdict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    lengths = np.zeros(len(changed), np.int64)
    for at, row in enumerate(changed):
        counts, lengths[at] = count_weighted_terms(row.terms)
        for term, count in counts.items():
            rows, weights = fresh[term]
            rows.append(start + at)
            weights.append(count)
    joined = dict(added)
    for term, (rows, weights) in fresh.items():
        here = np.array(rows, np.int32), np.array(weights, np.float32)
        known = joined.get(term)
        joined[term] = (np.append(known[0], here[0]), np.append(known[1], here[1])) if known else here
    return joined, lengths


# Postings and what changed since, made into new postings: no text, no analyser, no store.


def merge_postings(view: KeywordView) -> Postings:
    """The view as postings of its version."""
    old = view.postings
    alive = np.ones(len(view.page_ids), np.bool_) if view.alive is None else view.alive
    kept = np.flatnonzero(alive)
    kept = kept[np.argsort(view.page_ids[kept], kind="stable")]
    new_row = np.full(len(alive), -1, np.int32)
    new_row[kept] = np.arange(len(kept), dtype=np.int32)

    terms = list(old.terms)
    numbers = {term: number for number, term in enumerate(terms)} if view.added else {}
    parts = [(np.repeat(np.arange(len(terms), dtype=np.int32), np.diff(old.offsets)), old.rows, old.counts)]
    for term, (rows, counts) in view.added.items():
        number = numbers.get(term, len(terms))
        if number == len(terms):
            terms.append(term)
        parts.append((np.full(len(rows), number, np.int32), rows, counts))
    which, rows, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    living = alive[rows]
    triples = which[living], new_row[rows[living]], counts[living]
    return build_postings(view.version, terms, triples, view.page_ids[kept], view.lengths[kept])
