"""The ordinary words of English with their inflections, in British and American spelling: SCOWL up to size 55.

`english_words.LICENSE.txt` has the licence of the list.
"""

import lzma
from functools import cache
from importlib.resources import files

_FILE = "english_words.txt.xz"


def is_english_word(word: str) -> bool:
    """Whether this word of at least four letters, in lower case, is in the list. The first call reads it."""
    return word.isascii() and word.isalpha() and f"\n{word}\n".encode() in _read_words()


@cache
def _read_words() -> bytes:
    """The words, each between two line ends. Searching them takes less memory than a set, and little time."""
    return lzma.decompress(files(__package__).joinpath(_FILE).read_bytes())
