"""Checks whether a sentence that a language model wrote is supported by the passages that it cites.

The check compares words: it reads neither grammar nor meaning. It notices another number, name, negation or opposite,
and words that the passages do not have; it does not notice two names that changed places. See docs/ask.md.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from wikiholt.text.analysis import get_analyser, split_languages
from wikiholt.text.keyword_query import get_stop_terms
from wikiholt.text.segmentation import CJK_RANGES

MIN_WORDS = 0.5
"""The share of the words of a sentence that its passages have."""
MAX_NEW_WORDS = 2
"""Words in a row that the passages do not have."""
_COPIED, _MIN_COPIED = 0.8, 3
"""A sentence with this share of the words of a quoted one, and at least as many, is compared as a copy."""
MAX_SENTENCE_CHARS = 1_000
_NEAR = 0.6
"""Sentences of a passage with this share of the words that the closest one shares are compared too."""
_STEM_CHARS = 5
"""Words that begin with as many equal letters are the same: notify and notification."""
_SCOPE = 6
"""Tokens after a negation that it negates."""

_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[{CJK_RANGES}]+|[^\W\d_](?:[\w'’]|[-._/](?=\w))*|#?\w+|[.,;:!?()|]")
_UNSPACED = re.compile(rf"[{CJK_RANGES}]")
_NUMBER = re.compile(r"\d[\d.,:]*")
_IDENTIFIER = re.compile(r".+[A-Z_/.]|.*\d.*|.*[a-z][A-Z].*")
_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "third fourth fifth sixth seventh eighth ninth tenth"
_NUMBER_WORDS = (
    {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split()) if number > 1}
    | {word: str(10 * number) for number, word in enumerate(_TENS.split(), 3)}
    | {word: word for word in _ORDINALS.split()}
)
"""Without *one*, which is mostly no number."""
_NEGATIONS = {
    "english": "not no never none nor neither nothing nobody nowhere cannot without instead except unless",
    "german": "nicht kein keine keinen keinem keiner nie niemals niemand nichts ohne außer",
    "french": "ne n' pas jamais aucun aucune sans rien personne sauf",
    "spanish": "no nunca jamás ningún ninguna ninguno sin nada nadie salvo",
    "italian": "non mai nessun nessuno nessuna senza niente salvo",
    "portuguese": "não nunca nenhum nenhuma sem nada ninguém exceto",
    "dutch": "niet geen nooit niemand niets zonder behalve",
    "swedish": "inte ingen inget inga aldrig utan",
    "danish": "ikke ingen intet aldrig uden",
    "norwegian": "ikke ingen intet aldri uten",
}
_MODALS = frozenset({"may", "must", "shall", "might", "could", "would", "should"})
_PURPOSE = {"so"}
"""*So that it does not freeze* negates nothing that a passage must negate too."""
_LIMITS = frozenset({"only", "nur", "seulement", "solo", "sólo", "apenas", "alleen", "bara", "kun"})
_OPPOSITES = (
    "before/after first/last early/late earlier/later open/closed open/close opened/closed start/stop begin/end "
    "start/end more/less more/fewer most/least always/never all/none all/some must/may required/optional allow/forbid "
    "allowed/forbidden allowed/prohibited permit/forbid enable/disable enabled/disabled above/below over/under "
    "left/right top/bottom high/low higher/lower large/small larger/smaller big/small long/short longer/shorter "
    "fast/slow faster/slower hot/cold warm/cold wet/dry hard/soft old/new older/newer newest/oldest add/remove "
    "increase/decrease raise/lower rise/fall accept/refuse accept/reject public/private internal/external "
    "minimum/maximum min/max least/most same/different inside/outside true/false success/failure succeed/fail "
    "safe/dangerous cheap/expensive read/write import/export upload/download buy/sell win/lose give/take arrive/leave "
    "north/south east/west morning/evening day/night summer/winter spring/autumn increase/reduce today/tomorrow "
    "yesterday/tomorrow daily/weekly weekly/monthly hourly/daily daily/nightly day/week day/month week/month "
    "month/year hour/minute hour/day minute/second minute/day second/hour days/weeks days/months days/years "
    "weeks/months months/years hours/minutes hours/days minutes/seconds minutes/days seconds/hours kb/mb mb/gb gb/tb "
    "metre/centimetre metres/centimetres metres/millimetres"
)
_OPPOSITE_PAIRS = [pair.split("/") for pair in _OPPOSITES.split()]
_NEGATING_PREFIXES = ("un", "dis", "in", "im", "ir", "il", "non", "de")
_MIN_ROOT_CHARS = 4


class _Word(NamedTuple):
    """A word of a sentence."""

    text: str
    """In lower case."""
    shown: str
    term: str
    """Empty for a function word or punctuation."""
    is_name: bool = False
    is_number: bool = False
    is_negated: bool = False
    is_negation: bool = False
    is_pair: bool = False
    """Whether it is a pair of characters of a script without spaces."""


class QuotedPassages:
    """The sentences of the passages that a model may cite."""

    def __init__(self, passages: Sequence[Sequence[str]], language: str) -> None:
        """`passages` are the sentences of each, the first one its page and headings."""
        self._language = split_languages(language)[0]
        self._passages = [[list(self._read(sentence)) for sentence in sentences] for sentences in passages]

    def find_fault(self, sentence: str, cited: Sequence[int]) -> str:
        """Why the sentence is not supported by the passages with these numbers, from 1; empty if it is."""
        if not cited:
            return "it cites no passage"
        if unknown := [number for number in cited if not 0 < number <= len(self._passages)]:
            return f"there is no passage {unknown[0]}"
        if len(sentence) > MAX_SENTENCE_CHARS:
            return "it is too long"
        words = list(self._read(sentence, len(sentence)))
        terms = [word for word in words if word.term]
        if not terms:
            return "it has no words to compare"
        passages = [self._passages[number - 1] for number in dict.fromkeys(cited)]
        quoted = [line for lines in passages for line in lines]
        if any(_list_words(line) == _list_words(words) for line in quoted):
            return ""  # a copy
        known = [word for line in quoted for word in line if word.term]
        near_lines = _find_near(terms, quoted)
        near = [word for line in (*near_lines, *(lines[0] for lines in passages)) for word in line]
        return (
            _compare_words(terms, known)
            or _compare_numbers(words, near_lines, quoted)
            or _compare_names(terms, known)
            or _compare_copies(words, near_lines, known)
            or _compare_negations(words, near)
            or _compare_opposites(words, near)
            or _find_replaced(words, known, near)
        )

    def _read(self, sentence: str, scope: int = _SCOPE) -> Iterator[_Word]:
        analyser, stop_terms = get_analyser(self._language), get_stop_terms(self._language)
        negations, is_first = _get_negations(self._language), True
        found = list(_TOKEN.finditer(sentence))
        negated = _find_negated(found, negations, scope)
        for position, match in enumerate(found):
            text = match[0]
            folded = text.casefold()
            number = _to_number(folded)
            if number:
                term = number
            else:
                stems = analyser.to_terms(text)
                if len(stems) > 1 and _UNSPACED.match(text):
                    yield from (_Word(text, text, stem, is_pair=True) for stem in stems)
                    continue
                is_function = set(stems) <= stop_terms or folded in negations or folded in _MODALS
                term = "" if is_function else stems[-1]
            is_name = (
                bool(term)
                and not number
                and (bool(_IDENTIFIER.fullmatch(text)) or (text[0].isupper() and not is_first))
            )
            yield _Word(folded, text, term, is_name, bool(number), position in negated, _is_negation(folded, negations))
            is_first = text in ".:!?|"


@cache
def _get_negations(language: str) -> frozenset[str]:
    return frozenset(_NEGATIONS.get(language, "").split())


def _is_negation(word: str, negations: frozenset[str]) -> bool:
    return word in negations or word.endswith(("n't", "n’t"))


def _find_negated(tokens: Sequence[re.Match[str]], negations: frozenset[str], scope: int) -> set[int]:
    """The positions that a negation reaches: `scope` ones up to a punctuation mark, or else the ones before it."""
    words = [token[0].casefold() for token in tokens]
    negated: set[int] = set()
    for position, word in enumerate(words):
        if not _is_negation(word, negations) or _PURPOSE & set(words[max(0, position - 4) : position]):
            continue
        reached = set[int]()
        for later in range(position + 1, min(len(words), position + 1 + scope)):
            if words[later] in (".,;:!?()|" if scope == _SCOPE else ".;!?"):
                break
            reached.add(later)
        reached |= {position, *(() if reached else range(max(0, position - 3), position))}
        # In a passage, one negation in the scope of another cancels it: never without.
        negated = negated ^ reached if scope == _SCOPE else negated | reached
    return negated


def _to_number(word: str) -> str:
    """The digits of a number, without the marks of thousands; empty for another word."""
    if _NUMBER.fullmatch(word):
        return re.sub(r",(?=\d{3}\b)", "", word).rstrip(".,:")
    return _NUMBER_WORDS.get(word, "")


def _get_starts(words: Sequence[_Word]) -> frozenset[str]:
    """What `_has` compares. A page may have thousands of short lines, so it is not compared word by word."""
    return frozenset(word.term[:_STEM_CHARS] for word in words if word.term)


def _has(starts: frozenset[str], term: str) -> bool:
    return term[:_STEM_CHARS] in starts


def _find_near(terms: Sequence[_Word], quoted: Sequence[Sequence[_Word]]) -> list[Sequence[_Word]]:
    """The quoted sentences that share most words with the sentence."""
    shared = [
        sum(_has(starts, word.term) for word in terms if not word.is_number) for starts in map(_get_starts, quoted)
    ]
    least = max(1, max(shared, default=0) * _NEAR)
    return [line for line, count in zip(quoted, shared, strict=True) if count >= least]


def _list_words(line: Sequence[_Word]) -> list[str]:
    return [word.text for word in line if word.text[0].isalnum()]


def _compare_words(terms: Sequence[_Word], known: Sequence[_Word]) -> str:
    new, row, found, starts = list[str](), 0, 0, _get_starts(known)
    for word in terms:
        if _has(starts, word.term):
            found, row = found + 1, 0
            continue
        new.append(word.text)
        row += not word.is_pair
        if row > MAX_NEW_WORDS:
            return f"the passages do not have: {', '.join(new)}"
    return f"the passages do not have: {', '.join(new)}" if found < MIN_WORDS * len(terms) else ""


def _compare_numbers(words: Sequence[_Word], near: Sequence[Sequence[_Word]], quoted: Sequence[Sequence[_Word]]) -> str:
    """A number must be in a close sentence, together with the word beside it if that word has a number there."""
    near_lines, all_lines = _list_numbers(near), _list_numbers(quoted)
    near_terms = frozenset(word.term for line in near for word in line)
    for position, word in enumerate(words):
        if not word.is_number:
            continue
        beside = (*words[position + 1 : position + 3], *reversed(words[max(0, position - 3) : position]))
        unit = next((each.term for each in beside if each.term and not each.is_number), "")
        counted = (_find_counted(near_lines, unit) or _find_counted(all_lines, unit)) if unit else ()
        if not any(word.term in terms for terms in counted or (near_terms,)):
            return f"the passages do not have the number {word.text}"
    return ""


def _list_numbers(lines: Sequence[Sequence[_Word]]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """For each line with a number, what `_has` compares, and its terms."""
    with_numbers = (line for line in lines if any(word.is_number for word in line))
    return [(_get_starts(line), frozenset(word.term for word in line)) for line in with_numbers]


def _find_counted(lines: Sequence[tuple[frozenset[str], frozenset[str]]], unit: str) -> list[frozenset[str]]:
    return [terms for starts, terms in lines if _has(starts, unit)]


def _compare_names(terms: Sequence[_Word], known: Sequence[_Word]) -> str:
    names = {word.term for word in known}
    return next(
        (
            f"the passages do not have the name {word.shown}"
            for word in terms
            if word.is_name and word.term not in names
        ),
        "",
    )


def _compare_copies(words: Sequence[_Word], near: Sequence[Sequence[_Word]], known: Sequence[_Word]) -> str:
    """A sentence that has nearly all words of a quoted one must have as many negations, and hardly any other words."""
    starts = _get_starts(words)
    for line in near:
        terms = [word for word in line if word.term]
        if len(terms) < _MIN_COPIED or sum(_has(starts, word.term) for word in terms) < _COPIED * len(terms):
            continue
        starts_of_line, known_starts = _get_starts(terms), _get_starts(known)
        new = [word.text for word in words if word.term and not _has(starts_of_line, word.term)]
        negations, quoted = (sum(word.is_negation for word in each) for each in (words, line))
        if len(new) < _MIN_COPIED and negations != quoted and not any(word.text in _LIMITS for word in words):
            return "the passages negate this in another way"
        unknown = [word.text for word in words if word.term and not word.is_pair and not _has(known_starts, word.term)]
        if len(unknown) > MAX_NEW_WORDS:
            return f"the passages do not have: {', '.join(unknown)}"
        return ""
    return ""


def _compare_negations(words: Sequence[_Word], near: Sequence[_Word]) -> str:
    negated = {word.term for word in near if word.term and word.is_negated}
    plain = {word.term for word in near if word.term and not word.is_negated}
    own = {word.term for word in words if word.term and word.is_negated}
    if any(word.is_negated for word in words):
        if own & (plain | negated) and not own & negated:
            return "the passages do not negate this"
        return "" if any(word.is_negated for word in near) else "the passages do not negate this"
    if any(word.text in _LIMITS for word in words):
        return ""
    if lost := [word.text for word in words if word.term in negated - plain]:
        return f"the passages negate: {', '.join(lost)}"
    return ""


def _compare_opposites(words: Sequence[_Word], near: Sequence[_Word]) -> str:
    quoted = {word.text for word in near}
    for word in words:
        if word.text == "must" and any(word.is_negated for word in words):
            continue  # must not means may not
        if word.text not in quoted and (opposite := _find_opposite(word.text, quoted)):
            return f"the passages have {opposite}, not {word.text}"
    return ""


def _find_opposite(word: str, quoted: set[str]) -> str:
    for pair in _OPPOSITE_PAIRS:
        if word in pair and (other := pair[1 - pair.index(word)]) in quoted:
            return other
    for prefix in _NEGATING_PREFIXES:
        if f"{prefix}{word}" in quoted and len(word) >= _MIN_ROOT_CHARS:
            return f"{prefix}{word}"
        root = word.removeprefix(prefix)
        if root != word and len(root) >= _MIN_ROOT_CHARS and root in quoted:
            return root
    for one, other in (("ful", "less"), ("less", "ful")):
        if word.endswith(one) and (other := word.removesuffix(one) + other) in quoted:
            return other
    return ""


def _find_replaced(words: Sequence[_Word], known: Sequence[_Word], near: Sequence[_Word]) -> str:
    """A word that the passages do not have, between two words between which they have another one."""
    starts = _get_starts(known)
    between = {(left.text, right.text): middle for left, middle, right in zip(near, near[1:], near[2:], strict=False)}
    for left, word, right in zip(words, words[1:], words[2:], strict=False):
        middle = between.get((left.text, right.text))
        is_replaced = word.term and (left.term or right.term) and middle is not None and middle.term
        if middle is not None and is_replaced and not _has(starts, word.term):
            return f"the passages have {middle.text}, not {word.text}"
    return ""
