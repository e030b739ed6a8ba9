"""Every regular expression that reads pages takes linear time: it holds the interpreter lock of a service."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.support.page_patterns import PagePattern, collect_patterns, make_pieces

_NOT_OF_PAGES = {
    "text/ignore_patterns.py _PATTERN_TOKEN": "patterns of settings",
    "index/sqlite/wiki_directory.py TEMPORARY_NOTE": "names of files of an index",
    "models/model_files.py _DIRECTORY_PATTERN": "names of directories of models",
}
_SIZES = (24, 28, 32, 1_000)
"""Characters. A pattern that takes exponential or cubic time is found here, before it would take minutes."""
_LARGE_SIZE = 16_000
_MAX_CPU_S = 0.06
"""Three times what the slowest pattern takes; the fastest one in quadratic time takes twice as much."""


def find_slow_pieces(pattern: PagePattern) -> Iterator[str]:
    """The pieces that take long although they are few, or of which half as many take much less than half as long."""
    for piece in sorted(make_pieces(pattern.parse())):
        if any(measure_cpu_s(pattern, piece, size) > _MAX_CPU_S for size in _SIZES):
            yield piece
            return
        if measure_cpu_s(pattern, piece, _LARGE_SIZE) > _MAX_CPU_S:
            half, full = (
                min(measure_cpu_s(pattern, piece, size) for _ in range(2)) for size in (_LARGE_SIZE // 2, _LARGE_SIZE)
            )
            if full > _MAX_CPU_S and full > 3 * half:
                yield piece
                return


def measure_cpu_s(pattern: PagePattern, piece: str, size: int) -> float:
    """CPU time in which the pattern reads a text of repeated pieces that does not match to its end."""
    text = piece * (size // len(piece)) + "\0"
    began = time.thread_time()
    if pattern.anchored:
        pattern.pattern.match(text)
    else:
        for _ in pattern.pattern.finditer(text):
            pass
    return time.thread_time() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    "careless", [r"\r+\n", r"<!--.*?-->", r"\[[^\]]*\]", r"(?:ab)*c", r"(a|aa)+$", r"[ \t]++#++[ \t]*+$"]
)
def test_a_careless_pattern_is_found(careless: str) -> None:
    assert list(find_slow_pieces(PagePattern(re.compile(careless), "", anchored=False)))


@pytest.mark.slow
def test_every_pattern_that_reads_pages_takes_linear_time() -> None:
    patterns = collect_patterns()
    assert len(patterns) > 200
    slow = {each.place: list(find_slow_pieces(each)) for each in patterns if each.place not in _NOT_OF_PAGES}
    assert not {place: pieces for place, pieces in slow.items() if pieces}
