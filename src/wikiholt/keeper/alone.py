"""A node that shares the work with no other: it looks after every wiki, and calls nobody."""

from collections.abc import Callable

from wikiholt.ports import NodeMessage


class SingleNode:
    """Shifts where there is one node, or where all processes of a machine look after the same files."""

    def get_assigned(self) -> None:
        return None

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        pass

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        pass

    def close(self) -> None:
        pass
