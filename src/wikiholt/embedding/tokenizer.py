"""Text to the model's tokens, without the cutting and padding that tokenizer files bring along."""

import re
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from wikiholt.domain.index import IntArray
from wikiholt.embedding.model_card import ModelCard
from wikiholt.errors import InvalidInput, ModelCorrupt

_WORD_PATTERN = re.compile(r"\w+")
_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")


class ModelTokenizer:
    """One model's tokenizer. Safe to use from many threads: nothing in it changes after it is made."""

    def __init__(self, data: bytes, card: ModelCard) -> None:
        self._tokenizer = _load_tokenizer(data, card)
        self._card = card
        empty = len(self._tokenizer.encode(card.passage_prefix).ids)
        self.max_tokens = card.window - empty

    def get_spans(self, text: str) -> list[tuple[int, int]]:
        """The character range of each token of the text, special tokens left out."""
        spans: list[tuple[int, int]] = self._tokenizer.encode(
            _replace_surrogates(text), add_special_tokens=False
        ).offsets
        return spans

    def is_token(self, word: str) -> bool:
        """Whether the word is one token, and not the one for what is unknown."""
        found = self._tokenizer.encode(_replace_surrogates(word), add_special_tokens=False).tokens
        return len(found) == 1 and found[0] != getattr(self._tokenizer.model, "unk_token", None)

    def encode_passage(self, text: str) -> IntArray:
        """The token ids of a passage; BadInput when they do not fit the window."""
        ids = self._tokenizer.encode(_replace_surrogates(self._card.passage_prefix + text)).ids
        if len(ids) > self._card.window:
            message = f"A text of {len(ids)} tokens does not fit the window of {self._card.name}, {self._card.window}"
            raise InvalidInput(message, hint=f"cut it into chunks of at most {self.max_tokens} tokens")
        return np.array(ids, np.int64)

    def encode_query(self, text: str) -> IntArray:
        """The token ids of a query, its end cut off where it does not fit the window."""
        text = _replace_surrogates(self._card.query_prefix + text)
        encoding = self._tokenizer.encode(text)
        over = len(encoding.ids) - self._card.window
        if over > 0:
            plain = self._tokenizer.encode(text, add_special_tokens=False)
            plain.truncate(max(0, len(plain.ids) - over))
            encoding = self._tokenizer.post_process(plain)
        return np.array(encoding.ids[: self._card.window], np.int64)

    def encode_words(self, texts: Sequence[str]) -> list[list[int]]:
        """For each text the ids of its different words or parts of words, in no telling order, signs left out.

        Far faster than the tokenizer where most words are in the vocabulary; the others go through it together.
        """
        known = self._tokenizer.token_to_id
        split = [dict.fromkeys(_WORD_PATTERN.findall(_replace_surrogates(text).lower())) for text in texts]
        parts: dict[str, list[int]] = {}
        rare: list[str] = []
        for word in {word: None for words in split for word in words}:
            number = known(word)
            parts[word] = [] if number is None else [number]
            if number is None:
                rare.append(word)
        if rare:
            encoding = self._tokenizer.encode(rare, is_pretokenized=True, add_special_tokens=False)
            for number, of in zip(encoding.ids, encoding.word_ids, strict=True):
                if of is not None:
                    parts[rare[of]].append(number)
        return [list({number: None for word in words for number in parts[word]}) for words in split]

    def encode_pair(self, query: str, text: str, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Query and text as a reranker reads them, and which token is of which, in at most so many tokens.

        Of a long query the beginning is read, and of the text what has room then.
        """
        asked = self._tokenizer.encode(_replace_surrogates(query), add_special_tokens=False)
        read = self._tokenizer.encode(_replace_surrogates(text), add_special_tokens=False)
        room = min(max_tokens, self._card.window) - self._tokenizer.num_special_tokens_to_add(is_pair=True)
        asked.truncate(min(len(asked.ids), room // 2))
        read.truncate(min(len(read.ids), room - len(asked.ids)))
        both = self._tokenizer.post_process(asked, read)
        return np.array(both.ids, np.int64), np.array(both.type_ids, np.int64)


def _load_tokenizer(data: bytes, card: ModelCard) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # tokenizers raises bare Exception
        hint = "the file must be a tokenizer.json as the tokenizers library writes it"
        raise ModelCorrupt(f"The tokenizer of {card.name} cannot be loaded: {error}", hint=hint) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _replace_surrogates(text: str) -> str:
    """The text with each half of a broken surrogate pair replaced, one character for one, so that spans stay right."""
    return _SURROGATE_PATTERN.sub("\ufffd", text)
