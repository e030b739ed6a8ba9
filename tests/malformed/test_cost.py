"""Time and memory of malformed pages stay within bounds of an ordinary page of the same size."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.malformed.malformed_pages import MALFORMED_PAGES, make_prose
from tests.malformed.page_steps import STEPS, measure_seconds
from tests.support.hostile_text import HOSTILE_PIECES
from tests.support.tiers import choose
from wikiholt.domain.page import Page
from wikiholt.text.chunks import build_chunks
from wikiholt.text.model_text import build_embedding_text
from wikiholt.text.page_parser import parse_page
from wikiholt.text.segmentation import estimate_token_spans

MAX_SLOWDOWN = 150
"""Maximum time of a malformed page, as a multiple of the time of an ordinary page of the same size."""

_MIN_MEASURED_S = 0.02
"""Times below this are too short to compare."""

_MEASURE_SCRIPT = """
import resource, sys
from wikiholt.text.page_parser import parse_page
piece, size = eval(sys.argv[1]), int(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
page = parse_page("page.md", "0" * 40, (piece * (size // len(piece))).encode(), None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
_MEASURE_WORDS = """
import resource, sys
from wikiholt.text.analysis import TOKEN_PATTERN, find_identifiers
from wikiholt.text.inline import find_links
text = "[" + eval(sys.argv[1]) * int(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in TOKEN_PATTERN.finditer(text): pass
for _ in find_identifiers(text): pass
for _ in find_links(text, {}): pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
_PATTERN_REPETITIONS = choose(1_500_000, 500_000)
_MAX_PATTERN_MEMORY_KB = _PATTERN_REPETITIONS // 15
"""Maximum memory for matching: a repeated group stores some hundred bytes for each repetition."""
_PAGE_SIZE = choose(3_000_000, 1_000_000)
_MAX_MEMORY_KB = _PAGE_SIZE * 2 // 15
"""Maximum memory for reading one page."""


def _choose_pages(step: str) -> list[tuple[str, bytes]]:
    """All malformed pages, or in the short form another sixth of them for each step."""
    share = choose(1, 6)
    return list(MALFORMED_PAGES.items())[list(STEPS).index(step) % share :: share]


@pytest.mark.parametrize("step", STEPS)
def test_no_malformed_page_takes_much_longer_than_an_ordinary_one(step: str) -> None:
    run = STEPS[step]
    ordinary = {size: max(measure_seconds(run, make_prose(size)), _MIN_MEASURED_S) for size in (4_000, 40_000, 400_000)}
    slow = {}
    for name, data in _choose_pages(step):
        nearest_size = next((size for size in ordinary if size >= len(data)), 400_000)
        if measure_seconds(run, data) > MAX_SLOWDOWN * ordinary[nearest_size]:
            slow[name] = min(measure_seconds(run, data) for _ in range(2)) / ordinary[nearest_size]
    assert all(times < MAX_SLOWDOWN for times in slow.values()), slow


@pytest.mark.parametrize("step", STEPS)
def test_no_repeated_piece_takes_quadratic_time(step: str) -> None:
    run = STEPS[step]
    slow = []
    for piece in HOSTILE_PIECES[:: choose(1, 32)]:
        short, long = ((piece * (size // len(piece))).encode("utf-8", "replace") for size in (4_000, 32_000))
        if measure_seconds(run, short) > 0.06:
            times = min(measure_seconds(run, long) for _ in range(2)) / min(
                measure_seconds(run, short) for _ in range(2)
            )
            if times > 30:  # the text is 8 times as long: quadratic time would be 64 times
                slow.append((piece, times))
    assert not slow


@pytest.mark.parametrize("piece", ["#\n", "- a\n", "[a](b) ", "a\n\n", "\n"])
def test_reading_a_page_takes_bounded_memory(piece: str) -> None:
    command = [sys.executable, "-c", _MEASURE_SCRIPT, repr(piece), str(_PAGE_SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250, cwd=Path(__file__).parent)
    assert int(done.stdout) < _MAX_MEMORY_KB
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


@pytest.mark.parametrize("piece", ["[", "![", "[[", "*", "`", "~", "_", "[](", "<&|"])
def test_the_tokenizer_reads_a_page_of_syntax_characters_about_once(piece: str) -> None:
    read = 0

    def count_characters(text: str) -> list[tuple[int, int]]:
        nonlocal read
        read += len(text)
        return estimate_token_spans(text)

    size = 120_000
    page = parse_page("page.md", "0" * 40, (piece * (size // len(piece))).encode(), None)
    assert isinstance(page, Page)
    chunks = build_chunks(page, count_characters)
    assert len(chunks) > size // 300
    assert all(build_embedding_text(page, chunk, count_characters, 254) for chunk in chunks)
    assert size <= read < 1.5 * size


@pytest.mark.parametrize("piece", ["a.", "\\a", "a/", "漢\u0301"])
def test_a_pattern_that_repeats_over_a_complete_page_takes_bounded_memory(piece: str) -> None:
    command = [sys.executable, "-c", _MEASURE_WORDS, repr(piece), str(_PATTERN_REPETITIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250, cwd=Path(__file__).parent)
    assert int(done.stdout) < _MAX_PATTERN_MEMORY_KB
