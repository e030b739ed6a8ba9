"""Reranks the best pages of a search with a model that reads query and text together, within a time limit.

The number of pages read does not depend on n, and pages that were not read come after those that were, so a larger n
only lengthens the list. If the reranker is late or fails, the results keep their order.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wikiholt.domain.protocols import Reranker
from wikiholt.domain.search import SearchInterface, SearchMode, StoredChunk, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery, ModelError, WikiholtError
from wikiholt.search.ranking import (
    LOGIT_WEIGHT,
    Candidates,
    QueryShape,
    Verdict,
    compute_falling_likelihoods,
    with_likelihoods,
)
from wikiholt.search.request import SearchRequest
from wikiholt.search.title_match import split_path_words
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.model_text import to_plain_text

RERANK_DEPTH = 10
"""Pages that are reranked. docs/adr/0038 lists the quality and cost of other depths."""

UNCLEAR_LIKELIHOODS = (0.2, 0.9)
"""A hybrid search is reranked if the wiki has an answer with at least the first probability, and its first page is the
one wanted with less than the second: a clear answer does not change, and a hopeless one does not become right."""

NAME_WEIGHTS = {SearchMode.HYBRID: 0.2, SearchMode.SEMANTIC: 1.0}
"""How much a logit for the name of a page counts, relative to one for its passage.

Most wiki queries are names, which a reranker trained on questions and answers judges poorly from the passage alone.
Hybrid search has compared them already. See docs/adr/0038.
"""

MAX_GAP = 8.0
"""The distance to the best logit from which on a page loses no more."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RerankConfig:
    """A reranker and its time limit per search. Shared by all wikis of a process; keeps no data of any."""

    get_reranker: Callable[[], Reranker]
    """Loads the reranker on first use. Loading is not counted against the time limit."""
    timeout_s: float
    identity: str = ""
    """Differs between rerankers that may produce different orders."""
    interfaces: frozenset[SearchInterface] | None = None
    """The interfaces that have it, for English wikis unless a search asks for it; None means all of all wikis."""

    def limit(self, request: SearchRequest, interface: SearchInterface | None, language: str) -> SearchRequest:
        """The request, without reranking where it is not for. Raises InvalidQuery if the interface does not have it."""
        if self.interfaces is None:
            return request
        if request.rerank and interface is not None and interface not in self.interfaces:
            raise make_missing_error()
        is_for = request.rerank or (interface in self.interfaces and language == "english")
        return request if is_for else replace(request, rerank=False)


def make_missing_error() -> InvalidQuery:
    """The error for a search that asks for a reranker where there is none."""
    return InvalidQuery("no reranker is configured", hint="set rerank.model (docs/models.md), or leave it out")


class PageReranker:
    """Reranks the best pages of one wiki's searches. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, config: RerankConfig, dialect: Dialect = GFM) -> None:
        self._index = index
        self._dialect = dialect
        self._config = config

    def rerank(self, query: str, mode: SearchMode, candidates: Candidates, verdict: Verdict) -> tuple[Candidates, str]:
        """The same candidates, the reranked ones first, and why they were not reranked, or an empty text.

        Never raises because of the reranker.
        """
        head = candidates[:RERANK_DEPTH]
        try:
            reranker = self._config.get_reranker()
            deadline = time.monotonic() + self._config.timeout_s
            names, passages = self._read_texts(head)
            # Passages take longest, so they start first; names fill the remaining time of the workers.
            texts = list(dict.fromkeys([*passages, *names]))
            logits = reranker.score(query, texts, deadline - time.monotonic())
        except ModelError as error:
            _LOG.warning("not reranked: %s", error.message)
            return candidates, f"not reranked: the reranker cannot be used ({error.code})"
        except WikiholtError:
            raise  # an error of the index
        except Exception:  # noqa: BLE001 - a failing reranker must not fail the search
            _LOG.exception("not reranked")
            return candidates, "not reranked: the reranker failed"
        if logits is None:
            _LOG.info("not reranked: timeout after %.0f ms", self._config.timeout_s * 1000)
            return candidates, "not reranked: timeout (rerank.budget)"
        by_text = dict(zip(texts, logits, strict=True))
        name_logits, passage_logits = ([by_text[text] for text in part] for part in (names, passages))
        reordered = reorder_candidates(mode, head, name_logits, passage_logits, verdict)
        return np.concatenate((reordered, candidates[RERANK_DEPTH:])), ""

    def _read_texts(self, candidates: Candidates) -> tuple[list[str], list[str]]:
        """What the reranker reads of each candidate: the path and name of its page, and its nearest passage."""
        page_ids, chunk_ids = candidates["page_id"].tolist(), candidates["chunk_id"].tolist()
        known_pages = self._index.get_pages(page_ids)
        known_chunks = self._index.get_chunks(chunk_ids)
        pages = list(map(known_pages.get, page_ids))
        chunks = map(known_chunks.get, chunk_ids)
        passages = [_make_passage(page, chunk, self._dialect) for page, chunk in zip(pages, chunks, strict=True)]
        return list(map(_make_name, pages)), passages


def should_rerank(request: SearchRequest, candidates: Candidates, verdict: Verdict, shape: QueryShape) -> bool:
    """Whether to rerank: as the request says, or else if it can pay. In semantic search, which gains most, it can."""
    if request.rerank is not None or request.mode is not SearchMode.HYBRID or not len(candidates):
        return bool(len(candidates)) and request.rerank is not False
    if not shape.function_words:  # a name, which the reranker judges poorly
        return False
    lowest, highest = UNCLEAR_LIKELIHOODS
    (first,) = with_likelihoods(candidates[:1], verdict)["likelihood"]
    return verdict.answer >= lowest and bool(first < highest)


def reorder_candidates(
    mode: SearchMode,
    candidates: Candidates,
    name_logits: Sequence[float],
    passage_logits: Sequence[float],
    verdict: Verdict,
) -> Candidates:
    """Sort the candidates by their ranks with the reranker's logits added. Each has the likelihood of its place before.

    The reranker knows better which page is the right one, but not how likely it is (docs/adr/0038).
    """
    names, passages = np.array(name_logits), np.array(passage_logits)
    totals = (
        candidates["rank"]
        - LOGIT_WEIGHT * NAME_WEIGHTS[mode] * np.minimum(names.max() - names, MAX_GAP)
        - LOGIT_WEIGHT * np.minimum(passages.max() - passages, MAX_GAP)
    )
    order = np.argsort(-totals, kind="stable")
    reordered = candidates[order]
    reordered["rank"] = totals[order]
    reordered["likelihood"] = compute_falling_likelihoods(with_likelihoods(candidates, verdict))
    return reordered


def _make_name(page: StoredPage | None) -> str:
    return f"{' / '.join(split_path_words(page.path))}\n{page.name}".strip() if page is not None else ""


def _make_passage(page: StoredPage | None, chunk: StoredChunk | None, dialect: Dialect) -> str:
    """The page's name, the headings above the passage, and the passage as plain text."""
    name = page.name if page is not None else ""
    passage = (to_plain_text(chunk.text, dialect) or chunk.text.strip()) if chunk is not None else ""
    folded = passage.casefold()
    parts: dict[str, str] = {}
    for part in (name, *(chunk.heading_path if chunk is not None else ())):
        # The name always comes first. Headings with which the passage itself begins are not repeated.
        if part and not (parts and folded.startswith(part.casefold())):
            parts.setdefault(part.casefold(), part)
    return f"{' > '.join(parts.values())}\n{passage}".strip()
