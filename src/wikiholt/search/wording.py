"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wikiholt.errors import DatabaseAway
from wikiholt.model import Filter, WordHit, WordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.search.spelling import Spelling
from wikiholt.text.analysis import languages_of
from wikiholt.text.compounds import kindred, makes_compounds
from wikiholt.text.fields import KIN_WEIGHT
from wikiholt.text.otherterms import other_terms
from wikiholt.text.queries import parse_query, plain_query, telling_tokens

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Worded:
    """A query, understood."""

    query: WordQuery
    """What was asked for: by how much of it a page has, its words are judged."""
    asked: WordQuery
    """The same with other terms for the same words: what pages are found and marked by."""
    text: str
    """What the model reads."""
    did_you_mean: str = ""
    kin: tuple[str, ...] = ()
    """Those of the terms asked for that are no other form of a word of the query but words related to one."""
    further: tuple[WordQuery, ...] = ()
    """The query as the wiki's further languages read it."""

    def search(self, found: Callable[[WordQuery], Sequence[WordHit]]) -> dict[int, float]:
        """The pages that are found, each with its score; what is only kin to a word counts for less."""
        kin = frozenset(self.kin)
        direct = replace(self.asked, terms=tuple(term for term in self.asked.terms if term not in kin))
        scores = {hit.page_id: hit.score for hit in found(direct)}
        if kin:
            for hit in found(WordQuery(self.kin, excluded=self.asked.excluded)):
                scores[hit.page_id] = scores.get(hit.page_id, 0.0) + hit.score * KIN_WEIGHT
        return scores


class Wording:
    """Understands the queries of one wiki; the lexicon is only asked for where a query needs it."""

    def __init__(self, index: WikiIndex, language: str, lexicon: Callable[[], Lexicon | None]) -> None:
        self._language = language
        self._lexicon = lexicon
        self._spelling = Spelling(index, language, lexicon, lambda word: self._understood(f"{word} ").asked.terms)

    def read(self, typed: str, where: Filter, known: Callable[[str], bool]) -> Worded:
        """The query as it is meant: words that no page holds, and that are not `known`, are taken for slips."""
        corrected = self._corrected(typed, where, known)
        return replace(self._understood(corrected or typed), did_you_mean=corrected)

    def _corrected(self, typed: str, where: Filter, known: Callable[[str], bool]) -> str:
        try:
            return self._spelling.corrected(typed, where, known)
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - what was typed can be searched for whatever went wrong here
            _LOG.warning("the query was not looked through for slips: %s", type(error).__name__)
            return ""

    def _understood(self, text: str) -> Worded:
        query = parse_query(text, self._language)
        others = other_terms(text, query, self._language)
        kin = tuple(term for term in self._kin(text, query) if term not in others)
        # A store takes the last term for the one that may still be being typed.
        asked = replace(query, terms=(*kin, *others, *query.terms))
        further = tuple(parse_query(text, each) for each in languages_of(self._language)[1:])
        return Worded(query, asked, plain_query(text), kin=kin, further=further)

    def _kin(self, text: str, query: WordQuery) -> tuple[str, ...]:
        """Words related to those of the query, in languages that make words of words; none to what is quoted."""
        if query.phrases or not query.terms or not makes_compounds(self._language):
            return ()
        lexicon = self._lexicon()
        tokens = telling_tokens(text, query, self._language)
        found = kindred(tokens, self._language, lexicon) if lexicon is not None else ()
        return tuple(term for term in found if term not in query.terms)
