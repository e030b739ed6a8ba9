"""What one flipped bit in a keyword index does to answers, and the cost of checks and repairs.

    python -m bench.damage [--pages 30 300 3000] [--flips 20] [--write]

Wikis of random pages with a fake model, whose vectors are as long as the real ones. For each size, bits of the full-text
index are flipped at random places, one at a time, and the file's time is restored, as after a disk error. After each one,
searches for a word of each of 30 pages are counted: right, the page is missing, another page is shown (wrong), or an
error. Then the full check and the repair by the next sync are timed. Nothing is kept.
"""

import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from random import Random

import numpy as np

from bench.corpus import run_git
from bench.measures import measure_seconds
from bench.report import make_parser, publish
from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

_DIMENSIONS = 384
_WORDS_A_PAGE = 400
_VOCABULARY = 20_000
_OUTCOMES = ("right", "missing", "wrong", "error")


class HashEmbedder(FakeEmbedder):
    """Random vectors that depend on the text."""

    def __init__(self) -> None:
        super().__init__(_DIMENSIONS)

    def _vector(self, text: str) -> FloatArray:
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        vector = np.random.default_rng(seed).standard_normal(self.dimensions).astype(np.float32)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


def main() -> None:
    parser = make_parser(__doc__, "damage")
    parser.add_argument("--pages", type=int, nargs="+", default=[30, 300, 3000])
    parser.add_argument("--flips", type=int, default=20, help="how many bits, one after another")
    arguments = parser.parse_args()
    titles = ("pages", "index MiB", "open ms", "full check ms", "sync, no change ms", *_OUTCOMES, "found by the check")
    more = ("rebuilt in s", "chunks embedded")
    rows = [f"| {' | '.join((*titles, *more))} |", "|---" * len((*titles, *more)) + "|"]
    for pages in arguments.pages:
        with tempfile.TemporaryDirectory(prefix="bench-damage-") as place:
            figures = measure(Path(place), pages, arguments.flips)
        rows.append(f"| {' | '.join(figures)} |")
    publish("damage", __doc__, rows, write=arguments.write)


def measure(place: Path, pages: int, flips: int) -> list[str]:
    """One row of the table."""
    service = create_wiki(place, pages)
    handle = service.get_handle("wiki")
    store, wiki_id = service.components.store, handle.wiki.id
    file = next(store.get_directory(wiki_id).glob("g*.sqlite"))
    opened = _milliseconds(lambda: store.open(wiki_id).close())
    checked = _milliseconds(handle.check, 3)
    synced = _milliseconds(handle.sync, 3)
    size = file.stat().st_size / 2**20
    service.close()
    outcomes, found, seconds, embedded = run_flips(place, file, pages, flips)
    costs = [f"{opened:.2f}", f"{checked:.0f}", f"{synced:.0f}"]
    counts = [str(outcomes[name]) for name in _OUTCOMES]
    return [f"{pages:,}", f"{size:.1f}", *costs, *counts, f"{found} of {flips}", f"{seconds:.2f}", str(embedded)]


def create_wiki(place: Path, pages: int) -> WikiService:
    """A wiki, synced and backed up."""
    rng, repository = Random(pages), place / "wiki"
    repository.mkdir()
    for number in range(pages):
        words = " ".join(f"word{int(rng.random() ** 3 * _VOCABULARY)}" for _ in range(_WORDS_A_PAGE))
        (repository / f"page-{number}.md").write_text(f"# Page {number}\n\nunique{number} {words}\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "Begin"]):
        run_git(repository, *command)
    service = open_fake_service(place)
    service.add("wiki", str(repository), {})
    service.get_handle("wiki").sync()
    service.get_handle("wiki").backups.create()
    return service


def open_fake_service(place: Path) -> WikiService:
    service = bootstrap.build_service(load_settings(place / "data", None, {}))
    embedder = HashEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    return service


def run_flips(place: Path, file: Path, pages: int, flips: int) -> tuple[Counter[str], int, float, int]:
    """The outcomes of searches, how many flips the check found, seconds of the last repair, and chunks it embedded."""
    whole, places, outcomes = file.read_bytes(), find_word_blocks(file), Counter[str]()
    rng, found = Random(1), 0
    for _ in range(flips):
        _flip_bit(file, whole, rng.choice(places))
        service = open_fake_service(place)
        for number in rng.sample(range(pages), 30):
            outcomes[_search(service, number)] += 1
        service.get_handle("wiki").check_integrity()
        found += not service.get_handle("wiki").health.is_ok
        service.close()
        file.with_name("health.json").unlink(missing_ok=True)
    service = open_fake_service(place)
    service.get_handle("wiki").check_integrity()
    began = time.monotonic()
    report = service.get_handle("wiki").sync()
    seconds = time.monotonic() - began
    service.close()
    return outcomes, found, seconds, report.chunks_embedded


def _search(service: WikiService, number: int) -> str:
    try:
        answer = service.get_handle("wiki").search(SearchRequest(f"unique{number}", mode=SearchMode.KEYWORD))
    except WikiholtError:
        return "error"
    paths = [hit.path for hit in answer.hits]
    if answer.degraded:
        return "error"
    return "right" if f"page-{number}" in paths[:1] else "wrong" if paths else "missing"


def find_word_blocks(file: Path) -> list[int]:
    """Positions in the file at which the full-text index has the words that are searched for."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
        blocks = [bytes(block) for (block,) in db.execute("SELECT block FROM words_data WHERE instr(block, 'unique')")]
    content, positions = file.read_bytes(), list[int]()
    for block in blocks:
        part = block[block.find(b"unique") :][:200]  # a longer block is not in one piece
        start = content.find(part)
        positions += range(start, start + len(part)) if start > 0 else ()
    return positions


def _flip_bit(file: Path, whole: bytes, position: int) -> None:
    before = file.stat()
    file.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _milliseconds(work: Callable[[], object], times: int = 9) -> float:
    return (
        min(measure_seconds(work) for _ in range(times)) * 1000
    )  # the machine may be shared: the best time is the cost


if __name__ == "__main__":
    main()
