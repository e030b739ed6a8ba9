"""Snippets: a line or two of plain text around the best match, with the matched words marked."""

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from wikiholt.model import Snippet, Span, WordQuery
from wikiholt.text.analysis import TOKEN, Analyser, ManyAnalysers, bigrams, dense_runs, reader
from wikiholt.text.readable import readable
from wikiholt.text.sentences import CJK

ELLIPSIS = "…"
_CJK_RUN = re.compile(rf"[{CJK}]")
_HEAD = 40
"""Characters that show how a sentence begins."""
_Match = tuple[int, int, str]
Closeness = Callable[[Sequence[str]], Sequence[float]]


def snippet(
    text: str, query: WordQuery, *, language: str = "english", length: int = 150, closeness: Closeness | None = None
) -> Snippet:
    """About `length` characters of the text, as a reader would see them, around the place that matches best.

    It is cut between words and never longer than `length` and two ellipses; `matches` are the ranges of the words that
    match by their terms, so a search for "running" marks "runs". `sentence` is what is shown of the sentence that is
    closest to the query: by `closeness`, which is given all sentences and gives the closest the highest number, or else
    the one with the most matched words. Without any of these it is the beginning of the text; what holds nothing for
    readers, a comment alone, gives an empty one.
    """
    read = readable(text)
    plain, sentences = read.text, read.sentences
    matches = list(_matches(plain, query, reader(language))) if query else []
    closest = _closest(plain, sentences, matches, closeness)
    start, end = _window(plain, matches, closest, max(length, 1))
    lead = ELLIPSIS if start > 0 else ""
    tail = ELLIPSIS if end < len(plain) else ""
    shift = len(lead) - start
    spans = tuple(Span(a + shift, b + shift) for a, b, _ in matches if start <= a and b <= end)
    return Snippet(f"{lead}{plain[start:end]}{tail}", _merged(spans), _clipped(plain, closest, start, end, shift))


def _closest(
    plain: str, sentences: Sequence[Span], matches: Sequence[_Match], closeness: Closeness | None
) -> Span | None:
    """The sentence closest to the query, the first of equals; None if nothing tells."""
    if closeness is not None and len(sentences) == 1:
        return sentences[0]
    if closeness is not None and sentences:
        close = closeness([plain[each.start : each.end] for each in sentences])
        nearest, found = max(zip(close, sentences, strict=True), key=itemgetter(0))
        if nearest > 0:
            return found
    told = [(_said(matches, each), each) for each in sentences]
    most, best = max(told, key=itemgetter(0), default=(0, None))
    return best if most else None


def _said(matches: Sequence[_Match], within: Span) -> int:
    """The letters of the different terms that match within a range."""
    return sum(map(len, {term for start, end, term in matches if within.start <= start and end <= within.end}))


def _clipped(plain: str, sentence: Span | None, start: int, end: int, shift: int) -> Span | None:
    """The part of a sentence that is shown, by its place in the snippet."""
    if sentence is None:
        return None
    first, last = max(sentence.start, start), min(sentence.end, end)
    last = first + len(plain[first:last].rstrip())
    return Span(first + shift, last + shift) if first < last else None


def _matches(plain: str, query: WordQuery, words: Analyser | ManyAnalysers) -> Iterator[_Match]:
    wanted = frozenset(query.terms).union(*query.phrases)
    prefix = query.prefix
    # A stem begins as its word does, so most words can be passed over without being analysed.
    heads = re.compile("|".join(re.escape(head) for head in {term[:2] for term in (*wanted, prefix) if term}))
    for found in TOKEN.finditer(plain):
        token = found[0]
        ascii_only = token.isascii()
        if ascii_only and not heads.search(token.lower()):
            continue
        for dense, run, offset in [(False, token, 0)] if ascii_only else [*dense_runs(token)]:
            begin = found.start() + offset
            if dense:
                for at, pair in enumerate(bigrams(run), begin):
                    if pair in wanted:
                        yield at, at + len(pair), pair
                    elif prefix and pair.startswith(prefix):
                        yield at, at + len(prefix), pair
                    else:
                        yield from ((at + n, at + n + 1, sign) for n, sign in enumerate(pair) if sign in wanted)
                continue
            terms = words.token_terms(run)
            # The whole of an identifier comes after its parts, and says more.
            term = next((term for term in (*reversed(terms), *words.token_forms(run)) if term in wanted), None)
            if term is None and prefix:
                term = next((term for term in (*terms, *words.token_forms(run)) if term.startswith(prefix)), None)
            if term is not None:
                yield begin, begin + len(run), term


def _window(plain: str, matches: list[_Match], sentence: Span | None, length: int) -> tuple[int, int]:
    """The range to show: the words with the most to say, by the letters of different terms, or the closest sentence's
    beginning; both, where they are near each other."""
    if len(plain) <= length:
        return 0, len(plain)
    first, last = _anchor(matches, sentence, length)
    begins = sentence is not None and first == sentence.start
    room = length - (last - first)
    start = max(0, min(first if begins else first - room // 3, len(plain) - length))
    end = min(start + length, len(plain))
    start = _word_start(plain, start, first) if matches or sentence else 0
    return start, max(_word_end(plain, start, end, last), start + 1)


def _anchor(matches: list[_Match], sentence: Span | None, length: int) -> tuple[int, int]:
    """What the window must hold."""
    words = _densest(matches, length)
    if sentence is None:
        return words
    head = min(sentence.end, sentence.start + min(length, _HEAD))
    if not matches:
        return sentence.start, head
    first, last = min(words[0], sentence.start), max(words[1], head)
    if last - first <= length:
        return first, last
    inside = [match for match in matches if sentence.start <= match[0] and match[1] <= sentence.end]
    if 2 * _said(inside, sentence) < _said(matches, Span(*words)):
        return words
    first, last = _densest(inside, length)
    return (sentence.start, last) if last - sentence.start <= length else (first, last)


def _densest(matches: list[_Match], length: int) -> tuple[int, int]:
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


def _word_start(plain: str, start: int, limit: int) -> int:
    """The first word that begins at or after `start`, not past `limit`."""
    if start == 0 or plain[start - 1] == " ":
        return start
    space = plain.find(" ", start, limit)
    if space >= 0:
        return space + 1
    return start if _CJK_RUN.match(plain[start]) else limit


def _word_end(plain: str, start: int, end: int, limit: int) -> int:
    """The last word that ends at or before `end`, not before `limit`."""
    if end == len(plain) or plain[end] == " ":
        return end
    space = plain.rfind(" ", max(start + 1, limit), end)
    return space if space > 0 else end


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    out: list[Span] = []
    for span in spans:
        if out and span.start <= out[-1].end:
            out[-1] = Span(out[-1].start, max(out[-1].end, span.end))
        else:
            out.append(span)
    return tuple(out)
