"""The best pages of a search read again, by a model that reads query and text together, within a time.

How many are read does not depend on how many hits are asked for, and whoever was not read comes after those who were;
so asking for more only lengthens the list. Where the reader is late or fails, the search stands as it was without it.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wikiholt.errors import ModelError, WikiholtError
from wikiholt.model import Mode, StoredChunk, StoredPage
from wikiholt.ports import Reranker, WikiIndex
from wikiholt.ranking import Candidate, Rivals, evidence, grounds, likelihood
from wikiholt.text.plain import plain_text

DEPTH = 10
"""Pages that are read; docs/adr/0025 has what others give, and what they cost."""

NAME_WEIGHT, PASSAGE_WEIGHT = 0.2, 0.1
"""What the reader's word on a page's name, and on its passage, adds to evidence at most.

Wikis are mostly asked by names, and a reader that was trained on questions and answers knows least of those if it reads
the passage alone.
"""

_CLEAR = 12.0
"""The logit of a plain yes; that of a plain no is below nought by as much."""

_PULL, _EVEN = 0.05, 6.0
"""How far the reader's two words move the odds that a page is right, and the sum that leaves them as they are."""

_PARTS, _JOINTS = re.compile(r"[/.]"), re.compile(r"[-_]+")

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


class Texts(NamedTuple):
    """What is read of a page: its path and name, and its nearest passage."""

    name: str
    passage: str


class Words(NamedTuple):
    """What the reader says to both, as logits."""

    name: float
    passage: float


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
            texts = self._texts(head)
            # Passages take longest: begun first, and names fill what is left of the workers' time.
            whole = list(dict.fromkeys([*(each.passage for each in texts), *(each.name for each in texts)]))
            logits = reader.scores(query, whole, until - time.monotonic())
        except ModelError as error:
            _LOG.warning("not reranked: %s", error.message)
            return Reread(best, f"not reranked, for the reranker cannot be used ({error.code})")
        except WikiholtError:
            raise  # the index's
        except Exception:  # noqa: BLE001 - whatever a reader may do, the search is done
            _LOG.exception("not reranked")
            return Reread(best, "not reranked, for the reranker failed")
        if logits is None:
            _LOG.info("not reranked, for %.0f ms did not suffice", self._reranking.seconds * 1000)
            return Reread(best, "not reranked, for there was no time for it (rerank.budget)")
        said = dict(zip(whole, logits, strict=True))
        words = [Words(said[each.name], said[each.passage]) for each in texts]
        return Reread(reordered(mode, head, words, among) + best[DEPTH:])

    def _texts(self, head: Sequence[Candidate]) -> list[Texts]:
        pages = self._index.stored_pages([each.page_id for each in head])
        chunks = self._index.stored_chunks([each.chunk_id for each in head if each.chunk_id is not None])
        return [_read_of(pages.get(each.page_id), chunks.get(each.chunk_id or 0)) for each in head]


def reordered(mode: Mode, head: Sequence[Candidate], words: Sequence[Words], among: Rivals) -> list[Candidate]:
    """The candidates by evidence and the reader's words together, each with the score that follows."""
    told = [
        evidence(mode, each) + NAME_WEIGHT * _share(word.name) + PASSAGE_WEIGHT * _share(word.passage)
        for each, word in zip(head, words, strict=True)
    ]
    order = sorted(range(len(head)), key=lambda at: (-told[at], at))
    best: dict[int, float] = {}
    for at in order:
        best.setdefault(head[at].page_id, told[at])
    return [_read(mode, head[at], told[at], words[at], best, among) for at in order]


def _read(
    mode: Mode, each: Candidate, amount: float, words: Words, best: Mapping[int, float], among: Rivals
) -> Candidate:
    """A page with its score: it leads by evidence and the reader's words together, and they move the odds."""
    known = grounds(mode, each, among)
    others = next((other for page_id, other in best.items() if page_id != each.page_id), None)
    lead = known.lead if others is None else amount - others
    return each._replace(likelihood=_moved(likelihood(mode, known._replace(lead=lead)), words))


def _share(logit: float) -> float:
    """A logit as a part of a plain yes."""
    return (_clear(logit) + _CLEAR) / (2 * _CLEAR)


def _clear(logit: float) -> float:
    return max(-_CLEAR, min(_CLEAR, logit))


def _moved(likely: float, words: Words) -> float:
    """The likelihood after the reader's words, which add to the logarithm of the odds."""
    odds = likely * math.exp(_PULL * (_clear(words.name) + _clear(words.passage) - _EVEN))
    return odds / (odds + 1 - likely)


def _read_of(page: StoredPage | None, chunk: StoredChunk | None) -> Texts:
    name = page.name if page is not None else ""
    way = path_in_words(page.path) if page is not None else ""
    return Texts(f"{way}\n{name}".strip(), _passage(name, chunk))


def path_in_words(path: str) -> str:
    """The parts of a path as words; those that are numbers say nothing."""
    parts = (part for part in _PARTS.split(path) if part != "_index" and any(map(str.isalpha, part)))
    return " / ".join(_JOINTS.sub(" ", part).strip() for part in parts)


def _passage(name: str, chunk: StoredChunk | None) -> str:
    """The page's name, the headings above the passage, and the passage as people see it."""
    passage = (plain_text(chunk.text) or chunk.text.strip()) if chunk is not None else ""
    begins = passage.casefold()
    parts: dict[str, str] = {}
    for part in (name, *(chunk.heading_path if chunk is not None else ())):
        # The name stands first in any case; headings that the passage itself begins with are not repeated.
        if part and not (parts and begins.startswith(part.casefold())):
            parts.setdefault(part.casefold(), part)
    return f"{' > '.join(parts.values())}\n{passage}".strip()
