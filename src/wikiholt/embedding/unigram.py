"""Builds the tokenizer of multilingual-e5-small (SentencePiece unigram) from the vocabulary in its weights file."""

import struct
from itertools import pairwise

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

_HEADER = struct.Struct("<5iQ")
"""Number of pieces; ids of start, end, padding and unknown; bytes of all pieces."""
_NUMBER_BYTES = 4


def build_unigram_tokenizer(data: bytes) -> Tokenizer:
    """The tokenizer described by a header, the end of each piece, its score, and the pieces.

    Raises ValueError or struct.error if the data is shorter than its header says.
    """
    count, start_id, end_id, _, unknown_id, _ = _HEADER.unpack_from(data)
    offset = _HEADER.size
    ends = np.frombuffer(data, "<u4", count + 1, offset).tolist()
    offset += _NUMBER_BYTES * (count + 1)
    scores = np.frombuffer(data, "<f4", count, offset).tolist()
    offset += _NUMBER_BYTES * count
    pieces = [data[offset + first : offset + last].decode() for first, last in pairwise(ends)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown_id))
    # The data ends with a table of characters to replace. These three steps do the same, and also compose accents, as
    # the original tokenizer does. Of all characters, only the full-width tilde and one ideograph differ.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = [(pieces[start_id], start_id), (pieces[end_id], end_id)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{pieces[start_id]} $A {pieces[end_id]}", special_tokens=special
    )
    return tokenizer
