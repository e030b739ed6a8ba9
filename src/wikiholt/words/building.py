"""From pages' words to postings, at about thirty bytes of memory a posting; the text itself is never kept."""

from array import array
from collections import defaultdict

import numpy as np

from wikiholt.model import KeywordRow
from wikiholt.text.fields import count_weighted_terms
from wikiholt.words.postings import Postings, build_postings


class PostingsBuilder:
    """Takes pages in any order, each once."""

    def __init__(self) -> None:
        self._term_numbers: defaultdict[str, int] = defaultdict()
        # A new term gets the next number, without leaving C for it.
        self._term_numbers.default_factory = self._term_numbers.__len__
        self._terms = array("i")
        self._counts = array("f")
        self._page_ids = array("q")
        self._lengths = array("q")
        self._distinct_counts = array("q")

    def add(self, row: KeywordRow) -> None:
        counts, length = count_weighted_terms(row.terms)
        self._terms.extend(map(self._term_numbers.__getitem__, counts))
        self._counts.extend(counts.values())
        self._page_ids.append(row.page_id)
        self._lengths.append(length)
        self._distinct_counts.append(len(counts))

    def build(self, version: int) -> Postings:
        page_ids = np.array(self._page_ids, np.int64)
        by_id = np.argsort(page_ids, kind="stable")
        row = np.empty(len(by_id), np.int32)
        row[by_id] = np.arange(len(by_id), dtype=np.int32)
        rows = np.repeat(row, np.array(self._distinct_counts, np.int64))
        triples = np.array(self._terms, np.int32), rows, np.array(self._counts, np.float32)
        lengths = np.array(self._lengths, np.int64)
        return build_postings(version, list(self._term_numbers), triples, page_ids[by_id], lengths[by_id])
