"""The keyword index's view of pages and queries. Terms hold no whitespace; every store indexes the same ones."""

import re
from collections.abc import Mapping, Sequence

from wikiholt.model import Page, WordQuery, Words
from wikiholt.text.analysis import analyser
from wikiholt.text.queries import parse_query

__all__ = ["coverage", "page_words", "parse_query", "terms"]

_LINK_TARGET = re.compile(r"\]\([^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+")
_SCHEME = re.compile(r"https?://(?:www\.)?+")


def terms(text: str, language: str = "english") -> list[str]:
    """The terms of a text, in order: no case, accents or endings; identifiers whole and in parts; CJK in pairs."""
    return analyser(language).terms(text)


def page_words(page: Page, language: str = "english") -> Words:
    """A page as the keyword index holds it.

    Each field holds its terms in order and then, once each, the words that differ from their stems, so that a word can
    be found by any beginning of it. `name` covers name, path and tags; `body` has the description before the text, and
    no link targets.
    """
    body = _LINK_TARGET.sub("]", page.body) if "](" in page.body else page.body
    body = _SCHEME.sub("", body) if "://" in body else body
    return Words(
        name=_field("\n".join((page.name, page.path.replace("/", "\n"), *page.metadata.tags)), language),
        headings=_field("\n".join(heading.text for heading in page.headings), language),
        body=_field(f"{page.metadata.description or ''}\n{body}", language),
    )


def coverage(
    text: str, query: WordQuery, language: str = "english", weights: Mapping[str, float] | None = None
) -> float:
    """The share of the query's terms and phrases that a text holds, from 0 to 1, by weight where weights are given."""
    found = terms(text, language)
    held = frozenset(found)
    weigh = weights or {}
    total = score = 0.0
    for term in query.terms:
        weight = weigh.get(term, 1.0)
        total += weight
        score += weight if term in held else 0.0
    for phrase in query.phrases:
        weight = sum(weigh.get(term, 1.0) for term in phrase)
        total += weight
        score += weight if held.issuperset(phrase) and _follows(found, phrase) else 0.0
    if query.prefix and score < total and any(term.startswith(query.prefix) for term in held):
        # the word being typed counts as its stem does, once
        unmet = [weigh.get(term, 1.0) for term in query.terms[-1:] if term not in held]
        score += sum(unmet)
    return score / total if total > 0 else 0.0


def _field(text: str, language: str) -> str:
    return " ".join(analyser(language).field(text))


def _follows(found: Sequence[str], phrase: tuple[str, ...]) -> bool:
    size = len(phrase)
    return any(found[at] == phrase[0] and tuple(found[at : at + size]) == phrase for at in range(len(found) - size + 1))
