"""Times, percentiles, and what /proc says about processes."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wikiholt.domain.search import KeywordQuery
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.candidates import list_parts
from wikiholt.text.bm25 import compute_max_score

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure_seconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def wait_until(is_done: Callable[[], object], timeout_s: float, pause_s: float = 0.1) -> None:
    """Wait until a condition is true. Raises TimeoutError."""
    until = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError(f"not done within {timeout_s:.0f} s")
        time.sleep(pause_s)


def get_percentiles_ms(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p95 in milliseconds; of a single time, that time."""
    p95 = statistics.quantiles(seconds, n=20)[18] if len(seconds) > 1 else seconds[0]
    return statistics.median(seconds) * 1e3, p95 * 1e3


def read_cpu_s(pid: int, *, children: bool = True) -> float:
    """CPU seconds of a process, by default with those of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / _TICKS_PER_S


def read_memory_mb(field: str = "VmRSS", pid: int | str = "self") -> float:
    """One field of a process's status: VmRSS is resident, VmHWM its peak, RssAnon without mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), 0.0)


def read_private_mb(pid: int, fields: tuple[str, ...] = ("Private_Dirty", "Swap:")) -> float:
    """Memory that a process shares with no other, without mapped files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(fields)) / 1024


def count_disk_bytes(directory: Path) -> int:
    """Bytes of the blocks that the files below a directory use."""
    return sum(file.lstat().st_blocks * 512 for file in directory.rglob("*"))


def get_max_keyword_score(index: WikiIndex, query: KeywordQuery) -> float:
    """The most that a page can score for a query: with all of its terms and phrases."""
    page_count, parts = index.get_state().pages, list_parts(query)
    counts = index.count_pages(parts)
    return sum(compute_max_score(page_count, counts[part]) for part in parts)
