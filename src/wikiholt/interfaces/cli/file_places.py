"""Formats the places of hits as `path/to/file.md:12`, which editors and terminals open."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from wikiholt.domain.search import Hit
from wikiholt.domain.wiki import Wiki
from wikiholt.interfaces.cli.output import TerminalStyle, find_best_line, to_safe_line
from wikiholt.interfaces.cli.wiki_selection import get_current_directory, get_root


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """The places of one wiki's files. `root` is None if the files are not on this disk."""

    root: Path | None
    current_directory: Path | None

    @classmethod
    def for_wiki(cls, wiki: Wiki) -> "FilePlaces":
        return cls(get_root(wiki), get_current_directory())

    def find_path(self, file: str) -> Path | None:
        """The absolute path of a file, or None if it is not on this disk or a link leads out of the wiki."""
        if self.root is None:
            return None
        path = self.root / file
        try:
            return path if path.is_file() and path.resolve().is_relative_to(self.root) else None
        except (OSError, ValueError):
            return None

    def to_shown_path(self, file: str) -> str:
        """The path from the current directory, or the absolute one if shorter; else from the wiki's directory."""
        path = self.find_path(file)
        if path is None:
            return file
        if self.current_directory is None:
            return str(path)
        return min(os.path.relpath(path, self.current_directory), str(path), key=len)

    def format_hit(self, hit: Hit, style: TerminalStyle) -> str:
        """The file and line of the hit as safe text: a link on a terminal."""
        return self.format(hit.file, find_best_line(hit), style)

    def format(self, file: str, line: int | None, style: TerminalStyle) -> str:
        """The place as safe text: a link on a terminal."""
        text = to_safe_line(self.to_shown_path(file)) + (f":{line}" if line else "")
        path = self.find_path(file) if style.use_color else None
        address = f"file://{quote(socket.gethostname())}{quote(os.fsencode(path))}" if path else ""
        return style.format_link(text, address)
