"""A progress bar on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from tqdm import tqdm

from wikiholt.sync import SyncProgress


@contextmanager
def show_sync_progress(name: str, *, visible: bool) -> Iterator[Callable[[SyncProgress], None]]:
    """A function that a sync tells how far it is; it draws a bar where one is shown and there is work to do."""
    bar: tqdm[NoReturn] | None = None

    def update_bar(progress: SyncProgress) -> None:
        nonlocal bar
        if not visible or not progress.pages_total:
            return
        if bar is None:
            bar = tqdm(total=progress.pages_total, desc=name, unit="page", ascii=" ▏▎▍▌▋▊▉█", leave=True)
        bar.set_postfix_str(f"{progress.chunks_embedded} chunks", refresh=False)
        bar.update(progress.pages_done - bar.n)

    try:
        yield update_bar
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def show_count_progress(name: str, unit: str, *, visible: bool) -> Iterator[Callable[[int, int], None]]:
    """A function that is told how many of how many are done; it draws a bar where one is shown."""
    bar: tqdm[NoReturn] | None = None

    def update_bar(done: int, total: int) -> None:
        nonlocal bar
        if not visible or not total:
            return
        if bar is None:
            bar = tqdm(total=total, desc=name, unit=unit, ascii=" ▏▎▍▌▋▊▉█", leave=True)
        bar.update(done - bar.n)

    try:
        yield update_bar
    finally:
        if bar is not None:
            bar.close()
