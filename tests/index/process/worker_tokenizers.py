"""Tokenizers for worker processes, in a module whose import costs a worker little."""

import os
import signal
from collections.abc import Sequence

from wikiholt.domain.protocols import PageTokenizer
from wikiholt.testing.fakes import FakeEmbedder


def make_tokenizer() -> PageTokenizer:
    return FakeEmbedder()


class DyingTokenizer(FakeEmbedder):
    """Kills the process that it counts in, except the one that created it."""

    def __init__(self, parent: int) -> None:
        super().__init__()
        self._parent = parent

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        if os.getpid() != self._parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().get_token_spans(text)


class DyingTokenizerFactory:
    def __init__(self) -> None:
        self._parent = os.getpid()

    def __call__(self) -> PageTokenizer:
        return DyingTokenizer(self._parent)
