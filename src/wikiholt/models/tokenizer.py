"""The model's tokenizer, without the truncation and padding that tokenizer files configure."""

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from wikiholt.domain.index import IntArray
from wikiholt.errors import InvalidInput, ModelCorrupt
from wikiholt.models.model_card import ModelCard

_WORD_PATTERN = re.compile(r"\w+")
_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
_SPACE_MARKS = ("Ġ", "▁")
"""How byte-level (RoBERTa) and unigram (XLM-R) vocabularies write the space, which is a part of the word after it."""
_FIRST_BERT_WORD_ID, _FIRST_MARKED_WORD_ID = 1996, 4
_MAX_CACHED_WORDS = 50_000
_MAX_CACHED_TEXTS = 8_000


class ModelTokenizer:
    """One model's tokenizer. Safe to use from many threads."""

    def __init__(self, data: bytes, card: ModelCard) -> None:
        self._tokenizer = _load_tokenizer(data, card)
        self._card = card
        self._ids_by_word: dict[str, tuple[int, ...]] = {}
        self._ids_by_text: dict[str, list[int]] = {}
        marks = (mark for mark in _SPACE_MARKS if self._tokenizer.token_to_id(f"{mark}the") is not None)
        self._space_mark = next(marks, "")
        self.first_word_id = _FIRST_MARKED_WORD_ID if self._space_mark else _FIRST_BERT_WORD_ID
        """Where the words of the vocabulary begin, ordered by frequency; punctuation and letters may come before."""
        overhead = len(self._tokenizer.encode(card.passage_prefix).ids)
        self.max_tokens = card.window - overhead

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token of the text, without special tokens."""
        encoding = self._tokenizer.encode(_replace_surrogates(text), add_special_tokens=False)
        offsets: list[tuple[int, int]] = encoding.offsets
        return offsets

    def is_token(self, word: str) -> bool:
        """Whether the word is one token and not the unknown token; in a vocabulary with capitals, also as a name."""
        word = _replace_surrogates(word)
        forms = [word]
        if self._space_mark:
            # Such a vocabulary has "berlin" only with a capital, a word only with its space, and a token for any sign.
            forms = [f" {word}", f" {word.capitalize()}"] if any(map(str.isalnum, word)) else []
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        encoded = (self._tokenizer.encode(form, add_special_tokens=False).tokens for form in forms)
        return any(len(tokens) == 1 and tokens[0] != unknown for tokens in encoded)

    def encode_passage(self, text: str) -> IntArray:
        """The token ids of a passage. Raises InvalidInput if they exceed the window."""
        ids = self._tokenizer.encode(_replace_surrogates(self._card.passage_prefix + text)).ids
        return self._check_window(np.array(ids, np.int64))

    def encode_passages(self, texts: Sequence[str]) -> list[IntArray]:
        """The token ids of each passage, computed on all cores. Raises InvalidInput if one exceeds the window."""
        prepared = [_replace_surrogates(self._card.passage_prefix + text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(prepared)
        return [self._check_window(np.array(encoding.ids, np.int64)) for encoding in encodings]

    def _check_window(self, ids: IntArray) -> IntArray:
        if len(ids) > self._card.window:
            message = f"A text of {len(ids)} tokens exceeds the window of {self._card.name}, {self._card.window}"
            raise InvalidInput(message, hint=f"split it into chunks of at most {self.max_tokens} tokens")
        return ids

    def encode_query(self, text: str) -> IntArray:
        """The token ids of a query, truncated to the window."""
        text = _replace_surrogates(self._card.query_prefix + text)
        encoding = self._tokenizer.encode(text)
        excess = len(encoding.ids) - self._card.window
        if excess > 0:
            plain = self._tokenizer.encode(text, add_special_tokens=False)
            plain.truncate(max(0, len(plain.ids) - excess))
            encoding = self._tokenizer.post_process(plain)
        return np.array(encoding.ids[: self._card.window], np.int64)

    def encode_words(self, texts: Sequence[str]) -> list[list[int]]:
        """For each text the ids of its distinct words or word pieces, in no particular order, without punctuation.

        Much faster than the tokenizer: words in the vocabulary are looked up, and only the others are tokenized. The
        ids of words and texts are cached: searches show the same sentences again.
        """
        known = self._ids_by_text
        if new_texts := [text for text in dict.fromkeys(texts) if text not in known]:
            if len(known) + len(new_texts) > _MAX_CACHED_TEXTS:
                # Other threads may read the old cache, so it is replaced and not cleared.
                known = self._ids_by_text = {text: known[text] for text in texts if text in known}
            known.update(zip(new_texts, self._encode_new_texts(new_texts), strict=True))
        return [known[text] for text in texts]

    def _encode_new_texts(self, texts: Sequence[str]) -> list[list[int]]:
        words_by_text = [_WORD_PATTERN.findall(_replace_surrogates(text).lower()) for text in texts]
        words = set[str]().union(*words_by_text)
        known = self._ids_by_word
        if new_words := [word for word in words if word not in known]:
            found = self._find_word_ids(new_words)
            if len(known) + len(found) > _MAX_CACHED_WORDS:
                known = self._ids_by_word = {word: known[word] for word in words.difference(new_words)}
            known.update(found)
        find_ids = known.__getitem__
        return [list(dict.fromkeys(chain.from_iterable(map(find_ids, words)))) for words in words_by_text]

    def _find_word_ids(self, words: Sequence[str]) -> dict[str, tuple[int, ...]]:
        mark = self._space_mark
        space = " " if mark else ""
        ids_by_word: dict[str, tuple[int, ...]] = {}
        rare: dict[str, list[int]] = {}
        for word in words:
            token_id = self._tokenizer.token_to_id(mark + word)
            if token_id is None:
                rare[word] = []
            else:
                ids_by_word[word] = (token_id,)
        if rare:
            spelled, pieces = [space + word for word in rare], list(rare.values())
            encoding = self._tokenizer.encode(spelled, is_pretokenized=True, add_special_tokens=False)
            for token_id, word_index in zip(encoding.ids, encoding.word_ids, strict=True):
                if word_index is not None:
                    pieces[word_index].append(token_id)
        return ids_by_word | {word: tuple(ids) for word, ids in rare.items()}

    def encode_pair(self, query: str, text: str, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Token ids and type ids of a query and a text for a reranker, at most `max_tokens`.

        A long query is truncated to half of the room, and the text to what is left.
        """
        query_tokens = self._tokenizer.encode(_replace_surrogates(query), add_special_tokens=False)
        text_tokens = self._tokenizer.encode(_replace_surrogates(text), add_special_tokens=False)
        room = min(max_tokens, self._card.window) - self._tokenizer.num_special_tokens_to_add(is_pair=True)
        query_tokens.truncate(min(len(query_tokens.ids), room // 2))
        text_tokens.truncate(min(len(text_tokens.ids), room - len(query_tokens.ids)))
        pair = self._tokenizer.post_process(query_tokens, text_tokens)
        return np.array(pair.ids, np.int64), np.array(pair.type_ids, np.int64)


def _load_tokenizer(data: bytes, card: ModelCard) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # tokenizers raises bare Exception
        hint = "the file must be a tokenizer.json of the tokenizers library"
        raise ModelCorrupt(f"The tokenizer of {card.name} cannot be loaded: {error}", hint=hint) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by one character, so that spans stay correct."""
    if text.isascii():
        return text
    try:
        text.encode()  # in a tenth of the time of the pattern
    except UnicodeEncodeError:
        return _SURROGATE_PATTERN.sub("\ufffd", text)
    return text
