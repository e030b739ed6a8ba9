"""What goes wrong with Chroma. None of it reaches a visitor: exact search answers and says `degraded`."""

from wikiholt.errors import IndexFault


class ChromaAway(IndexFault):
    """Chroma could not be reached, went away in the middle, or took too long (`hung`)."""

    code = "chroma-away"

    def __init__(self, message: str, *, hint: str = "", hung: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.hung = hung


class ChromaRefused(IndexFault):
    """Chroma answered, with an error (`answered`) or with what makes no sense (0)."""

    code = "chroma-refused"

    def __init__(self, message: str, *, hint: str = "", answered: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.answered = answered


class NotOurs(IndexFault):
    """There is something of that name which Wikiholt did not make; it is neither read nor changed."""

    code = "not-ours"


class OthersAtWork(IndexFault):
    """Another process is writing the collection; a moment later it will be ready."""

    code = "others-at-work"
