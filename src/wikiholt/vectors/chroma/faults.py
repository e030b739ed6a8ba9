"""What goes wrong with Chroma. None of it reaches a visitor: exact search answers and says `degraded`."""

from wikiholt.errors import IndexUnavailable


class ChromaUnavailable(IndexUnavailable):
    """Chroma could not be reached, went away in the middle, or took too long (`hung`)."""

    code = "chroma-away"

    def __init__(self, message: str, *, hint: str = "", timed_out: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.timed_out = timed_out


class ChromaError(IndexUnavailable):
    """Chroma answered, with an error (`answered`) or with what makes no sense (0)."""

    code = "chroma-refused"

    def __init__(self, message: str, *, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ForeignCollection(IndexUnavailable):
    """There is something of that name which Wikiholt did not make; it is neither read nor changed."""

    code = "not-ours"


class CollectionBusy(IndexUnavailable):
    """Another process is writing the collection; a moment later it will be ready."""

    code = "others-at-work"
