"""Values of an answer: sentences of pages that answer a question, with their places."""

from dataclasses import dataclass

from wikiholt.domain.search import Hit, SearchResult


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence, list item, table row or a few lines of code, as a reader of the page sees it."""

    text: str
    name: str
    """The name of the page."""
    path: str
    file: str
    url: str
    """A link to the sentence on its page."""
    heading_path: tuple[str, ...]
    anchor: str
    line: int
    last_line: int
    explanation: str = ""
    """Why it was chosen, if the request asks for it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a wiki says about a question."""

    question: str
    answered: bool
    """Whether the sentences are likely enough to contain the answer; if not, there are none."""
    probability: float
    """How likely the chosen sentences contain the answer, also if they are not shown."""
    sentences: tuple[AnswerSentence, ...]
    """Those of the best page first; the ones of a page in the order of the page."""
    closest: tuple[Hit, ...]
    """The best pages, each with its best passage."""
    result: SearchResult
    """The search that found the pages."""
