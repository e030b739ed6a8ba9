"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wikiholt.errors import DatabaseAway
from wikiholt.model import Filter, WordHit, WordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.search.spelling import Spelling
from wikiholt.text.compounds import kindred, makes_compounds
from wikiholt.text.fields import KIN_WEIGHT
from wikiholt.text.queries import plain_query, telling_tokens
from wikiholt.text.readings import Reading, nouns, readings, wholes

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Worded:
    """A query, understood."""

    query: WordQuery
    """What was asked for: by how much of it a page has, its words are judged."""
    asked: WordQuery
    """The same with all other terms by which pages are found: what is marked."""
    text: str
    """What the model reads."""
    did_you_mean: str = ""
    others: tuple[Reading, ...] = ()
    """Other ways to read the query."""
    wholes: tuple[str, ...] = ()
    """Terms for identifiers of which the query has the parts."""
    kin: tuple[str, ...] = ()
    """Terms for words that are related to one of the query's."""
    unaided: bool = False
    """Whether the wiki's terms were needed for it and could not be had."""

    def demands(self, *, phrases: bool) -> list[WordQuery]:
        """What pages must hold and lack, however the query is read; a page need only satisfy one of these."""
        read = (self.query, *(other.query for other in self.others))
        wanted = (WordQuery(phrases=each.phrases if phrases else (), excluded=each.excluded) for each in read)
        return [each for each in dict.fromkeys(wanted) if each.phrases or each.excluded]

    def shares(
        self, found: Callable[[WordQuery], Sequence[WordHit]], best_possible: Callable[[WordQuery], float]
    ) -> dict[int, float]:
        """The pages that are found, each with its share of the best possible score, read as fits the page best."""
        shares: dict[int, float] = {}
        for query in (self.query, *(other.query for other in self.others)):
            # A store takes the last term for the one that may still be being typed.
            hits = found(replace(query, terms=(*self.wholes, *query.terms)))
            most = best_possible(query) if hits else 0.0
            for hit in hits:
                shares[hit.page_id] = max(shares.get(hit.page_id, 0.0), min(1.0, hit.score / most) if most else 1.0)
        return self._with_kin(shares, found, best_possible) if self.kin else shares

    def _with_kin(
        self,
        shares: dict[int, float],
        found: Callable[[WordQuery], Sequence[WordHit]],
        best_possible: Callable[[WordQuery], float],
    ) -> dict[int, float]:
        most = best_possible(self.query)
        for hit in found(WordQuery(self.kin, excluded=self.query.excluded)):
            more = KIN_WEIGHT * hit.score / most if most else 0.0
            shares[hit.page_id] = min(1.0, shares.get(hit.page_id, 0.0) + more)
        return shares


class Wording:
    """Understands the queries of one wiki; the lexicon is only asked for where a query needs it."""

    def __init__(self, index: WikiIndex, language: str, lexicon: Callable[[], Lexicon | None]) -> None:
        self._language = language
        self._lexicon = lexicon
        self._spelling = Spelling(index, language, lexicon, lambda word: self._understood(f"{word} ", []).asked.terms)

    def read(self, typed: str, where: Filter, known: Callable[[str], bool]) -> Worded:
        """The query as it is meant: words that no page holds, and that are not `known`, are taken for slips."""
        faults: list[Exception] = []
        corrected = _aided(lambda: self._spelling.corrected(typed, where, known), "", faults)
        worded = self._understood(corrected or typed, faults)
        return replace(worded, did_you_mean=corrected, unaided=bool(faults))

    def _understood(self, text: str, faults: list[Exception]) -> Worded:
        own, *others = readings(text, self._language)
        query, named = own.query, wholes(text)
        nothing: tuple[str, ...] = ()
        kin = _aided(lambda: self._kin(text, query), nothing, faults)
        terms = (*kin, *named, *(term for other in others for term in other.query.terms), *query.terms)
        phrases = (*query.phrases, *(phrase for other in others for phrase in other.query.phrases))
        asked = replace(query, terms=tuple(dict.fromkeys(terms)), phrases=tuple(dict.fromkeys(phrases)))
        return Worded(query, asked, plain_query(text), others=tuple(others), wholes=named, kin=kin)

    def _kin(self, text: str, query: WordQuery) -> tuple[str, ...]:
        """Words related to those of the query, in languages that make words of words; none to what is quoted."""
        if query.phrases or not query.terms:
            return ()
        found = nouns(text, query, self._language)
        lexicon = self._lexicon() if makes_compounds(self._language) else None
        if lexicon is not None:
            found += kindred(telling_tokens(text, query, self._language), self._language, lexicon)
        return tuple(term for term in dict.fromkeys(found) if term not in query.terms)


def _aided(work: Callable[[], _T], otherwise: _T, faults: list[Exception]) -> _T:
    """What the wiki's terms help to find; what was typed can be searched for whatever goes wrong there."""
    try:
        return work()
    except DatabaseAway:
        raise
    except Exception as error:  # noqa: BLE001 - a cache may fail in any way
        _LOG.info("the wiki's terms are not at hand: %s", error)
        faults.append(error)
        return otherwise
