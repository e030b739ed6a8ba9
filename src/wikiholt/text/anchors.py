"""The fragment a browser jumps to for a heading, as GitHub and as Otterwiki 2.26 make it."""

import re
import unicodedata
from typing import Literal

AnchorStyle = Literal["github", "otterwiki"]

_ASCII_DROPPED = re.compile(r"[^\w\- ]", re.ASCII)
_NOT_SLUG = re.compile(r"[^\w\s\-]", re.ASCII)
_DASHES = re.compile(r"[-\s]+")


def make_github_slug(text: str) -> str:
    """Lower case; letters, marks, digits, `_` and `-` stay, spaces become `-`, everything else goes."""
    lowered = text.strip().lower()
    if lowered.isascii():
        kept = _ASCII_DROPPED.sub("", lowered)
    else:
        kept = "".join(c for c in lowered if c in "- " or _is_word_character(c))
    return kept.replace(" ", "-")


def make_otterwiki_slug(text: str) -> str:
    """ASCII only (accents fall off, other scripts vanish), lower case, runs of spaces and dashes are one dash."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _DASHES.sub("-", _NOT_SLUG.sub("", ascii_text.strip().lower()))


def _is_word_character(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LM" or category in {"Nd", "Nl", "Pc"}


class AnchorGenerator:
    """Gives the headings of one page their anchors, in order; a repeated heading gets `-1`, `-2`, ….

    GitHub's are unique. Otterwiki counts by heading text alone, so `A`, `A`, `A-1` gives `a-1` twice there; we do as
    it does, since an anchor that the wiki does not make leads nowhere.
    """

    def __init__(self, style: AnchorStyle) -> None:
        self._style = style
        self._counts: dict[str, int] = {}

    def add(self, text: str) -> str:
        if self._style == "otterwiki":
            slug = make_otterwiki_slug(text)
            count = self._counts.get(slug, -1) + 1
            self._counts[slug] = count
            return f"{slug}-{count}" if count else slug
        slug = make_github_slug(text)
        anchor = slug
        while anchor in self._counts:
            self._counts[slug] += 1
            anchor = f"{slug}-{self._counts[slug]}"
        self._counts[anchor] = 0
        return anchor
