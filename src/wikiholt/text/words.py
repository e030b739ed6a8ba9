"""The keyword index's view of pages and queries. Terms hold no whitespace; every store indexes the same ones."""

import re

from wikiholt.model import Page, PageTerms
from wikiholt.text.analysis import get_analyser
from wikiholt.text.languages import detect_page_language
from wikiholt.text.queries import parse_query

__all__ = ["build_page_terms", "parse_query", "to_terms"]

_LINK_TARGET = re.compile(r"\]\([^()\s]*+(?>(?:\([^()\s]*+\)[^()\s]*+){0,9999})")
_URL_SCHEME = re.compile(r"https?://(?:www\.)?")


def to_terms(text: str, language: str = "english") -> list[str]:
    """The terms of a text, in order: no case, accents or endings; identifiers whole and in parts; CJK in pairs."""
    return get_analyser(language).to_terms(text)


def build_page_terms(page: Page, language: str = "english") -> PageTerms:
    """A page as the keyword index holds it, stemmed in its own language where its wiki has several.

    Each field holds its terms in order and then, once each, the words that differ from their stems, so that a word can
    be found by any beginning of it. `name` covers name, path and tags; `body` has the description before the text, and
    no link targets.
    """
    spoken = detect_page_language(page, language)
    body = _LINK_TARGET.sub("]", page.body) if "](" in page.body else page.body
    body = _URL_SCHEME.sub("", body) if "://" in body else body
    return PageTerms(
        name=_build_field("\n".join((page.name, page.path.replace("/", "\n"), *page.metadata.tags)), spoken),
        headings=_build_field("\n".join(heading.text for heading in page.headings), spoken),
        body=_build_field(f"{page.metadata.description or ''}\n{body}", spoken),
    )


def _build_field(text: str, language: str) -> str:
    return " ".join(get_analyser(language).to_field_terms(text))
