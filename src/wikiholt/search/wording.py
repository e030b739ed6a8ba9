"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from wikiholt.errors import DatabaseAway
from wikiholt.model import Filter, WordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.search.spelling import Spelling
from wikiholt.text.queries import parse_query, plain_query

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
        return Worded(query, query, plain_query(text))
