"""The synonyms of a wiki: a query is also searched with other words for its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice, product

from wikiholt.text.analysis import TOKEN_PATTERN, get_query_analyser
from wikiholt.text.keyword_query import MAX_BRANCHES, blank_operators, find_plain_words

_Words = tuple[tuple[str, ...], ...]
"""The terms of each word of a name."""


class Synonyms:
    """The synonyms of one wiki, from rules that `check_synonym_rule` accepts."""

    def __init__(self, rules: Iterable[str] = (), language: str = "english") -> None:
        self._analyser = get_query_analyser(language)
        self._others: dict[_Words, dict[str, None]] = {}
        for rule in rules:
            equal, _, wider = rule.partition(">")
            names, more = _split_names(equal), _split_names(wider)
            for name in names:
                others = (each for each in (*names, *more) if each.casefold() != name.casefold())
                words = self._analyse(name)
                known = self._others.get(words, {}) | dict.fromkeys(others)
                # Many rules may have the same name, but a query is searched with a few texts.
                self._others[words] = dict.fromkeys(islice(known, MAX_BRANCHES))
        self._words = frozenset(chain.from_iterable(self._others))
        self._longest = max(map(len, self._others), default=0)

    def has_word(self, word: str) -> bool:
        """Whether a rule is for the word, or for a phrase with it."""
        return bool(self._others) and not self._words.isdisjoint(self._analyse(word))

    def expand(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The texts of a query, and each with other words for its own; at most MAX_BRANCHES."""
        if not self._others:
            return tuple(texts)
        expanded = chain.from_iterable(islice(self._iter_texts(text), 1, None) for text in texts)
        return tuple(islice(chain(texts, expanded), MAX_BRANCHES))

    def find(self, texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The words and phrases of a query that have synonyms, as typed, with these."""
        return {text[start:end]: others for text in texts for start, end, others in self._find(text)}

    def rewrite(self, text: str, is_on_page: Callable[[str], bool]) -> str:
        """The text with the words that no page has replaced by their synonyms that pages have, for the model."""
        is_on_page = cache(is_on_page)
        for start, end, others in reversed(list(self._find(text))):
            if not is_on_page(text[start:end]):
                names = list(filter(is_on_page, others)) or [text[start:end]]
                text = f"{text[:start]}{' '.join(names)}{text[end:]}"
        return text

    def _iter_texts(self, text: str) -> Iterator[str]:
        """The text itself, and then the text with other words. A phrase is searched as such."""
        found = list(self._find(text))
        for chosen in product(*((text[start:end], *others) for start, end, others in found)):
            made = text
            for (start, end, _), name in reversed(list(zip(found, chosen, strict=True))):
                if name != text[start:end]:
                    is_phrase = len(TOKEN_PATTERN.findall(name)) > 1
                    made = (
                        f'{made[:start]} "{name}" {made[end:]}' if is_phrase else f"{made[:start]} {name} {made[end:]}"
                    )
            yield made

    def _find(self, text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """The spans that have synonyms, the longest first. Not of what is quoted, excluded, or marked with a plus."""
        spans, plain, place = find_plain_words(text), blank_operators(text), 0
        terms = [tuple(self._analyser.get_token_terms(text[start:end])) for start, end in spans]
        while place < len(spans):
            for count in range(min(self._longest, len(spans) - place), 0, -1):
                start, end = spans[place][0], spans[place + count - 1][1]
                others = self._others.get(tuple(terms[place : place + count]))
                if others and "\0" not in plain[start:end] and text[start - 1 : start] != "+":
                    yield start, end, tuple(others)
                    place += count - 1
                    break
            place += 1

    def _analyse(self, name: str) -> _Words:
        return tuple(tuple(self._analyser.get_token_terms(token)) for token in TOKEN_PATTERN.findall(name))


def _split_names(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split("=") if name.strip()]
