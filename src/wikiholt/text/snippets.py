"""Snippets: a line or two of plain text around the best match, with the matched words marked."""

import re
import unicodedata
from collections.abc import Iterator

from wikiholt.model import Snippet, Span, WordQuery
from wikiholt.text.analysis import TOKEN, Analyser, ManyAnalysers, bigrams, dense_runs, reader
from wikiholt.text.plain import plain_text
from wikiholt.text.sentences import CJK

ELLIPSIS = "…"
_CJK_RUN = re.compile(rf"[{CJK}]")
_WORD = re.compile(r"\w+")
_Match = tuple[int, int, str]


def snippet(text: str, query: WordQuery, *, language: str = "english", length: int = 150) -> Snippet:
    """About `length` characters of the text, as a reader would see them, around the place that matches best.

    Without a match it is the beginning. It is cut between words and never longer than `length` and two ellipses;
    `matches` are the ranges of the words that match by their terms, so a search for "running" marks "runs".
    """
    plain = unicodedata.normalize("NFC", " ".join(plain_text(text).split()))
    if not plain:
        plain = " ".join(_WORD.findall(text))
    matches = list(_matches(plain, query, reader(language))) if query else []
    start, end = _window(plain, matches, max(length, 1))
    lead = ELLIPSIS if start > 0 else ""
    tail = ELLIPSIS if end < len(plain) else ""
    shift = len(lead) - start
    spans = tuple(Span(a + shift, b + shift) for a, b, _ in matches if start <= a and b <= end)
    return Snippet(f"{lead}{plain[start:end]}{tail}", _merged(spans))


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
            term = next((term for term in reversed(terms) if term in wanted), None)
            if term is None and prefix:
                term = next((term for term in (*terms, *words.token_forms(run)) if term.startswith(prefix)), None)
            if term is not None:
                yield begin, begin + len(run), term


def _window(plain: str, matches: list[_Match], length: int) -> tuple[int, int]:
    """The range to show: the one with the most to say, by the letters of its different terms, then the first."""
    if len(plain) <= length:
        return 0, len(plain)
    first, last = _densest(matches, length)
    room = length - (last - first)
    start = max(0, min(first - room // 3, len(plain) - length))
    end = min(start + length, len(plain))
    start = _word_start(plain, start, first) if matches else 0
    return start, max(_word_end(plain, start, end, last), start + 1)


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
