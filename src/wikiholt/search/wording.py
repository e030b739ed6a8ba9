"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

from collections.abc import Callable
from dataclasses import dataclass

from wikiholt.model import WordQuery
from wikiholt.ports import Lexicon
from wikiholt.text.queries import parse_query, plain_query


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

    def __init__(self, language: str, lexicon: Callable[[], Lexicon | None]) -> None:
        self._language = language
        self._lexicon = lexicon

    def read(self, text: str) -> Worded:
        query = parse_query(text, self._language)
        return Worded(query, query, plain_query(text))
