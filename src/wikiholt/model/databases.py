"""How a database stands that holds indexes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """One database. `address` is without secrets; `away` says why it could not be asked, and is empty where it was."""

    name: str
    address: str
    open: bool
    """Whether new wikis go there."""
    weight: float
    wikis: int
    behind: int
    """Wikis there whose tables are of an older layout than this program writes."""
    server: str = ""
    vector: str = ""
    """Versions of PostgreSQL and of pgvector."""
    away: str = ""
