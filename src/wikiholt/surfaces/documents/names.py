"""Paths as visitors know them: a wiki engine may write them otherwise than git does."""

from typing import Protocol


class Names(Protocol):
    """Translates between paths of pages as git has them and as visitors write and read them."""

    def shown(self, path: str) -> str:
        """A page's path as visitors know it."""

    def titled(self, name: str, path: str) -> str:
        """A page's name as visitors know it, where the page does not say it itself."""

    def meant(self, path: str) -> str:
        """The path in git that a visitor's path stands for."""

    def spelled(self, path: str) -> str | None:
        """A path as links write it, where they always name whole paths; None where the last part may do."""

    def linked(self, url: str) -> str:
        """A page's link as visitors can follow it."""

    def prefix(self, prefix: str) -> str:
        """The beginning of paths in git that a visitor's stands for."""


class AsStored:
    """Visitors know what git has."""

    def shown(self, path: str) -> str:
        return path

    def titled(self, name: str, path: str) -> str:  # noqa: ARG002
        return name

    def meant(self, path: str) -> str:
        return path

    def spelled(self, path: str) -> str | None:  # noqa: ARG002
        return None

    def linked(self, url: str) -> str:
        return url

    def prefix(self, prefix: str) -> str:
        return prefix


AS_STORED = AsStored()
