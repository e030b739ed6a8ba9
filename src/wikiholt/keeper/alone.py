"""A node that shares the work with no other: it looks after every wiki, and calls nobody."""

from collections.abc import Callable

from wikiholt.ports import Call


class Alone:
    """Shifts where there is one node, or where all processes of a machine look after the same files."""

    def mine(self) -> None:
        return None

    def wake(self, wiki_id: str, why: Call) -> None:
        pass

    def begin(self, called: Callable[[str, Call], None]) -> None:
        pass

    def close(self) -> None:
        pass
