"""One letter's difference between two words. Pure functions."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.text.analysis import TOKEN_PATTERN, get_analyser, iter_script_runs, normalize_term
from wikiholt.text.keyword_query import find_plain_words

SWAPPED_LIKELIHOOD, MISSING_LIKELIHOOD, DOUBLED_LIKELIHOOD, EXTRA_LIKELIHOOD, OTHER_LIKELIHOOD = (
    1.0,
    1.0,
    1.0,
    0.1,
    0.09,
)
"""How readily each slip is believed: two letters swapped, one left out, one typed twice, one too many, another one.

A finger that hits another key can hit one of many; that it was this one makes the slip the less likely.
"""
FIRST_LETTER_FACTOR = 0.2
"""People seldom miss the first letter."""
_MIN_LONG_WORD_CHARS = 5
"""Shorter words that differ in their first letter alone are different words more often than slips; so are names."""

_MAX_CANDIDATES = 5_000


def score_typo(typed: str, word: str, *, is_name: bool = False) -> float:
    """How readily the typed letters are a slip of one letter in the word; 0 if they are not."""
    if abs(len(typed) - len(word)) > 1 or typed == word:
        return 0.0
    same = _count_common_prefix(typed, word)
    slip = _score_edit(typed, word, same)
    if same or slip == SWAPPED_LIKELIHOOD:
        return slip
    return (
        0.0
        if slip == OTHER_LIKELIHOOD and (is_name or len(word) < _MIN_LONG_WORD_CHARS)
        else slip * FIRST_LETTER_FACTOR
    )


def find_near_terms(typed: str, lexicon: Lexicon, *, is_name: bool = False) -> dict[str, float]:
    """The lexicon's terms that are one slip away, each with its likeness.

    A slip leaves the first half of a word or the second as it was, but for a swap in the very middle.
    """
    half = len(typed) // 2
    lengths = range(len(typed) - 1, len(typed) + 2)
    terms = {typed[: half - 1] + typed[half] + typed[half - 1] + typed[half + 1 :]}
    terms.update(lexicon.find_by_prefix(typed[:half], _MAX_CANDIDATES, lengths))
    terms.update(lexicon.find_by_suffix(typed[half:], _MAX_CANDIDATES, lengths))
    return {term: like for term in terms if (like := score_typo(typed, term, is_name=is_name))}


def _score_edit(typed: str, word: str, prefix_length: int) -> float:
    """What was done at the first letter that differs, if that is all that differs."""
    if len(typed) < len(word):
        return MISSING_LIKELIHOOD if typed[prefix_length:] == word[prefix_length + 1 :] else 0.0
    if len(typed) > len(word):
        if typed[prefix_length + 1 :] != word[prefix_length:]:
            return 0.0
        # Of two like letters the second is the one that differs.
        return (
            DOUBLED_LIKELIHOOD
            if prefix_length and typed[prefix_length] == typed[prefix_length - 1]
            else EXTRA_LIKELIHOOD
        )
    if typed[prefix_length + 1 :] == word[prefix_length + 1 :]:
        return OTHER_LIKELIHOOD
    swapped = typed[prefix_length : prefix_length + 2] == word[prefix_length : prefix_length + 2][::-1]
    return SWAPPED_LIKELIHOOD if swapped and typed[prefix_length + 2 :] == word[prefix_length + 2 :] else 0.0


def _count_common_prefix(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


# Which words of a query may be slips of the fingers, and how a word is written in place of another. Pure functions.


MIN_WORD_CHARS = 4
_MAX_WORDS = 8
"""Words of a query that are looked at: a text in another language is no row of typing errors."""
_NO_WORD_BEFORE, _NO_WORD_AFTER = frozenset("-/\\@#.:_$=<&%+*~"), frozenset("/\\@#_$=<&%+*~([")
"""Signs that make what stands beside them part of a path, an option, an address or code; + is there to be typed."""
_LETTER_PARTS_PATTERN = re.compile(r"[A-Z]?[a-z]+(?=[A-Z])|[^0-9_.\-'’·]+")


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query that may be corrected, and where it stands."""

    start: int
    end: int
    typed: str
    normalized: str
    is_unfinished: bool
    """Whether it is the last one and may still be being typed."""
    is_name: bool
    with_neighbours: tuple[tuple[int, int, str], ...]
    """It and the word before it or after it as if there were no space between them: from, to, what that gives."""


def find_words(text: str) -> list[QueryWord]:
    """The words that may be corrected: of letters alone, long enough, of a script that has spaces between words."""
    spans = find_plain_words(text)
    found = []
    for at, (start, end) in enumerate(spans):
        token = text[start:end]
        if (
            len(normalize_term(token)) >= MIN_WORD_CHARS
            and _is_plain_word(token)
            and _is_free_standing(text, start, end)
        ):
            around = _join_neighbours(text, spans, at)
            found.append(
                QueryWord(start, end, token, normalize_term(token), end == len(text), token[0].isupper(), around)
            )
    return found[:_MAX_WORDS]


def find_replaced_words(query: str, corrected: str) -> list[tuple[int, int]]:
    """Where the words of a query stand that another takes the place of in what was meant."""
    kept = {corrected[start:end] for start, end in find_plain_words(corrected)}
    return [(start, end) for start, end in find_plain_words(query) if query[start:end] not in kept] if corrected else []


def format_as_typed(query: str, corrected: str) -> str:
    """The query that searches for those words as they were typed, its end cut off where it would be too long."""
    for start, _ in reversed(find_replaced_words(query, corrected)):
        query = f"{query[:start]}+{query[start:]}"
    return query[:MAX_QUERY_CHARS]


def is_letters_only(word: str) -> bool:
    return word.isalpha() or all(unicodedata.category(sign)[0] in "LM" for sign in word)


def split_letter_parts(token: str) -> list[str]:
    """The words of letters in a token: office and hours in office-hours, user and Name in userName."""
    return _LETTER_PARTS_PATTERN.findall(token)


def copy_capitals(typed: str, word: str) -> str:
    """The word with capitals as the typed one has them."""
    if typed.islower():
        return word.lower()
    if typed.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if typed[:1].isupper() else word


def _is_plain_word(token: str) -> bool:
    """Whether it is a word of letters, and no name such as getUser."""
    if not is_letters_only(token) or any(dense for dense, _, _ in iter_script_runs(token)):
        return False
    return token.isupper() or not any(letter.isupper() for letter in token[1:])


def _is_free_standing(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] not in _NO_WORD_BEFORE and text[end : end + 1] not in _NO_WORD_AFTER


def _join_neighbours(text: str, spans: Sequence[tuple[int, int]], at: int) -> tuple[tuple[int, int, str], ...]:
    pairs = [pair for pair in (spans[at - 1 : at + 1], spans[at : at + 2]) if len(pair) == 2]
    whole = [(one[0], other[1], text[one[0] : one[1]], text[other[0] : other[1]]) for one, other in pairs]
    return tuple(
        (start, end, before + after)
        for start, end, before, after in whole
        if text[start:end] == f"{before} {after}" and _is_plain_word(before) and _is_plain_word(after)
    )


# Words of a query that no page holds, and what was most likely meant by them. Only this wiki's own words are
# suggested, only as they stand on pages that pass the search's filter, and only for words of letters that stand free
# in the query: what is quoted, excluded, a code, a path or an option is kept as typed.


_MAX_TRIED_TERMS = 4
"""Likely words of which pages are asked how they write them."""
_MAX_PAGES_READ, _MAX_CHUNKS_READ = 6, 12
_STABLE_PREFIX_CHARS = 3
"""Letters at the beginning of a word that no stemmer touches."""


class Correction(NamedTuple):
    """What is to stand in a query instead of what stands there."""

    start: int
    end: int
    text: str


class SpellingCorrector:
    """Corrects the queries of one wiki. Safe to use from many threads."""

    def __init__(
        self,
        index: WikiIndex,
        language: str,
        get_lexicon: Callable[[], Lexicon | None],
        get_terms: Callable[[str], Iterable[str]],
    ) -> None:
        """`terms` are those by which a word is looked for."""
        self._index = index
        self._language = language
        self._get_lexicon = get_lexicon
        self._get_terms = get_terms

    def correct(self, text: str, where: PageFilter, is_known: Callable[[str], bool]) -> str:
        """The query with other words for those that no page holds; "" where there is nothing to correct.

        A word is left as it is if it is `known` to be one, though it stands on no page.
        """
        words = find_words(text)
        lexicon = self._get_lexicon() if words else None
        if lexicon is None:
            return ""
        out, until = text, len(text)
        for word in reversed(words):
            if word.end > until or self._is_known(word, lexicon):
                continue
            fix = self._find_correction(word, lexicon, where)
            # Asked last, for it may have to load the model.
            if fix is not None and fix.end <= until and not is_known(word.typed):
                out, until = out[: fix.start] + fix.text + out[fix.end :], fix.start
        return "" if out == text else out

    def _is_known(self, word: QueryWord, lexicon: Lexicon) -> bool:
        if lexicon.count_pages(word.normalized) or any(map(lexicon.count_pages, self._get_terms(word.typed))):
            return True
        return word.is_unfinished and bool(lexicon.find_by_prefix(word.normalized, 1))

    def _count_pages(self, folded: str, lexicon: Lexicon) -> int:
        """How many pages hold the word, be it in another form."""
        return max(lexicon.count_pages(folded), lexicon.count_pages(self._stem(folded)))

    def _find_correction(self, word: QueryWord, lexicon: Lexicon, where: PageFilter) -> Correction | None:
        joined = self._find_merged(word, lexicon, where)
        if joined is not None:
            return joined
        meant = self._find_best_word(word, lexicon, where) or self._find_split(word, lexicon, where)
        return Correction(word.start, word.end, copy_capitals(word.typed, meant)) if meant else None

    def _find_merged(self, word: QueryWord, lexicon: Lexicon, where: PageFilter) -> Correction | None:
        """One word with the one beside it, if that is a word here."""
        for start, end, typed in word.with_neighbours:
            folded = normalize_term(typed)
            forms = self._count_forms(folded, where) if lexicon.count_pages(folded) else {}
            exact = [form for form in forms if normalize_term(form) == folded]
            if exact:
                return Correction(start, end, copy_capitals(typed, max(exact, key=forms.__getitem__)))
        return None

    def _find_best_word(self, word: QueryWord, lexicon: Lexicon, where: PageFilter) -> str:
        """The word one slip away that most pages hold; a word of the same stem where that very form was not seen."""
        likely = {
            term: like * lexicon.count_pages(term)
            for term, like in find_near_terms(word.normalized, lexicon, is_name=word.is_name).items()
        }
        best = sorted(
            (term for term in likely if likely[term] and is_letters_only(term)), key=lambda term: -likely[term]
        )
        other = ""
        for term in best[:_MAX_TRIED_TERMS]:
            forms = self._count_forms(term, where)
            close = [form for form in forms if score_typo(word.normalized, normalize_term(form))]
            if close:
                return max(close, key=forms.__getitem__)
            longer = [form for form in forms if normalize_term(form).startswith(term) and not word.is_name]
            other = other or max(longer, key=forms.__getitem__, default="")
        return other

    def _find_split(self, word: QueryWord, lexicon: Lexicon, where: PageFilter) -> str:
        """Two words that stand side by side on a page, if the word is both run together."""
        folded = word.normalized
        cuts = range(MIN_WORD_CHARS, len(folded) - MIN_WORD_CHARS + 1)
        held = {
            cut: min(self._count_pages(folded[:cut], lexicon), self._count_pages(folded[cut:], lexicon)) for cut in cuts
        }
        cut = max(held, key=held.__getitem__, default=0)
        if not cut or not held[cut] or len(word.typed) != len(folded):
            return ""
        stems = tuple(self._stem(part) for part in (folded[:cut], folded[cut:]))
        beside = self._index.search_keywords(KeywordQuery(terms=stems, phrases=(stems,)), 1, where)
        return f"{word.typed[:cut]} {word.typed[cut:]}" if beside else ""

    def _count_forms(self, term: str, where: PageFilter) -> Counter[str]:
        """The words of this form or stem as pages write them that may be found, each with how often."""
        page_ids = [hit.page_id for hit in self._index.search_keywords(KeywordQuery((term,)), _MAX_PAGES_READ, where)]
        found = Counter(form for text in self._iter_texts(page_ids) for form in self._iter_occurrences(term, text))
        if page_ids and not found and self._stem(term) != term:
            # What has another stem is no stem itself: it is the word, without accents.
            found[term] = 1
        return found

    def _iter_texts(self, page_ids: Sequence[int]) -> Iterator[str]:
        for page in self._index.get_pages(page_ids).values():
            yield from (page.name, page.path, *page.tags)
        for chunks in self._index.get_page_chunks(page_ids, _MAX_CHUNKS_READ).values():
            yield from (chunk.text for chunk in chunks)

    def _iter_occurrences(self, term: str, text: str) -> Iterator[str]:
        for token in TOKEN_PATTERN.findall(text):
            if term[:_STABLE_PREFIX_CHARS] in normalize_term(token):
                yield from (
                    part for part in split_letter_parts(token) if term in (normalize_term(part), self._stem(part))
                )

    def _stem(self, word: str) -> str:
        return "".join(get_analyser(self._language).get_token_terms(word))
