"""Words of a query that no page holds, and what was most likely meant by them.

Only this wiki's own words are suggested, only as they stand on pages that pass the search's filter, and only for
words of letters that stand free in the query: what is quoted, excluded, a code, a path or an option is kept as typed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from wikiholt.model import PageFilter, KeywordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.search.edits import score_typo, find_near_terms
from wikiholt.search.slips import MIN_WORD_CHARS, QueryWord, copy_capitals, is_letters_only, split_letter_parts, find_words
from wikiholt.text.analysis import TOKEN_PATTERN, get_analyser, normalize_term

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
            term: like * lexicon.count_pages(term) for term, like in find_near_terms(word.normalized, lexicon, is_name=word.is_name).items()
        }
        best = sorted((term for term in likely if likely[term] and is_letters_only(term)), key=lambda term: -likely[term])
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
        held = {cut: min(self._count_pages(folded[:cut], lexicon), self._count_pages(folded[cut:], lexicon)) for cut in cuts}
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
                yield from (part for part in split_letter_parts(token) if term in (normalize_term(part), self._stem(part)))

    def _stem(self, word: str) -> str:
        return "".join(get_analyser(self._language).get_token_terms(word))
