"""Postings and what changed since, made into new postings: no text, no analyser, no store."""

import numpy as np

from wikiholt.words.postings import Postings, build_postings
from wikiholt.words.view import KeywordView


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
