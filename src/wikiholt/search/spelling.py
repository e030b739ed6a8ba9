"""Words of a query that no page holds, and what was most likely meant by them.

Only this wiki's own words are suggested, only as they stand on pages that pass the search's filter, and only for
words of letters that stand free in the query: what is quoted, excluded, a code, a path or an option is kept as typed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from wikiholt.model import Filter, WordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.search.edits import likeness, near
from wikiholt.search.slips import SHORTEST, Word, capital_as, is_lettered, letter_parts, words_of
from wikiholt.text.analysis import TOKEN, analyser, fold

_MOST_TRIED = 4
"""Likely words of which pages are asked how they write them."""
_PAGES_READ, _CHUNKS_READ = 6, 12
_SURE = 3
"""Letters at the beginning of a word that no stemmer touches."""


class Fix(NamedTuple):
    """What is to stand in a query instead of what stands there."""

    start: int
    end: int
    text: str


class Spelling:
    """Corrects the queries of one wiki. Safe to use from many threads."""

    def __init__(
        self,
        index: WikiIndex,
        language: str,
        lexicon: Callable[[], Lexicon | None],
        terms: Callable[[str], Iterable[str]],
    ) -> None:
        """`terms` are those by which a word is looked for."""
        self._index = index
        self._language = language
        self._lexicon = lexicon
        self._terms = terms

    def corrected(self, text: str, where: Filter, known: Callable[[str], bool]) -> str:
        """The query with other words for those that no page holds; "" where there is nothing to correct.

        A word is left as it is if it is `known` to be one, though it stands on no page.
        """
        words = words_of(text)
        lexicon = self._lexicon() if words else None
        if lexicon is None:
            return ""
        out, until = text, len(text)
        for word in reversed(words):
            if word.end > until or self._held(word, lexicon):
                continue
            fix = self._fix(word, lexicon, where)
            # Asked last, for it may have to load the model.
            if fix is not None and fix.end <= until and not known(word.typed):
                out, until = out[: fix.start] + fix.text + out[fix.end :], fix.start
        return "" if out == text else out

    def _held(self, word: Word, lexicon: Lexicon) -> bool:
        if lexicon.pages(word.folded) or any(map(lexicon.pages, self._terms(word.typed))):
            return True
        return word.unfinished and bool(lexicon.beginning_with(word.folded, 1))

    def _pages(self, folded: str, lexicon: Lexicon) -> int:
        """How many pages hold the word, be it in another form."""
        return max(lexicon.pages(folded), lexicon.pages(self._stem(folded)))

    def _fix(self, word: Word, lexicon: Lexicon, where: Filter) -> Fix | None:
        joined = self._joined(word, lexicon, where)
        if joined is not None:
            return joined
        meant = self._meant(word, lexicon, where) or self._parted(word, lexicon, where)
        return Fix(word.start, word.end, capital_as(word.typed, meant)) if meant else None

    def _joined(self, word: Word, lexicon: Lexicon, where: Filter) -> Fix | None:
        """One word with the one beside it, if that is a word here."""
        for start, end, typed in word.with_neighbours:
            folded = fold(typed)
            forms = self._forms(folded, where) if lexicon.pages(folded) else {}
            exact = [form for form in forms if fold(form) == folded]
            if exact:
                return Fix(start, end, capital_as(typed, max(exact, key=forms.__getitem__)))
        return None

    def _meant(self, word: Word, lexicon: Lexicon, where: Filter) -> str:
        """The word one slip away that most pages hold; a word of the same stem where that very form was not seen."""
        likely = {
            term: like * lexicon.pages(term) for term, like in near(word.folded, lexicon, name=word.is_name).items()
        }
        best = sorted((term for term in likely if likely[term] and is_lettered(term)), key=lambda term: -likely[term])
        other = ""
        for term in best[:_MOST_TRIED]:
            forms = self._forms(term, where)
            close = [form for form in forms if likeness(word.folded, fold(form))]
            if close:
                return max(close, key=forms.__getitem__)
            longer = [form for form in forms if fold(form).startswith(term) and not word.is_name]
            other = other or max(longer, key=forms.__getitem__, default="")
        return other

    def _parted(self, word: Word, lexicon: Lexicon, where: Filter) -> str:
        """Two words that stand side by side on a page, if the word is both run together."""
        folded = word.folded
        cuts = range(SHORTEST, len(folded) - SHORTEST + 1)
        held = {cut: min(self._pages(folded[:cut], lexicon), self._pages(folded[cut:], lexicon)) for cut in cuts}
        cut = max(held, key=held.__getitem__, default=0)
        if not cut or not held[cut] or len(word.typed) != len(folded):
            return ""
        stems = tuple(self._stem(part) for part in (folded[:cut], folded[cut:]))
        beside = self._index.words(WordQuery(terms=stems, phrases=(stems,)), 1, where)
        return f"{word.typed[:cut]} {word.typed[cut:]}" if beside else ""

    def _forms(self, term: str, where: Filter) -> Counter[str]:
        """The words of this form or stem as pages write them that may be found, each with how often."""
        page_ids = [hit.page_id for hit in self._index.words(WordQuery((term,)), _PAGES_READ, where)]
        found = Counter(form for text in self._texts(page_ids) for form in self._occurring(term, text))
        if page_ids and not found and self._stem(term) != term:
            # What has another stem is no stem itself: it is the word, without accents.
            found[term] = 1
        return found

    def _texts(self, page_ids: Sequence[int]) -> Iterator[str]:
        for page in self._index.stored_pages(page_ids).values():
            yield from (page.name, page.path, *page.tags)
        for chunks in self._index.page_chunks(page_ids, _CHUNKS_READ).values():
            yield from (chunk.text for chunk in chunks)

    def _occurring(self, term: str, text: str) -> Iterator[str]:
        for token in TOKEN.findall(text):
            if term[:_SURE] in fold(token):
                yield from (part for part in letter_parts(token) if term in (fold(part), self._stem(part)))

    def _stem(self, word: str) -> str:
        return "".join(analyser(self._language).token_terms(word))
