"""Identifiers that signs join or begin, which words alone would take apart: /etc/hosts, std::sort, .env."""

import re

_MAX_IDENTIFIER_CHARS = 64
_URL_SCHEME = re.compile(r"https?://(?:www\.)?")
# One that fails is not tried again from each of its letters, which would take the square of its length.
_JOINED_IDENTIFIER = re.compile(r"(?<![\w.\-])[.\-]*+(\w[\w.\-]*+(?>(?:[/\\@:]{1,3}+\.?+\w[\w.\-]*+){1,9999}))", re.ASCII)
_DOTTED_NAME = re.compile(r"\.[A-Za-z]\w++", re.ASCII)


def find_identifiers(text: str) -> list[str]:
    """The identifiers of a text, whole, as page and query may both have them, without signs at either end."""
    text = _URL_SCHEME.sub("", text) if "://" in text else text
    # Few words have such a sign; to look for one in each takes a third of the time of matching them all.
    signed = [word for word in text.split() if "/" in word or ":" in word or "@" in word or "\\" in word]
    found = _JOINED_IDENTIFIER.findall(" ".join(signed))
    # With a look at the letter before in the pattern this takes five times as long.
    found += [dotted[0] for dotted in _DOTTED_NAME.finditer(text) if not _is_inside_word(text, dotted.start())]
    return [whole for each in found if len(whole := each.rstrip(".-").lower()) <= _MAX_IDENTIFIER_CHARS]


def _is_inside_word(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    return before.isalnum() or (before != "" and before in "_.")
