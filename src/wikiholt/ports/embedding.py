"""What the core asks of a model."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from wikiholt.model import FloatArray, CosineScale


class Reranker(Protocol):
    """Reads a query and a text together and says how well the text answers it. Safe to use from many threads."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """A logit a text; None when they are not all there within that time, and then no work is left behind."""

    def run_self_test(self) -> None:
        """Raise ModelUnproven unless known pairs get the known scores."""


class ModelInfo(Protocol):
    """What a model is: enough to say whether an index was made with it."""

    @property
    def fingerprint(self) -> str:
        """Identifies weights and precision; vectors of different fingerprints are never mixed."""

    @property
    def model(self) -> str:
        """By what it was loaded, and can be again: the name or directory of a model."""

    @property
    def precision(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def scale(self) -> CosineScale:
        """What the cosines of its vectors mean."""


class Embedder(ModelInfo, Protocol):
    """Turns text into unit vectors. Safe to use from many threads."""

    @property
    def max_tokens(self) -> int:
        """How many tokens of text one vector can stand for, the model's own special tokens not counted."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token of the text, in order, special tokens left out, nothing truncated."""

    def is_known_word(self, word: str) -> bool:
        """Whether the word is one of its tokens, whole: a word it has often read, and no slip of one."""

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        """One unit vector a text; a text over the window is an error."""

    def embed_query(self, text: str) -> FloatArray:
        """The unit vector of a query; a query over the window is cut."""

    def run_self_test(self) -> None:
        """Raise ModelUnproven unless known sentences give the known vectors; a proof may hold for a while."""


@runtime_checkable
class SupportsSentenceScoring(Protocol):
    """What a model may also be: quick to say which of some sentences is closest to a query, without being run."""

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], Sequence[float]] | None:
        """What says how close each sentence of a passage is to the query, comparable within the passage and the same
        whatever else is asked; None if this model cannot say."""
