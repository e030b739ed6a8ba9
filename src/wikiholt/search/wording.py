"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

from dataclasses import dataclass

from wikiholt.model import WordQuery
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
    """Understands the queries of one wiki."""

    def __init__(self, language: str) -> None:
        self._language = language

    def read(self, text: str) -> Worded:
        query = parse_query(text, self._language)
        return Worded(query, query, plain_query(text))
