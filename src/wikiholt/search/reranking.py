"""The best pages of a search read again, by a model that reads query and text together, within a time.

How many are read does not depend on how many hits are asked for, and whoever was not read comes after those who were;
so asking for more only lengthens the list. Where the reader is late or fails, the search stands as it was without it.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wikiholt.errors import ModelError
from wikiholt.model import Mode, StoredChunk, StoredPage
from wikiholt.ports import Reranker, WikiIndex
from wikiholt.ranking import Candidate, Rivals, evidence, grounds, likelihood
from wikiholt.text.plain import plain_text

DEPTH = 10
"""Pages that are read; docs/adr/0025 has what others give, and what they cost."""

READER_WEIGHT = 0.1
"""What the reader's word adds to evidence at most: a little, for it knows less of a wiki than names and words do."""

_CLEAR = 12.0
"""The logit of a plain yes; that of a plain no is below nought by as much."""

_PULL, _EVEN = 0.1, 2.0
"""How far the reader's word moves the odds that a page is right, and the logit that leaves them as they are."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reranking:
    """A reader and the time it has for a search; one for all wikis of a process, and it keeps nothing of any."""

    reader: Callable[[], Reranker]
    """Loads it when it is first needed; that takes longer than a search may, and is not counted."""
    seconds: float
    identity: str = ""
    """Differs for readers that may give another order."""


class Reread(NamedTuple):
    """Candidates in their order, and why they were not read, if they were not."""

    best: list[Candidate]
    fault: str = ""


class Rereader:
    """Has the best pages of one wiki's searches read. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, reranking: Reranking) -> None:
        self._index = index
        self._reranking = reranking

    def reread(self, query: str, mode: Mode, best: list[Candidate], among: Rivals) -> Reread:
        """The same candidates, those that were read first; never raises for the reader's sake."""
        head = best[:DEPTH]
        try:
            reader = self._reranking.reader()
            until = time.monotonic() + self._reranking.seconds
            logits = reader.scores(query, self._texts(head), until - time.monotonic())
        except ModelError as error:
            _LOG.warning("not reranked: %s", error.message)
            return Reread(best, f"not reranked, for the reranker cannot be used ({error.code()})")
        if logits is None:
            return Reread(best, "not reranked, for there was no time for it (rerank.budget)")
        return Reread(reordered(mode, head, logits, among) + best[DEPTH:])

    def _texts(self, head: Sequence[Candidate]) -> list[str]:
        pages = self._index.stored_pages([each.page_id for each in head])
        chunks = self._index.stored_chunks([each.chunk_id for each in head if each.chunk_id is not None])
        return [_text(pages.get(each.page_id), chunks.get(each.chunk_id or 0)) for each in head]


def reordered(mode: Mode, head: Sequence[Candidate], logits: Sequence[float], among: Rivals) -> list[Candidate]:
    """The candidates by evidence and the reader's word together, each with the score that follows."""
    said = [max(-_CLEAR, min(_CLEAR, logit)) for logit in logits]
    told = [
        evidence(mode, each) + READER_WEIGHT * (word + _CLEAR) / (2 * _CLEAR)
        for each, word in zip(head, said, strict=True)
    ]
    order = sorted(range(len(head)), key=lambda at: (-told[at], at))
    best: dict[int, float] = {}
    for at in order:
        best.setdefault(head[at].page_id, told[at])
    return [_read(mode, head[at], told[at], said[at], best, among) for at in order]


def _read(
    mode: Mode, each: Candidate, amount: float, word: float, best: Mapping[int, float], among: Rivals
) -> Candidate:
    """A page with its score: it leads by evidence and the reader's word together, and the word moves the odds."""
    known = grounds(mode, each, among)
    others = next((other for page_id, other in best.items() if page_id != each.page_id), None)
    lead = known.lead if others is None else amount - others
    return each._replace(likelihood=_moved(likelihood(mode, known._replace(lead=lead)), word))


def _moved(likely: float, word: float) -> float:
    """The likelihood after the reader's word, whose logit adds to the logarithm of the odds."""
    odds = likely * math.exp(_PULL * (word - _EVEN))
    return odds / (odds + 1 - likely)


def _text(page: StoredPage | None, chunk: StoredChunk | None) -> str:
    """What is read of a page: its name, the headings above the passage, the passage as people see it."""
    passage = (plain_text(chunk.text) or chunk.text.strip()) if chunk is not None else ""
    begins = passage.casefold()
    parts: dict[str, str] = {}
    for part in (page.name if page is not None else "", *(chunk.heading_path if chunk is not None else ())):
        # The name stands first in any case; headings that the passage itself begins with are not repeated.
        if part and not (parts and begins.startswith(part.casefold())):
            parts.setdefault(part.casefold(), part)
    return f"{' > '.join(parts.values())}\n{passage}".strip()
