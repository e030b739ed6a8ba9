"""The order of the hits after ranking: boosts and pins of pages, boost rules of the wiki, and sorting by date."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from wikiholt.domain.index import IntArray
from wikiholt.domain.search import Confidence, OrderOverride, SortOrder
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import NAME_CHANNEL, Candidate
from wikiholt.search.request import SearchRequest
from wikiholt.text.ignore_patterns import build_matcher
from wikiholt.text.properties import fold_pinned_query

DATE_SORT_MIN_SHARE = 0.5
"""Pages with less than this share of the best page's evidence are left out when hits are sorted by date."""

MAX_LISTED_PAGES = 20_000
"""Of more pages, a query of fields alone lists those that were indexed last."""

PINNED_CHANNEL = "pinned"
_CERTAIN = Candidate(0, likelihood=1.0, confidence=Confidence.HIGH)
_OLDEST = datetime.min.replace(tzinfo=UTC)


class BoostRule(NamedTuple):
    """A factor for the pages whose file matches."""

    matches: Callable[[str], bool]
    factor: float


def parse_boost_rules(rules: Sequence[str]) -> tuple[BoostRule, ...]:
    """Parse rules that `check_boost_rule` accepts."""
    parts = (text.rpartition("=") for text in rules)
    return tuple(BoostRule(build_matcher([pattern]), float(factor)) for pattern, _, factor in parts)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the frontmatter of pages says about their place among the hits: page id → factor, and query → page ids."""

    boosts: Mapping[int, float] = field(default_factory=dict)
    pins: Mapping[str, Sequence[int]] = field(default_factory=dict)


def group_overrides(overrides: Sequence[OrderOverride]) -> Overrides:
    pins: dict[str, list[int]] = {}
    for override in overrides:
        for pin in override.pins:
            pins.setdefault(pin, []).append(override.page_id)
    return Overrides({override.page_id: override.boost for override in overrides if override.boost != 1}, pins)


@dataclass(frozen=True, slots=True)
class HitOrder:
    """The order of the hits of one search."""

    index: WikiIndex
    request: SearchRequest
    rules: Sequence[BoostRule]
    overrides: Overrides

    @property
    def is_plain(self) -> bool:
        """Whether the candidates keep the order of the ranking."""
        overrides = self.overrides
        return not (self.rules or overrides.boosts or overrides.pins or self.request.sort is SortOrder.DATE)

    def select(
        self, candidates: Sequence[Candidate], fixed_count: int, allowed: IntArray | None
    ) -> Sequence[Candidate]:
        """The candidates of the requested hits, from candidates that are ranked and have likelihoods.

        Only the first `fixed_count` are reordered: they do not depend on the requested hits, so that one page of hits
        continues the one before. Pinned pages come first.
        """
        request = self.request
        if self.is_plain:
            return candidates[request.ranked]
        if request.sort is SortOrder.DATE:
            return self._sort_by_date(candidates[:fixed_count])[request.ranked]
        ordered = self._order(candidates[:fixed_count], allowed)
        shown = {candidate.page_id for candidate in ordered}
        ordered += [candidate for candidate in candidates[fixed_count:] if candidate.page_id not in shown]
        return ordered[request.ranked]

    def list_newest(self, page_ids: IntArray) -> list[Candidate]:
        """The requested part of these pages, newest first. They are certain: a query of fields alone names them."""
        pages = self.index.get_pages(page_ids[-MAX_LISTED_PAGES:].tolist()).values()
        newest = sorted(pages, key=lambda page: page.path)
        newest.sort(key=lambda page: page.last_updated or _OLDEST, reverse=True)
        chosen = newest[self.request.ranked]
        return [_CERTAIN._replace(page_id=page.page_id, channels=("filter",)) for page in chosen]

    def _order(self, candidates: Sequence[Candidate], allowed: IntArray | None) -> list[Candidate]:
        factors = self._get_factors({candidate.page_id for candidate in candidates})
        # A boost changes the evidence, and pages that are found by their own name are first without any.
        named = [candidate for candidate in candidates if NAME_CHANNEL in candidate.channels]
        others = [candidate for candidate in candidates if NAME_CHANNEL not in candidate.channels]
        ordered = [*named, *(sort_boosted(others, factors) if factors else others)]
        pinned = self.overrides.pins.get(fold_pinned_query(self.request.query), ())
        allowed_ids = None if allowed is None or not pinned else frozenset(allowed.tolist())
        return move_pinned(ordered, [page_id for page_id in pinned if allowed_ids is None or page_id in allowed_ids])

    def _get_factors(self, page_ids: Collection[int]) -> dict[int, float]:
        """The factors of these pages that are not 1: of the page, times that of the last rule that matches."""
        boosts = self.overrides.boosts
        factors = {page_id: boosts[page_id] for page_id in page_ids if page_id in boosts}
        if self.rules:
            for page_id, page in self.index.get_pages(sorted(page_ids)).items():
                rule = next((rule for rule in reversed(self.rules) if rule.matches(page.file)), None)
                if rule is not None:
                    factors[page_id] = factors.get(page_id, 1.0) * rule.factor
        return factors

    def _sort_by_date(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        best = max((candidate.rank for candidate in candidates), default=0.0)
        relevant = [
            candidate
            for candidate in candidates
            if candidate.rank >= DATE_SORT_MIN_SHARE * best or NAME_CHANNEL in candidate.channels
        ]
        pages = self.index.get_pages([candidate.page_id for candidate in relevant])
        dates = {page_id: page.last_updated or _OLDEST for page_id, page in pages.items()}
        return sorted(relevant, key=lambda candidate: dates.get(candidate.page_id, _OLDEST), reverse=True)


def sort_boosted(candidates: Sequence[Candidate], factors: Mapping[int, float]) -> list[Candidate]:
    """Sort by rank times factor. Pages with equal factors keep their order."""
    lowest, keys = float("inf"), []
    for candidate in candidates:
        # The scores of reranked and other pages differ; no page may overtake another without a boost.
        lowest = min(lowest, max(candidate.rank, 0.0))
        keys.append(lowest * factors.get(candidate.page_id, 1.0))
    order = sorted(range(len(candidates)), key=lambda i: -keys[i])
    return [candidates[i]._replace(boost=factors.get(candidates[i].page_id, 1.0)) for i in order]


def move_pinned(candidates: Sequence[Candidate], pinned: Sequence[int]) -> list[Candidate]:
    """Move the pinned pages to the front, and add those that were not found. They are certain: the author says so."""
    found: dict[int, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.page_id, candidate)
    first = [found.get(page_id, Candidate(page_id)) for page_id in pinned]
    first = [
        candidate._replace(likelihood=1.0, confidence=Confidence.HIGH, channels=(*candidate.channels, PINNED_CHANNEL))
        for candidate in first
    ]
    return first + [candidate for candidate in candidates if candidate.page_id not in pinned]
