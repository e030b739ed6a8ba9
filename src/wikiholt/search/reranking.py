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

from wikiholt.domain.protocols import Reranker
from wikiholt.domain.search import SearchMode, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import ModelError, WikiholtError
from wikiholt.search.ranking import Candidate, Competition, compute_evidence, compute_likelihood, get_score_features
from wikiholt.text.model_text import to_plain_text

RERANK_DEPTH = 10
"""Pages that are read; docs/adr/0025 has what others give, and what they cost."""

NAME_WEIGHT, PASSAGE_WEIGHT = 0.2, 0.1
"""What the reader's word on a page's name, and on its passage, adds to evidence at most.

Wikis are mostly asked by names, and a reader that was trained on questions and answers knows least of those if it reads
the passage alone.
"""

_CLEAR_LOGIT = 12.0
"""The logit of a plain yes; that of a plain no is below nought by as much."""

_ODDS_WEIGHT, _NEUTRAL_LOGIT_SUM = 0.05, 6.0
"""How far the reader's two words move the odds that a page is right, and the sum that leaves them as they are."""

_PATH_SEPARATORS, _WORD_SEPARATORS = re.compile(r"[/.]"), re.compile(r"[-_]+")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RerankConfig:
    """A reader and the time it has for a search; one for all wikis of a process, and it keeps nothing of any."""

    get_reranker: Callable[[], Reranker]
    """Loads it when it is first needed; that takes longer than a search may, and is not counted."""
    timeout_s: float
    identity: str = ""
    """Differs for readers that may give another order."""


class RerankResult(NamedTuple):
    """Candidates in their order, and why they were not read, if they were not."""

    candidates: list[Candidate]
    error: str = ""


class RerankTexts(NamedTuple):
    """What is read of a page: its path and name, and its nearest passage."""

    name: str
    passage: str


class RerankScores(NamedTuple):
    """What the reader says to both, as logits."""

    name: float
    passage: float


class PageReranker:
    """Has the best pages of one wiki's searches read. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, config: RerankConfig) -> None:
        self._index = index
        self._config = config

    def rerank(
        self, query: str, mode: SearchMode, candidates: list[Candidate], competition: Competition
    ) -> RerankResult:
        """The same candidates, those that were read first; never raises for the reader's sake."""
        head = candidates[:RERANK_DEPTH]
        try:
            reader = self._config.get_reranker()
            until = time.monotonic() + self._config.timeout_s
            texts = self._get_texts(head)
            # Passages take longest: begun first, and names fill what is left of the workers' time.
            whole = list(dict.fromkeys([*(each.passage for each in texts), *(each.name for each in texts)]))
            logits = reader.score(query, whole, until - time.monotonic())
        except ModelError as error:
            _LOG.warning("not reranked: %s", error.message)
            return RerankResult(candidates, f"not reranked, for the reranker cannot be used ({error.code})")
        except WikiholtError:
            raise  # the index's
        except Exception:  # noqa: BLE001 - whatever a reader may do, the search is done
            _LOG.exception("not reranked")
            return RerankResult(candidates, "not reranked, for the reranker failed")
        if logits is None:
            _LOG.info("not reranked, for %.0f ms did not suffice", self._config.timeout_s * 1000)
            return RerankResult(candidates, "not reranked, for there was no time for it (rerank.budget)")
        said = dict(zip(whole, logits, strict=True))
        words = [RerankScores(said[each.name], said[each.passage]) for each in texts]
        return RerankResult(reorder_candidates(mode, head, words, competition) + candidates[RERANK_DEPTH:])

    def _get_texts(self, candidates: Sequence[Candidate]) -> list[RerankTexts]:
        pages = self._index.get_pages([each.page_id for each in candidates])
        chunks = self._index.get_chunks([each.chunk_id for each in candidates if each.chunk_id is not None])
        return [_make_texts(pages.get(each.page_id), chunks.get(each.chunk_id or 0)) for each in candidates]


def reorder_candidates(
    mode: SearchMode, candidates: Sequence[Candidate], scores: Sequence[RerankScores], competition: Competition
) -> list[Candidate]:
    """The candidates by evidence and the reader's words together, each with the score that follows."""
    told = [
        compute_evidence(mode, each) + NAME_WEIGHT * _to_share(word.name) + PASSAGE_WEIGHT * _to_share(word.passage)
        for each, word in zip(candidates, scores, strict=True)
    ]
    order = sorted(range(len(candidates)), key=lambda at: (-told[at], at))
    best: dict[int, float] = {}
    for at in order:
        best.setdefault(candidates[at].page_id, told[at])
    return [_with_likelihood(mode, candidates[at], told[at], scores[at], best, competition) for at in order]


def _with_likelihood(
    mode: SearchMode,
    candidate: Candidate,
    total: float,
    scores: RerankScores,
    total_by_page: Mapping[int, float],
    competition: Competition,
) -> Candidate:
    """A page with its score: it leads by evidence and the reader's words together, and they move the odds."""
    known = get_score_features(mode, candidate, competition)
    others = next((other for page_id, other in total_by_page.items() if page_id != candidate.page_id), None)
    lead = known.lead if others is None else total - others
    return candidate._replace(
        likelihood=_update_likelihood(compute_likelihood(mode, known._replace(lead=lead)), scores)
    )


def _to_share(logit: float) -> float:
    """A logit as a part of a plain yes."""
    return (_limit_logit(logit) + _CLEAR_LOGIT) / (2 * _CLEAR_LOGIT)


def _limit_logit(logit: float) -> float:
    return max(-_CLEAR_LOGIT, min(_CLEAR_LOGIT, logit))


def _update_likelihood(likelihood: float, scores: RerankScores) -> float:
    """The likelihood after the reader's words, which add to the logarithm of the odds."""
    odds = likelihood * math.exp(
        _ODDS_WEIGHT * (_limit_logit(scores.name) + _limit_logit(scores.passage) - _NEUTRAL_LOGIT_SUM)
    )
    return odds / (odds + 1 - likelihood)


def _make_texts(page: StoredPage | None, chunk: StoredChunk | None) -> RerankTexts:
    name = page.name if page is not None else ""
    way = format_path_words(page.path) if page is not None else ""
    return RerankTexts(f"{way}\n{name}".strip(), _make_passage(name, chunk))


def format_path_words(path: str) -> str:
    """The parts of a path as words; those that are numbers say nothing."""
    parts = (part for part in _PATH_SEPARATORS.split(path) if part != "_index" and any(map(str.isalpha, part)))
    return " / ".join(_WORD_SEPARATORS.sub(" ", part).strip() for part in parts)


def _make_passage(name: str, chunk: StoredChunk | None) -> str:
    """The page's name, the headings above the passage, and the passage as people see it."""
    passage = (to_plain_text(chunk.text) or chunk.text.strip()) if chunk is not None else ""
    begins = passage.casefold()
    parts: dict[str, str] = {}
    for part in (name, *(chunk.heading_path if chunk is not None else ())):
        # The name stands first in any case; headings that the passage itself begins with are not repeated.
        if part and not (parts and begins.startswith(part.casefold())):
            parts.setdefault(part.casefold(), part)
    return f"{' > '.join(parts.values())}\n{passage}".strip()
