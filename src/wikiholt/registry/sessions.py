"""What the registry asks of the database it is kept in: its own SQLite file, or PostgreSQL beside the indexes."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wikiholt.registry.loss import Remains
    from wikiholt.registry.schema import Ledger, Rows


class Found(Protocol):
    """Rows that a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Session(Protocol):
    """Takes a statement with `?` where values go."""

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> Found: ...


class RegistryDatabase(Protocol):
    """Where a registry is kept. Safe to use from many threads and processes; faults are of wikiholt.errors."""

    shared: bool
    """Whether other machines use it too, each with a shelf of backups of its own."""

    remains: "Remains | None"
    """What an earlier registry has left; with None an empty registry is taken for a new one."""

    def reading(self) -> AbstractContextManager[Session | None]:
        """For reading; None while there is no registry yet. Raises IndexCorrupt where rows are not as written."""
        ...

    def writing(self) -> AbstractContextManager["Ledger"]:
        """One write transaction, alone, which is sealed and committed unless the block raises."""
        ...

    def copy(self, to: Path) -> str | None:
        """Write the registry of one moment to an SQLite file, and return its seal; None while there is none."""
        ...

    def install(self, rows: "Rows") -> str | None:
        """Put these rows in the place of a registry that is damaged or gone; the name under which that lies now."""
        ...

    def close(self) -> None:
        """Let go of it; the next use opens it again."""
        ...
