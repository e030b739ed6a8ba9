"""Scans of a directory of 10,000 files, beside a walk that only lists the files and reads their times.

    python -m bench.directory [--files N] [--write]

CPU time of this process and of git; the median of the rounds where there are several.
"""

import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from bench.report import make_head, make_parser, publish
from wikiholt.domain.git import Author, FileEdit
from wikiholt.folder.source import DirectorySource

_ROUNDS = 5
_OLD_TIME_S = 1_700_000_000


def main() -> None:
    parser = make_parser(__doc__, "directory")
    parser.add_argument("--files", type=int, default=10_000)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-directory-"))
    try:
        rows = [make_head("| what | CPU ms | of that git | beside the walk |")]
        rows += measure(base, arguments.files)
    finally:
        shutil.rmtree(base)
    publish("directory", __doc__, rows, write=arguments.write, note=f"{arguments.files:,} files.")


def measure(base: Path, count: int) -> list[str]:
    vault = base / "vault"
    create_files(vault, count)
    time.sleep(1)
    source = DirectorySource(vault, base / "mirror")
    edited = vault / "d5" / "e5" / "page5.md"
    walks = [measure_cpu(lambda: scan_files(vault)) for _ in range(_ROUNDS)]
    limit = statistics.median(total for total, _ in walks)

    def write_change() -> None:
        edited.write_text(f"# Changed {time.time()}")
        time.sleep(0.4)

    def write_page() -> None:
        blob = source.read_tree(source.get_head())["d6/e6/page6.md"].blob
        source.commit([FileEdit("d6/e6/page6.md", os.urandom(8).hex().encode(), blob)], Author("A", "a@b.c"), "Edit")

    def rename() -> None:
        names = sorted(vault.glob("d5*"))
        names[0].rename(vault / ("d5" if names[0].name != "d5" else "d5-renamed"))

    return [
        format_row("a walk that only lists", walks, limit),
        format_row("the first scan", [measure_cpu(source.fetch)], limit),
        format_row("a scan without changes", [measure_cpu(source.fetch) for _ in range(_ROUNDS)], limit),
        format_row("a scan after one edit", [measure_cpu(source.fetch, write_change) for _ in range(_ROUNDS)], limit),
        format_row("a scan after a renamed directory", [measure_cpu(source.fetch, rename) for _ in range(4)], limit),
        format_row("a page written", [measure_cpu(write_page) for _ in range(_ROUNDS)], limit),
    ]


def create_files(vault: Path, count: int) -> None:
    rng = Random(1)
    words = [f"word{number}" for number in range(3000)]
    for number in range(count):
        file = vault / f"d{number % 100}" / f"e{number % 7}" / f"page{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Page {number}\n\n{' '.join(rng.choices(words, k=300))}\n")
        os.utime(file, (_OLD_TIME_S + number,) * 2)


def scan_files(directory: Path) -> None:
    pending = [str(directory)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)


def measure_cpu(task: Callable[[], object], prepare: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """The CPU time of a task and of the programs it started, and of the programs alone, in milliseconds."""
    prepare()
    own, children = read_cpu()
    task()
    own_after, children_after = read_cpu()
    return 1000 * (own_after - own + children_after - children), 1000 * (children_after - children)


def read_cpu() -> tuple[float, float]:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, children = (usage.ru_utime + usage.ru_stime for usage in usages)
    return own, children


def format_row(name: str, rounds: list[tuple[float, float]], limit: float) -> str:
    total, git = (statistics.median(values) for values in zip(*rounds, strict=True))
    return f"| {name} | {total:,.0f} | {git:,.0f} | {total / limit:.1f} × |"


if __name__ == "__main__":
    main()
