"""The fields of the keyword index and how much a word in each counts, the same in every store."""

FIELD_WEIGHTS: tuple[float, float, float] = (5.0, 2.0, 1.0)
"""Name, headings, body."""

K1 = 1.2
B = 0.75
"""BM25's constants, those of FTS5, so that a cache gives the scores the store gives."""

PREFIX_WEIGHT = 0.5
"""What a page counts that only holds a word beginning with the last word typed."""
