"""Spelling correction of queries: one-letter typos, words that may be corrected, and the best correction in a wiki."""

import lzma
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.text.analysis import (
    TOKEN_PATTERN,
    get_analyser,
    get_query_analyser,
    iter_script_runs,
    normalize_term,
    split_languages,
)
from wikiholt.text.keyword_query import find_plain_words
from wikiholt.text.languages import (
    guess_query_language,
    is_in_other_language,
    is_stopword,
    is_text_in_other_language,
)

SWAPPED_LIKELIHOOD = MISSING_LIKELIHOOD = DOUBLED_LIKELIHOOD = 1.0
EXTRA_LIKELIHOOD, OTHER_LIKELIHOOD = 0.1, 0.09
"""Likelihood of each typo: two letters swapped, one missing, one doubled, one extra, one replaced by another.

An extra or replaced letter can be any of many, which makes a particular one less likely.
"""
FIRST_LETTER_FACTOR = 0.2
"""Typos in the first letter are rare."""
_MIN_LONG_WORD_CHARS = 5
"""Shorter words, and names, that differ only in their first letter are more often different words than typos."""

_MAX_CANDIDATES = 5_000


def score_typo(typed: str, word: str, *, is_name: bool = False) -> float:
    """The likelihood that `typed` is `word` with a one-letter typo; 0 if it is not."""
    if abs(len(typed) - len(word)) > 1 or typed == word:
        return 0.0
    prefix_length = _count_common_prefix(typed, word)
    likelihood = _score_edit(typed, word, prefix_length)
    if prefix_length or likelihood == SWAPPED_LIKELIHOOD:
        return likelihood
    if likelihood == OTHER_LIKELIHOOD and (is_name or len(word) < _MIN_LONG_WORD_CHARS):
        return 0.0
    return likelihood * FIRST_LETTER_FACTOR


def find_near_terms(typed: str, lexicon: Lexicon, *, is_name: bool = False) -> dict[str, float]:
    """The lexicon's terms that are one typo away, each with its likelihood.

    A typo leaves the first or the second half of a word unchanged, except for a swap in the middle.
    """
    half = len(typed) // 2
    lengths = range(len(typed) - 1, len(typed) + 2)
    terms = {typed[: half - 1] + typed[half] + typed[half - 1] + typed[half + 1 :]}
    terms.update(lexicon.find_by_prefix(typed[:half], _MAX_CANDIDATES, lengths))
    terms.update(lexicon.find_by_suffix(typed[half:], _MAX_CANDIDATES, lengths))
    return {term: score for term in terms if (score := score_typo(typed, term, is_name=is_name))}


def _score_edit(typed: str, word: str, prefix_length: int) -> float:
    """Likelihood of the edit at the first letter that differs, if nothing else differs."""
    if len(typed) < len(word):
        return MISSING_LIKELIHOOD if typed[prefix_length:] == word[prefix_length + 1 :] else 0.0
    if len(typed) > len(word):
        if typed[prefix_length + 1 :] != word[prefix_length:]:
            return 0.0
        # Of two equal letters, the second one differs.
        return (
            DOUBLED_LIKELIHOOD
            if prefix_length and typed[prefix_length] == typed[prefix_length - 1]
            else EXTRA_LIKELIHOOD
        )
    if typed[prefix_length + 1 :] == word[prefix_length + 1 :]:
        return OTHER_LIKELIHOOD
    swapped = typed[prefix_length : prefix_length + 2] == word[prefix_length : prefix_length + 2][::-1]
    return SWAPPED_LIKELIHOOD if swapped and typed[prefix_length + 2 :] == word[prefix_length + 2 :] else 0.0


def _count_common_prefix(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


# Which words of a query may be corrected, and how they are replaced.
MIN_WORD_CHARS = 4
_MAX_WORDS = 8
"""Words of a query that are checked. A text with more unknown words is in another language."""
_NO_WORD_BEFORE, _NO_WORD_AFTER = frozenset("-/\\@#.:_$=<&%+*~"), frozenset("/\\@#_$=<&%+*~([")
"""Signs that make a neighbouring word part of a path, an option, an address or code. `+` marks a word as typed."""
_WORD_SEPARATOR_PATTERN = re.compile(r"[0-9.\-'’·]+")


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query that may be corrected, and its position."""

    start: int
    end: int
    typed: str
    normalized: str
    is_unfinished: bool
    """Whether it is the last word and may still be incomplete."""
    is_name: bool
    with_neighbours: tuple[tuple[int, int, str], ...]
    """The word joined with the previous or the next one, as (start, end, joined)."""


def find_words(text: str) -> list[QueryWord]:
    """The words that may be corrected: letters only, long enough, in a script with spaces between words."""
    spans = find_plain_words(text)
    words = []
    for position, (start, end) in enumerate(spans):
        token = text[start:end]
        normalized = normalize_term(token)
        if len(normalized) >= MIN_WORD_CHARS and _is_plain_word(token) and _is_free_standing(text, start, end):
            neighbours = _join_neighbours(text, spans, position)
            words.append(QueryWord(start, end, token, normalized, end == len(text), token[0].isupper(), neighbours))
    return words[:_MAX_WORDS]


def find_replaced_words(query: str, corrected: str) -> list[tuple[int, int]]:
    """Spans of the words of a query that the corrected query replaces."""
    kept = {corrected[start:end] for start, end in find_plain_words(corrected)}
    return [(start, end) for start, end in find_plain_words(query) if query[start:end] not in kept] if corrected else []


def format_as_typed(query: str, corrected: str) -> str:
    """The query that searches for those words as typed, cut to the maximum length."""
    for start, _ in reversed(find_replaced_words(query, corrected)):
        query = f"{query[:start]}+{query[start:]}"
    return query[:MAX_QUERY_CHARS]


def is_letters_only(word: str) -> bool:
    return word.isalpha() or all(unicodedata.category(sign)[0] in "LM" for sign in word)


def split_words(token: str) -> list[str]:
    """The words in a token: office and hours in office-hours; identifiers such as userName are not split."""
    return [word for word in _WORD_SEPARATOR_PATTERN.split(token) if word and "_" not in word]


def copy_capitals(typed: str, word: str) -> str:
    """The word with the same capitalisation as the typed one."""
    if typed.islower():
        return word.lower()
    if typed.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if typed[:1].isupper() else word


def _is_plain_word(token: str) -> bool:
    """Whether the token is a word of letters, and not an identifier such as getUser."""
    if not is_letters_only(token) or any(dense for dense, _, _ in iter_script_runs(token)):
        return False
    return token.isupper() or not any(letter.isupper() for letter in token[1:])


def _is_free_standing(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] not in _NO_WORD_BEFORE and text[end : end + 1] not in _NO_WORD_AFTER


def _join_neighbours(text: str, spans: Sequence[tuple[int, int]], position: int) -> tuple[tuple[int, int, str], ...]:
    pairs = [pair for pair in (spans[position - 1 : position + 1], spans[position : position + 2]) if len(pair) == 2]
    joined = [(one[0], other[1], text[one[0] : one[1]], text[other[0] : other[1]]) for one, other in pairs]
    return tuple(
        (start, end, before + after)
        for start, end, before, after in joined
        if text[start:end] == f"{before} {after}" and _is_plain_word(before) and _is_plain_word(after)
    )


# Corrections come only from this wiki's own words, as spelled on pages that pass the search's filter. Quoted and
# excluded words, codes, paths and options are kept as typed.
_MAX_TRIED_TERMS = 4
"""Likely terms whose spelling is looked up on pages."""
_MAX_PAGES_READ, _MAX_CHUNKS_READ = 6, 12
_STABLE_PREFIX_CHARS = 3
"""Letters at the start of a word that no stemmer changes."""
_MAX_ENDING_CHARS = 2
"""Letters of an ending by which a typed word and a word on a page may differ in addition to the typo."""
_ENGLISH = "english"
_LANGUAGE_SAMPLE_CHARS = 2_000
"""Characters of a page that show its language."""


class CorrectionScope(NamedTuple):
    """The pages from which corrections come: those that pass the filter, if they are not in another language.

    `language` is that of the query, or "".
    """

    where: PageFilter
    language: str


class Correction(NamedTuple):
    """A replacement for a span of the query."""

    start: int
    end: int
    text: str
    is_other_word: bool = False
    """Whether it replaces one word by one other, and does not join or split words."""


class SpellingCorrector:
    """Corrects the queries of one wiki. Safe to use from many threads."""

    def __init__(
        self,
        index: WikiIndex,
        language: str,
        get_lexicon: Callable[[], Lexicon | None],
        get_terms: Callable[[str], Iterable[str]],
    ) -> None:
        """`get_terms` returns the terms under which a word is searched."""
        self._index = index
        self._language = language
        self._get_lexicon = get_lexicon
        self._get_terms = get_terms

    def correct(self, text: str, where: PageFilter, is_known: Callable[[str], bool]) -> str:
        """The corrected query, or "" if there is nothing to correct.

        A word for which `is_known` is true is kept even if it is on no page. So is a stopword of any language, and all
        of a query in a language that the wiki does not have. An ordinary word is never replaced by another one.
        """
        words = [word for word in find_words(text) if not is_stopword(word.normalized)]
        lexicon = self._get_lexicon() if words and not is_in_other_language(text, self._language) else None
        if lexicon is None:
            return ""
        corrected, limit = text, len(text)
        known = lexicon.has_any([(word.normalized, *self._get_terms(word.typed)) for word in words])
        for word, is_indexed in reversed(list(zip(words, known, strict=True))):
            if word.end > limit or is_indexed or self._is_beginning(word, lexicon):
                continue
            scope = CorrectionScope(where, guess_query_language(text))
            fix = self._find_correction(word, lexicon, scope)
            if fix is None or fix.end > limit or (fix.is_other_word and self._is_ordinary(word, scope)):
                continue
            # `is_known` comes last because it may have to load the model.
            if not is_known(word.typed):
                corrected, limit = corrected[: fix.start] + fix.text + corrected[fix.end :], fix.start
        return "" if corrected == text else corrected

    def _is_beginning(self, word: QueryWord, lexicon: Lexicon) -> bool:
        """Whether the word is unfinished and a term begins with it."""
        return word.is_unfinished and bool(lexicon.find_by_prefix(word.normalized, 1))

    def _is_ordinary(self, word: QueryWord, scope: CorrectionScope) -> bool:
        """Whether this is a word of English, in a wiki and a query of that language."""
        has_english = _ENGLISH in split_languages(self._language) and scope.language in ("", _ENGLISH)
        return has_english and is_english_word(word.normalized)

    def _count_pages(self, normalized: str, lexicon: Lexicon) -> int:
        """Number of pages with the word or another form of it."""
        return max(lexicon.count_pages(normalized), lexicon.count_pages(self._stem(normalized)))

    def _find_correction(self, word: QueryWord, lexicon: Lexicon, scope: CorrectionScope) -> Correction | None:
        merged = self._find_merged(word, lexicon, scope)
        if merged is not None:
            return merged
        other = self._find_best_word(word, lexicon, scope)
        replacement = other or self._find_split(word, lexicon, scope)
        fixed = copy_capitals(word.typed, replacement)
        return Correction(word.start, word.end, fixed, bool(other)) if replacement else None

    def _find_merged(self, word: QueryWord, lexicon: Lexicon, scope: CorrectionScope) -> Correction | None:
        """The word joined with a neighbour, if that is a word of this wiki."""
        for start, end, typed in word.with_neighbours:
            normalized = normalize_term(typed)
            forms = self._count_forms(normalized, scope) if lexicon.count_pages(normalized) else {}
            exact = [form for form in forms if normalize_term(form) == normalized]
            if exact:
                return Correction(start, end, copy_capitals(typed, max(exact, key=forms.__getitem__)))
        return None

    def _find_best_word(self, word: QueryWord, lexicon: Lexicon, scope: CorrectionScope) -> str:
        """The most frequent word one typo away, or else another word of the same stem, or of a stem one typo away."""
        fallback = ""
        for term in self._find_likely_terms(word, word.normalized, lexicon):
            forms = self._count_forms(term, scope)
            close = [form for form in forms if score_typo(word.normalized, normalize_term(form))]
            if close:
                return max(close, key=forms.__getitem__)
            longer = [form for form in forms if normalize_term(form).startswith(term) and not word.is_name]
            fallback = fallback or max(longer, key=forms.__getitem__, default="")
        return fallback or self._find_other_form(word, lexicon, scope)

    def _find_other_form(self, word: QueryWord, lexicon: Lexicon, scope: CorrectionScope) -> str:
        """A word that differs by a typo and by its ending: Dosimeters for dosimetter; or ""."""
        stem = self._stem(word.normalized)
        if len(stem) < _MIN_LONG_WORD_CHARS or stem == word.normalized:
            return ""
        for term in self._find_likely_terms(word, stem, lexicon):
            forms = self._count_forms(term, scope)
            if close := [form for form in forms if self._has_typo_and_ending(word, normalize_term(form))]:
                return max(close, key=forms.__getitem__)
        return ""

    def _find_likely_terms(self, word: QueryWord, typed: str, lexicon: Lexicon) -> list[str]:
        """The terms one typo away from this form or stem of the word, the likeliest first."""
        scores = {
            term: likelihood * lexicon.count_pages(term)
            for term, likelihood in find_near_terms(typed, lexicon, is_name=word.is_name).items()
        }
        terms = [term for term in scores if scores[term] and is_letters_only(term)]
        # Terms with the same score are in alphabetical order, so that every process finds the same correction.
        return sorted(terms, key=lambda term: (-scores[term], term))[:_MAX_TRIED_TERMS]

    def _has_typo_and_ending(self, word: QueryWord, form: str) -> bool:
        """Whether the words differ by a typo if one of them loses an ending that its stem does not have."""
        return any(
            score_typo(shorter, other, is_name=word.is_name) and self._stem(shorter) == self._stem(longer)
            for longer, other in ((word.normalized, form), (form, word.normalized))
            for shorter in (longer[:-length] for length in range(1, _MAX_ENDING_CHARS + 1))
        )

    def _find_split(self, word: QueryWord, lexicon: Lexicon, scope: CorrectionScope) -> str:
        """Two words that are adjacent on a page, if the word is both joined."""
        normalized = word.normalized
        cuts = range(MIN_WORD_CHARS, len(normalized) - MIN_WORD_CHARS + 1)
        pages = {
            cut: min(self._count_pages(normalized[:cut], lexicon), self._count_pages(normalized[cut:], lexicon))
            for cut in cuts
        }
        cut = max(pages, key=pages.__getitem__, default=0)
        if not cut or not pages[cut] or len(word.typed) != len(normalized):
            return ""
        stems = tuple(self._stem(part) for part in (normalized[:cut], normalized[cut:]))
        adjacent = self._index.search_keywords(KeywordQuery(terms=stems, phrases=(stems,)), 1, scope.where)
        return f"{word.typed[:cut]} {word.typed[cut:]}" if adjacent else ""

    def _count_forms(self, term: str, scope: CorrectionScope) -> Counter[str]:
        """Words with this form or stem as spelled on pages that pass the filter, with their counts."""
        hits = self._index.search_keywords(KeywordQuery((term,)), _MAX_PAGES_READ, scope.where)
        texts = self._read_texts([hit.page_id for hit in hits], scope.language)
        forms = Counter(spelling for text in texts for spelling in self._iter_occurrences(term, text))
        in_identifier = forms.pop("", 0)
        if texts and not forms and not in_identifier and self._stem(term) != term:
            # If stemming changes the term, it is a word and not a stem: use it without accents.
            forms[term] = 1
        return forms

    def _read_texts(self, page_ids: Sequence[int], language: str) -> list[str]:
        """The names and the first passages of these pages, without pages in another language."""
        chunks = self._index.get_page_chunks(page_ids, _MAX_CHUNKS_READ)
        texts: list[str] = []
        for page_id, page in self._index.get_pages(page_ids).items():
            passages = [chunk.text for chunk in chunks.get(page_id, ())]
            if language and is_text_in_other_language("\n".join(passages)[:_LANGUAGE_SAMPLE_CHARS], language):
                continue
            # In names, underscores are often written for spaces.
            texts += (name.replace("_", " ") for name in (page.name, page.path, *page.tags, *page.aliases))
            texts += passages
        return texts

    def _iter_occurrences(self, term: str, text: str) -> Iterator[str]:
        """The words of a text with this form or stem; "" for a part of an identifier, such as Git in GitLab."""
        prefix = term[:_STABLE_PREFIX_CHARS]
        # No token has a space; most parts between two spaces can be left out before they are split into tokens.
        parts = [part for part in text.split() if not part.isascii() or prefix in part.lower()]
        for token in TOKEN_PATTERN.findall(" ".join(parts)):
            if prefix in normalize_term(token):
                words = [word for word in split_words(token) if term in (normalize_term(word), self._stem(word))]
                yield from words or ([""] if self._is_part(term, token) else ())

    def _is_part(self, term: str, token: str) -> bool:
        analyser = get_query_analyser(self._language)
        return term in analyser.get_token_terms(token) or term in analyser.get_token_forms(token)

    def _stem(self, word: str) -> str:
        return "".join(get_analyser(self._language).get_token_terms(word))


# The ordinary words of English with their inflections, in British and American spelling: SCOWL up to size 55.
# `english_words.LICENSE.txt` has the licence of the list.

_FILE = "english_words.txt.xz"


def is_english_word(word: str) -> bool:
    """Whether this word of at least four letters, in lower case, is in the list. The first call reads it."""
    return word.isascii() and word.isalpha() and f"\n{word}\n".encode() in _read_words()


def list_english_words() -> list[str]:
    """All words of the list."""
    return _read_words().decode().split()


@cache
def _read_words() -> bytes:
    """The words, each between two line ends. Searching them takes less memory than a set, and little time."""
    return lzma.decompress(files(__package__).joinpath(_FILE).read_bytes())
