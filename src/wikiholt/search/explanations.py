"""Says in one line why a hit or a sentence of an answer is there. Pure functions over what a search has found."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from wikiholt.domain.search import Hit, Span
from wikiholt.search.sort_order import PINNED_CHANNEL

if TYPE_CHECKING:
    from wikiholt.search.answers import RatedSentence

_MAX_SENTENCE_CHARS = 80
_MAX_WORDS = 6
_NO_SYNONYMS: Mapping[str, Sequence[str]] = MappingProxyType({})


def explain_hit(
    hit: Hit,
    answer: float,
    boost: float = 1.0,
    synonyms: Mapping[str, Sequence[str]] = _NO_SYNONYMS,
    *,
    reranked: bool = False,
) -> str:
    """Why the hit is there, and what its score is made of.

    `answer` is how likely the wiki has one; `synonyms` are those of words of the query.
    """
    reasons = [
        "pinned to this query" if PINNED_CHANNEL in hit.channels else "",
        "passes the filters" if "filter" in hit.channels else "",
        "the query is its name" if "name" in hit.channels else "",
        _explain_meaning(hit) if "semantic" in hit.channels else "",
        _quote_words("words", _get_words(hit.snippet.text, hit.snippet.matches)) if "keyword" in hit.channels else "",
        _quote_words("title", _get_words(hit.name, hit.name_matches)),
        _quote_words("synonyms", _find_synonyms(hit, synonyms)),
        f"boost × {boost:g}" if boost != 1 else "",
        "order by the reranker" if reranked else "",
        _explain_score(hit, answer),
    ]
    return " · ".join(filter(None, reasons))


def explain_sentence(rated: "RatedSentence") -> str:
    """What makes the rank of a sentence: each feature times its weight."""
    parts = (f"{name} {value:.1f}" for name, value in rated.contributions if round(value, 1))
    return f"rank {rated.rank:.1f} = {' + '.join(parts)}"


def _explain_meaning(hit: Hit) -> str:
    near = "" if hit.distance is None else f" (cosine {1 - hit.distance:.2f})"
    sentence = hit.snippet.sentence
    if sentence is None:
        return f"meaning of the passage{near}"
    text = hit.snippet.text[sentence.start : sentence.end]
    shown = text if len(text) <= _MAX_SENTENCE_CHARS else text[: _MAX_SENTENCE_CHARS - 1].rstrip() + "…"
    return f"meaning of “{shown}”{near}"


def _explain_score(hit: Hit, answer: float) -> str:
    if PINNED_CHANNEL in hit.channels or "filter" in hit.channels or not 0 < hit.score <= answer:
        return f"score {hit.score:.2f}"
    share = hit.score / answer
    return f"score {hit.score:.2f} = {answer:.2f} that the wiki has an answer × {share:.2f} that it is this page"


def _get_words(text: str, spans: Sequence[Span]) -> Iterable[str]:
    return dict.fromkeys(text[span.start : span.end].casefold() for span in spans)


def _find_synonyms(hit: Hit, synonyms: Mapping[str, Sequence[str]]) -> Iterable[str]:
    text = " ".join(f"{hit.name} {hit.text}".casefold().split())
    pairs = ((typed, other) for typed, others in synonyms.items() for other in others)
    return [f"{other} for {typed}" for typed, other in pairs if other.casefold() in text]


def _quote_words(label: str, words: Iterable[str]) -> str:
    shown = list(words)
    more = ", …" if len(shown) > _MAX_WORDS else ""
    return f"{label}: {', '.join(shown[:_MAX_WORDS])}{more}" if shown else ""
