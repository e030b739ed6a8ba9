"""The names under which a page is found first: title, file, path and aliases, as terms of the keyword index."""

import re
from collections.abc import Iterable
from hashlib import blake2b

from wikiholt.text.analysis import strip_accents
from wikiholt.text.page_names import strip_page_extension

_SEPARATORS = re.compile("[\\s_/.\\-\u2010-\u2015]+")
_MARK = "\ue000"
"""A character that is part of no word, before and after a name: no other term has the same beginning or end."""


def fold_name(text: str) -> str:
    """The form in which names and queries are compared: without case, accents, extension and kind of separators."""
    return _SEPARATORS.sub(" ", strip_accents(strip_page_extension(text.strip()))).strip()


def make_name_term(text: str) -> str:
    """The term of a name in the keyword index; empty if the name has nothing but separators."""
    folded = fold_name(text)
    # A hash, because the stores split some characters of names, and limit the length of terms.
    digest = blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{_MARK}{digest}{_MARK}" if folded else ""


def make_name_terms(name: str, path: str, aliases: Iterable[str]) -> list[str]:
    """The terms of a page's names, each once."""
    terms = map(make_name_term, (name, path, path.rpartition("/")[2], *aliases))
    return list(dict.fromkeys(filter(None, terms)))
