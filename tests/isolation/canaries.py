"""Similar wikis, each with words that no other wiki has, in every place where a wiki can have a word."""

import re
from pathlib import Path

from tests.support.git_repository import Repository
from tests.support.stored_bytes import read_stored_bytes

WORD_PLACES = ("body", "title", "path", "tag", "category", "heading", "problem", "branch", "edit", "link", "text")
_DIRECTORY_NUMBERS = (11, 17)
"""Wikis whose work tree is indexed, not HEAD: one that is synced and one that is removed while others search."""
_LETTERS = "bcdfghjkl"
WORD_PATTERN = r"zq(bcdfg[bcdfghjkl]{2})"
"""Finds a code in a word. It is long, so that random bytes of an index or of an id never match it."""
_CANARY = re.compile(WORD_PATTERN)
COMMON_TEXT = "The manual of the night shift says how to restart the pump and whom to call."


class CanaryWiki:
    """A repository with unique words; each contains the `code` of the wiki."""

    def __init__(self, directory: Path, number: int, pages: int = 0) -> None:
        self.is_directory = number in _DIRECTORY_NUMBERS
        high, low = divmod(number, len(_LETTERS))
        self.code = f"bcdfg{_LETTERS[high]}{_LETTERS[low]}"
        self.slug = f"wiki-{self.get_word('slug')}"
        self.repository = Repository(directory / self.get_word("repository"))
        self.repository.set_branch(self.get_word("branch"))
        self.repository.commit(self._make_pages() | self._make_many_pages(pages), f"Write {self.get_word('text')}")

    def get_word(self, place: str) -> str:
        """The word of this wiki for a place. Its ending is not changed by a stemmer."""
        return f"zq{self.code}{place}x"

    def commit_edit(self, number: int) -> None:
        self.repository.commit(
            {"Home.md": f"# Home\n\n{COMMON_TEXT} {self.get_word('body')} {self.get_word('edit')} {number}"}
        )

    def _make_pages(self) -> dict[str, str | bytes | None]:
        word = self.get_word
        return {
            "Home.md": f"# Home\n\n{COMMON_TEXT} {word('body')}",
            f"{word('path')}/Pump.md": f"---\ntitle: Pump {word('title')}\ntags: [pump, {word('tag')}]\n"
            f"category: {word('category')}\n---\n## Restart {word('heading')}\n\n{COMMON_TEXT} [see]({word('link')})",
            "Rota.md": f"---\ntags: people\n---\n# Rota\n\n{COMMON_TEXT} Ask {word('text')} first.",
            f"{word('problem')}.md": b"\x00\xff" * 40 + word("problem").encode(),
        }

    def _make_many_pages(self, count: int) -> dict[str, str | bytes | None]:
        return {f"more/{n}.md": f"# Pump {n}\n\nRestart pump {n}; {self.get_word('body')} calls." for n in range(count)}


def find_codes(text: str) -> set[str]:
    """The codes of the wikis whose words are in a text."""
    return set(_CANARY.findall(text.lower()))


def find_codes_on_disk(directory: Path) -> set[str]:
    """The codes of the wikis whose words are in the files of a directory, or in their names."""
    found = set()
    for file in directory.rglob("*"):
        found |= find_codes(str(file.relative_to(directory))) | find_codes_in_file(file)
    return found


def find_codes_in_file(file: Path) -> set[str]:
    """The codes of the wikis whose words are in a file, as UTF-8 or as UTF-16."""
    try:
        content = read_stored_bytes(file) if file.is_file() else b""
    except FileNotFoundError:  # a sync has removed it meanwhile
        return set()
    return find_codes(content.decode("latin-1")) | find_codes(content.replace(b"\0", b"").decode("latin-1"))
