"""Loads each tokenizer once for all tests of a process. A tokenizer does not change, and tests load models often."""

import hashlib

from tokenizers import Tokenizer

from wikiholt.models import tokenizer
from wikiholt.models.model_card import ModelCard

_load = tokenizer._load_tokenizer
_loaded: dict[bytes, Tokenizer] = {}


def share_tokenizers() -> None:
    tokenizer._load_tokenizer = _load_once


def _load_once(data: bytes, card: ModelCard) -> Tokenizer:
    key = hashlib.sha256(data).digest()
    if key not in _loaded:
        _loaded[key] = _load(data, card)
    return _loaded[key]
