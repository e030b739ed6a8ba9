"""Builds snippets: a line or two of plain text around the best match, with the matched words marked."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, compress, islice
from operator import itemgetter

from wikiholt.domain.search import KeywordQuery, Snippet, Span
from wikiholt.text.analysis import (
    TOKEN_PATTERN,
    get_query_analyser,
    iter_part_spans,
    iter_script_runs,
    make_bigrams,
    normalize_term,
    split_languages,
)
from wikiholt.text.dialect import GFM, Dialect
from wikiholt.text.display_text import SEPARATOR, DisplayText, to_display_text
from wikiholt.text.keyword_query import get_stop_terms
from wikiholt.text.languages import get_stopword_text
from wikiholt.text.segmentation import CJK_RANGES

ELLIPSIS = "…"
_APOSTROPHES = frozenset("'’")
_PUNCTUATION = ".,:;!?()\"'"
_CJK_RUN = re.compile(rf"[{CJK_RANGES}]")
_SENTENCE_START_CHARS = 40
"""Characters shown of the beginning of a sentence."""
_Match = tuple[int, int, str]
SentenceScorer = Callable[[Sequence[str]], Sequence[float]]


@lru_cache(maxsize=2048)
def _to_display_text(text: str, dialect: Dialect) -> tuple[DisplayText, tuple[str, ...]]:
    """The display text and its sentences, if there are several.

    Searches return the same passages again: while a query is typed, and for the next person who asks.
    """
    displayed = to_display_text(text, dialect)
    spans = displayed.sentences if len(displayed.sentences) > 1 else ()
    return displayed, tuple([displayed.text[start:end] for start, end in spans])


def split_sentences(text: str, dialect: Dialect = GFM) -> Sequence[str]:
    """The sentences of a passage's display text: sentences, list items, table rows, a few lines of code."""
    displayed, sentences = _to_display_text(text, dialect)
    return sentences or [displayed.text[start:end] for start, end in displayed.sentences]


class SnippetBuilder:
    """Builds the snippets of one search."""

    def __init__(
        self, matcher: "QueryMatcher", sentence_scorer: SentenceScorer | None = None, dialect: Dialect = GFM
    ) -> None:
        self._matcher = matcher
        self._sentence_scorer = sentence_scorer
        self._dialect = dialect

    def build(
        self, texts: Sequence[str], lengths: Sequence[int], titles: Sequence[Sequence[str]] = ()
    ) -> list[Snippet]:
        """For each text a part of its display text around the best match, with about as many characters as `lengths`.

        A snippet is cut between words and is at most its length plus two ellipses. `matches` are the ranges of words
        that match by their terms, so a search for "running" marks "runs". `sentence` is the visible part of the
        closest sentence in view: the one with the highest score of the scorer, or else with the most matched words.
        `titles` are shown beside each snippet. Their words count only if no other word matches: they do not tell which
        part of the text answers. Without a match it is the beginning of the text; text without visible content gives
        an empty snippet.
        """
        displayed = [_to_display_text(text, self._dialect) for text in texts]
        scores = self._score_sentences([sentences for _, sentences in displayed])
        rows = zip(displayed, scores, lengths, titles or [()] * len(texts), strict=True)
        return [self._build_one(text, scores, max(length, 1), shown) for (text, _), scores, length, shown in rows]

    def find_spans(self, text: str) -> tuple[Span, ...]:
        """The ranges of a name or heading that match the query."""
        return _merge_spans(tuple(Span(start, end) for start, end, _ in self._matcher.find(text)))

    def _score_sentences(self, texts: Sequence[Sequence[str]]) -> Iterator[Sequence[float]]:
        """The scores of the sentences of each text, made in one call."""
        if self._sentence_scorer is None or not any(texts):
            return iter([()] * len(texts))
        scores = iter(self._sentence_scorer(list(chain.from_iterable(texts))))
        return (list(islice(scores, len(sentences))) for sentences in texts)

    def _build_one(
        self, displayed: DisplayText, scores: Sequence[float], length: int, titles: Sequence[str]
    ) -> Snippet:
        plain, sentences = displayed.text, displayed.sentences
        matches = self._matcher.find(plain)
        in_titles = {term for title in titles for _, _, term in self._matcher.find(title)}
        telling = [match for match in matches if match[2] not in in_titles] or matches
        closest = (
            sentences[0]
            if self._sentence_scorer is not None and len(sentences) == 1
            else _find_closest_sentence(sentences, telling, scores)
        )
        start, end = _find_window(plain, telling, closest, length)
        if closest is not None and (closest.end <= start or end <= closest.start):
            visible = [span.start < end and start < span.end for span in sentences]
            closest = _find_closest_sentence(
                list(compress(sentences, visible)), telling, list(compress(scores, visible))
            )
        lead = ELLIPSIS if start > 0 else ""
        tail = ELLIPSIS if end < len(plain) else ""
        shift = len(lead) - start
        spans = tuple(Span(a + shift, b + shift) for a, b, _ in matches if start <= a and b <= end)
        return Snippet(
            f"{lead}{plain[start:end]}{tail}", _merge_spans(spans), _clip_span(plain, closest, start, end, shift)
        )


def _find_closest_sentence(
    sentences: Sequence[Span], matches: Sequence[_Match], scores: Sequence[float]
) -> Span | None:
    """The sentence closest to the query, the first of equals; None if there is no evidence."""
    if scores:
        score, closest = max(zip(scores, sentences, strict=True), key=itemgetter(0))
        if score > 0:
            return closest
    counts = [(_count_matched_letters(matches, sentence), sentence) for sentence in sentences]
    count, best = max(counts, key=itemgetter(0), default=(0, None))
    return best if count else None


def _count_matched_letters(matches: Sequence[_Match], within: Span) -> int:
    """The total length of the different terms that match within a range."""
    return sum(map(len, {term for start, end, term in matches if within.start <= start and end <= within.end}))


def _clip_span(plain: str, sentence: Span | None, start: int, end: int, shift: int) -> Span | None:
    """The visible part of a sentence, as a range of the snippet."""
    if sentence is None:
        return None
    first, last = max(sentence.start, start), min(sentence.end, end)
    last = first + len(plain[first:last].rstrip())
    return Span(first + shift, last + shift) if first < last else None


@cache
def _get_all_stop_terms(language: str) -> frozenset[str]:
    """The stopwords of every language of a wiki as terms."""
    return frozenset[str]().union(*map(get_stop_terms, split_languages(language)))


@cache
def _get_all_stopwords(language: str) -> frozenset[str]:
    """The stopwords of every language of a wiki as written."""
    return frozenset(word for each in split_languages(language) for word in get_stopword_text(each).split())


class QueryMatcher:
    """Finds the words of texts that match one query. Function words match only if the query has no other words."""

    def __init__(self, query: KeywordQuery, language: str) -> None:
        self._analyser = get_query_analyser(language)
        self._language = language
        self._terms = frozenset(query.terms).union(*query.phrases)
        self._stop_terms = _get_all_stop_terms(language)
        self._significant_terms = self._terms - self._stop_terms or self._terms
        self._prefix = query.prefix
        # A stem begins like its word, so most words can be skipped without analysis.
        self._heads = {term[:2] for term in (*self._terms, query.prefix) if term}
        self._matches_by_text: dict[str, list[_Match]] = {}
        self._matches_by_word: dict[str, tuple[_Match, ...]] = {}

    def find(self, plain: str) -> list[_Match]:
        """Start, end and term of each word of a text that matches the query."""
        if not self._heads:
            return []
        # Names and headings are read for the passage below them, for their own marks, and again on other hits.
        found = self._matches_by_text.get(plain)
        if found is None:
            found = self._matches_by_text[plain] = self._find_matches(plain)
        return found

    def _find_matches(self, plain: str) -> list[_Match]:
        found: list[_Match] = []
        known, offset = self._matches_by_word, 0
        # No token has a space, and texts repeat their words.
        for word in plain.split(" "):
            matches = known.get(word)
            if matches is None:
                matches = known[word] = tuple(self._iter_word_matches(word)) if self._may_match(word) else ()
            if matches:
                found += [(offset + start, offset + end, term) for start, end, term in matches]
            offset += len(word) + 1
        return found

    def _may_match(self, word: str) -> bool:
        """Whether a head begins a term of the word. A word of small letters has one term, which begins as it does."""
        word = word.strip(_PUNCTUATION)
        is_plain = word.isascii() and word.isalpha() and word[1:].islower()
        return not is_plain or word[:2].lower() in self._heads

    def _iter_word_matches(self, word: str) -> Iterator[_Match]:
        for token in TOKEN_PATTERN.finditer(word):
            begin = token.start()
            yield from ((begin + start, begin + end, term) for start, end, term in self._iter_token_matches(token[0]))

    def _iter_token_matches(self, token: str) -> Iterator[_Match]:
        for is_unspaced, run, offset in [(False, token, 0)] if token.isascii() else iter_script_runs(token):
            if is_unspaced:
                yield from self._iter_bigram_matches(run, offset)
            elif (term := self._find_word_term(run)) is not None:
                yield from self._iter_part_matches(run, offset, term)

    def _iter_part_matches(self, run: str, offset: int, term: str) -> Iterator[_Match]:
        """The words of a compound word or identifier that match; the whole of it if it matches as such."""
        parts = list(iter_part_spans(run)) if _APOSTROPHES.isdisjoint(run) else []
        found = [
            (offset + start, offset + end, match)
            for start, end in parts
            if (match := self._find_word_term(run[start:end])) is not None
        ]
        is_part = any(match == term for _, _, match in found)
        is_typed = len(parts) > 1 and len(self._prefix) > parts[0][1] and normalize_term(run).startswith(self._prefix)
        yield from found if is_part and not is_typed else [(offset, offset + len(run), term)]

    def _iter_bigram_matches(self, run: str, offset: int) -> Iterator[_Match]:
        for position, pair in enumerate(make_bigrams(run), offset):
            if pair in self._significant_terms:
                yield position, position + len(pair), pair
            elif self._prefix and pair.startswith(self._prefix):
                yield position, position + len(self._prefix), pair
            else:
                yield from (
                    (position + n, position + n + 1, char)
                    for n, char in enumerate(pair)
                    if char in self._significant_terms
                )

    def _find_word_term(self, word: str) -> str | None:
        """The term by which a word matches."""
        terms, forms = self._analyser.get_token_terms(word), self._analyser.get_token_forms(word)
        # The full identifier comes after its parts and is more specific.
        term = next((term for term in (*reversed(terms), *forms) if term in self._terms), None)
        # The term of a function word may also be that of another word: "nogle" and "nøgle" in Danish.
        if (
            term is not None
            and term not in self._significant_terms
            and word.lower() in _get_all_stopwords(self._language)
        ):
            term = None
        if term is None and self._prefix and not self._stop_terms.issuperset(terms):
            term = next((term for term in (*terms, *forms) if term.startswith(self._prefix)), None)
        return term


def _find_window(plain: str, matches: list[_Match], sentence: Span | None, length: int) -> tuple[int, int]:
    """The range to show: the densest matches, by total length of different terms, or the beginning of the closest
    sentence; both if they are close together."""
    if len(plain) <= length:
        return 0, len(plain)
    first, last = _find_anchor(plain, matches, sentence, length)
    at_sentence_start = sentence is not None and first == sentence.start
    room = length - (last - first)
    start = max(0, min(first if at_sentence_start else first - room // 3, len(plain) - length))
    end = min(start + length, len(plain))
    start = _find_word_start(plain, start, first) if matches or sentence else 0
    end = max(_find_word_end(plain, start, end, last), start + 1)
    # The ellipsis takes the place of a separator.
    start += 2 * plain.startswith(f"{SEPARATOR} ", start, end)
    return start, end - 2 * plain.endswith(f" {SEPARATOR}", start, end)


def _find_anchor(plain: str, matches: list[_Match], sentence: Span | None, length: int) -> tuple[int, int]:
    """The range that the window must contain."""
    densest = _find_densest(matches, length)
    if sentence is None:
        return densest
    head = min(sentence.end, sentence.start + min(length, _SENTENCE_START_CHARS))
    head = _find_word_end(plain, sentence.start, head, sentence.start)
    if not matches:
        return sentence.start, head
    first, last = min(densest[0], sentence.start), max(densest[1], head)
    if last - first <= length:
        return first, last
    inside = [match for match in matches if sentence.start <= match[0] and match[1] <= sentence.end]
    if 2 * _count_matched_letters(inside, sentence) < _count_matched_letters(matches, Span(*densest)):
        return densest
    first, last = _find_densest(inside, length)
    return (sentence.start, last) if last - sentence.start <= length else (first, last)


def _find_densest(matches: list[_Match], length: int) -> tuple[int, int]:
    best, best_score = (0, 0), (0, 0)
    counts: dict[str, int] = {}
    left = 0
    for right, (_, end, term) in enumerate(matches):
        counts[term] = counts.get(term, 0) + 1
        while left < right and end - matches[left][0] > length:
            dropped = matches[left][2]
            counts[dropped] -= 1
            if not counts[dropped]:
                del counts[dropped]
            left += 1
        score = (sum(map(len, counts)), right - left)
        if score > best_score or right == 0:
            best, best_score = (matches[left][0], min(end, matches[left][0] + length)), score
    return best


def _find_word_start(plain: str, start: int, limit: int) -> int:
    """The start of the first word at or after `start`, at most `limit`."""
    if start == 0 or plain[start - 1] == " ":
        return start
    space = plain.find(" ", start, limit)
    if space >= 0:
        return space + 1
    return start if _CJK_RUN.match(plain[start]) else limit


def _find_word_end(plain: str, start: int, end: int, limit: int) -> int:
    """The end of the last word at or before `end`, at least `limit`."""
    if end == len(plain) or plain[end] == " ":
        return end
    space = plain.rfind(" ", max(start + 1, limit), end)
    return space if space > 0 else end


def _merge_spans(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    out: list[Span] = []
    for span in spans:
        if out and span.start <= out[-1].end:
            out[-1] = Span(out[-1].start, max(out[-1].end, span.end))
        else:
            out.append(span)
    return tuple(out)
