"""The time until one flipped bit in a keyword index is detected, and the cost of the checks.

    python -m bench.damage [--pages 30 300 3000] [--serve] [--write]

Wikis of random pages with a fake model, whose vectors are as long as the real ones. For each size bits of
the full-text index are flipped at several places, one at a time, and the file's time is restored, as after a disk
error; then the steps of docs/health.md are timed. With `--serve` a service runs on each wiki, and the time until it has
found and repaired the damage is measured: about a minute each. Nothing is kept.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median

import numpy as np

from bench.corpus import run_git
from bench.measures import measure_seconds
from bench.report import make_parser, publish
from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.errors import IndexCorrupt
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.wiki_records import SchedulerConfig
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

_DIMENSIONS = 384
_WORDS_A_PAGE = 400
_VOCABULARY = 20_000
_DAY_S = 86_400.0


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
    parser.add_argument("--flips", type=int, default=3, help="how many bits, one after another")
    parser.add_argument("--serve", action="store_true", help="also wait for a running service to find the damage")
    arguments = parser.parse_args()
    titles = ("pages", "index MiB", "compare ms", "ms a page", "full check ms", "ms a page", "sync, no change ms")
    more = ("found at opening", "found by sync", "repaired and found s", "in a service s")
    rows = [f"| {' | '.join((*titles, *more))} |", "|---" * len((*titles, *more)) + "|"]
    for pages in arguments.pages:
        with tempfile.TemporaryDirectory(prefix="bench-damage-") as place:
            figures = measure(Path(place), pages, arguments.flips, serve=arguments.serve)
        rows.append(f"| {' | '.join(figures)} |")
    publish("damage", __doc__, rows, write=arguments.write)


def measure(place: Path, pages: int, flips: int, *, serve: bool) -> list[str]:
    """One row of the table."""
    service = create_wiki(place, pages)
    handle = service.get_handle("wiki")
    store, wiki_id = service.components.store, handle.wiki.id
    file = next(store.get_directory(wiki_id).glob("g*.sqlite"))
    compared = _milliseconds(lambda: store.compare_checksum(wiki_id))
    checked = _milliseconds(handle.check, 3)
    synced = _milliseconds(handle.sync, 3)
    size = file.stat().st_size / 2**20
    at_opening, by_sync, seconds = run_flips(place, file, flips)
    served = f"{run_service(place, service):.0f}" if serve else "–"
    costs = [f"{compared:.2f}", f"{compared / pages:.4f}", f"{checked:.0f}", f"{checked / pages:.2f}", f"{synced:.0f}"]
    found = [f"{at_opening} of {flips}", f"{by_sync} of {flips}", f"{median(seconds):.2f}", served]
    service.close()
    return [f"{pages:,}", f"{size:.1f}", *costs, *found]


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


def run_flips(place: Path, file: Path, flips: int) -> tuple[int, int, Sequence[float]]:
    """How many flips were found when the index was opened to search, and by a sync; seconds a repair took."""
    whole, places, seconds = file.read_bytes(), find_word_blocks(file), []
    at_opening = by_sync = 0
    rng = Random(1)
    for _ in range(flips):
        _flip_bit(file, whole, rng.choice(places))
        fresh = open_fake_service(place)
        try:
            at_opening += fresh.get_handle("wiki").search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).degraded
        except IndexCorrupt:
            at_opening += 1
        began = time.monotonic()
        fresh.get_handle("wiki").sync()
        hits = fresh.get_handle("wiki").search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits
        seconds.append(time.monotonic() - began)
        by_sync += bool(hits) and bool(fresh.get_handle("wiki").get_status().quarantined)
        newest = max(file.parent.glob("g??????.sqlite"))
        whole, file = newest.read_bytes(), newest
        places = find_word_blocks(file)
        fresh.close()
    return at_opening, by_sync, seconds


def run_service(place: Path, service: WikiService) -> float:
    """Seconds until a running service has repaired the index after a bit flip."""
    service.close()
    service = open_fake_service(place)
    handle = service.get_handle("wiki")
    handle.search(SearchRequest("page", mode=SearchMode.KEYWORD))
    scheduler = Scheduler(service, SchedulerConfig(1, 0.5, 60.0, check_interval_s=_DAY_S, get_interval=lambda _: 5.0))
    service.on_damage = scheduler.request_repair
    scheduler.start()
    time.sleep(15)  # work directly after the start is not measured
    file = max(service.components.store.get_directory(handle.wiki.id).glob("g??????.sqlite"))
    aside = len(handle.get_status().quarantined)
    _flip_bit(file, file.read_bytes(), find_word_blocks(file)[len(find_word_blocks(file)) // 2])
    began = time.monotonic()
    while len(handle.get_status().quarantined) == aside or not handle.health.is_ok:
        time.sleep(0.1)
    took = time.monotonic() - began
    scheduler.stop(60)
    service.close()
    return took


def find_word_blocks(file: Path) -> list[int]:
    """Positions in the file at which the full-text index has its words."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
        (block,) = db.execute("SELECT block FROM words_data ORDER BY length(block) DESC LIMIT 1").fetchone()
        blocks = [bytes(row[0]) for row in db.execute("SELECT block FROM words_data WHERE length(block) > 400")]
    content = file.read_bytes()
    starts = [content.find(each[:200]) for each in blocks or [bytes(block)]]
    return [start + at for start in starts if start > 0 for at in range(40, 200, 16)]


def _flip_bit(file: Path, whole: bytes, position: int) -> None:
    before = file.stat()
    with file.open("r+b") as out:
        out.seek(position)
        out.write(bytes([whole[position] ^ 4]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _milliseconds(work: Callable[[], object], times: int = 9) -> float:
    return (
        min(measure_seconds(work) for _ in range(times)) * 1000
    )  # the machine may be shared: the best time is the cost


if __name__ == "__main__":
    main()
