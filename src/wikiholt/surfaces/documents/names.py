"""Paths as visitors know them: a wiki engine may write them otherwise than git does."""

from typing import Protocol


class PathStyle(Protocol):
    """Translates between paths of pages as git has them and as visitors write and read them."""

    def to_display_path(self, path: str) -> str:
        """A page's path as visitors know it."""

    def to_display_title(self, name: str, path: str) -> str:
        """A page's name as visitors know it, where the page does not say it itself."""

    def to_git_path(self, path: str) -> str:
        """The path in git that a visitor's path stands for."""

    def to_link_path(self, path: str) -> str | None:
        """A path as links write it, where they always name whole paths; None where the last part may do."""

    def to_url(self, url: str) -> str:
        """A page's link as visitors can follow it."""

    def to_git_prefix(self, prefix: str) -> str:
        """The beginning of paths in git that a visitor's stands for."""


class StoredPaths:
    """Visitors know what git has."""

    def to_display_path(self, path: str) -> str:
        return path

    def to_display_title(self, name: str, path: str) -> str:  # noqa: ARG002
        return name

    def to_git_path(self, path: str) -> str:
        return path

    def to_link_path(self, path: str) -> str | None:  # noqa: ARG002
        return None

    def to_url(self, url: str) -> str:
        return url

    def to_git_prefix(self, prefix: str) -> str:
        return prefix


STORED_PATHS = StoredPaths()
