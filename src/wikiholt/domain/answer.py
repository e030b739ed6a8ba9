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
class WrittenSentence:
    """A sentence that a language model wrote, as plain text."""

    text: str
    citations: tuple[int, ...]
    """The numbers of the passages that it names, from 1."""
    fault: str
    """Why these passages do not support it; empty if they do."""

    @property
    def supported(self) -> bool:
        return not self.fault


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """What a language model wrote about the passages of an answer."""

    model: str
    sentences: tuple[WrittenSentence, ...]
    passages: tuple[AnswerSentence, ...]
    """All that the model got beside the question."""
    note: str = ""
    """Why there is no answer, or only a part of it."""
    has_failed: bool = False
    """Whether the model was not available, so that another request may get more."""

    @property
    def supported_share(self) -> float:
        return sum(each.supported for each in self.sentences) / max(len(self.sentences), 1)


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
