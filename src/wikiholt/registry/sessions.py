"""What the registry asks of the database it is kept in: its own SQLite file, or PostgreSQL beside the indexes."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wikiholt.registry.loss import LeftoverData
    from wikiholt.registry.schema import RegistryTransaction, RegistryRows


class ResultRows(Protocol):
    """Rows that a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class RegistryConnection(Protocol):
    """Takes a statement with `?` where values go."""

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> ResultRows: ...


class RegistryDatabase(Protocol):
    """Where a registry is kept. Safe to use from many threads and processes; faults are of wikiholt.errors."""

    is_shared: bool
    """Whether other machines use it too, each with a shelf of backups of its own."""

    remains: "LeftoverData | None"
    """What an earlier registry has left; with None an empty registry is taken for a new one."""

    def read_connection(self) -> AbstractContextManager[RegistryConnection | None]:
        """For reading; None while there is no registry yet. Raises IndexCorrupt where rows are not as written."""
        ...

    def write_transaction(self) -> AbstractContextManager["RegistryTransaction"]:
        """One write transaction, alone, which is sealed and committed unless the block raises."""
        ...

    def write_copy(self, to: Path) -> str | None:
        """Write the registry of one moment to an SQLite file, and return its seal; None while there is none."""
        ...

    def replace_contents(self, rows: "RegistryRows") -> str | None:
        """Put these rows in the place of a registry that is damaged or gone; the name under which that lies now."""
        ...

    def close(self) -> None:
        """Let go of it; the next use opens it again."""
        ...
