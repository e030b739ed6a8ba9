"""Final checks: every index equals its HEAD, no acknowledged commit is lost, no wiki has data of another."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.corpus import run_git
from bench.soak.wikis import SoakWiki
from wikiholt.api.bootstrap import open_service
from wikiholt.wikis.service import WikiService

_CANARY = re.compile(rb"kanari[a-z]{10}")
_SAMPLE = 20


@dataclass(slots=True)
class FinalResult:
    """What was compared, and the faults."""

    wikis: int = 0
    pages: int = 0
    commits: int = 0
    faults: list[str] = field(default_factory=list)
    bloat: float = 0.0
    """Size of index files, divided by their size after a rebuild; the median of some wikis."""


def run_final_checks(data: Path, wikis: Sequence[SoakWiki], log: Path) -> FinalResult:
    """Compare every wiki's index with its HEAD as git reports it, and search for canaries of other wikis."""
    ending = FinalResult()
    service = open_service(data)
    try:
        ids = {wiki.slug: service.registry.get(wiki.slug).id for wiki in wikis}
        for wiki in wikis:
            _check_head(ending, service, wiki, ids[wiki.slug])
            _check_commits(ending, wiki)
        _check_canaries(ending, data, {ids[wiki.slug]: wiki.canary for wiki in wikis}, log)
        ending.bloat = _measure_bloat(service, wikis)
    finally:
        service.close()
    return ending


def _check_head(ending: FinalResult, service: WikiService, wiki: SoakWiki, wiki_id: str) -> None:
    lines = run_git(wiki.repository, "ls-tree", "-r", "-z", "HEAD").split("\0")
    rows = [line.partition("\t") for line in lines if line]
    tree = {name: head.split()[2] for head, _, name in rows if name.endswith(".md")}
    head = run_git(wiki.repository, "rev-parse", "HEAD").strip()
    index = service.components.store.open(wiki_id)
    try:
        pages = dict(index.get_page_blobs()) | {problem.file: problem.blob for problem in index.get_problems()}
        if index.get_state().revision != head:
            ending.faults.append(f"{wiki.slug} is at {index.get_state().revision}, not at HEAD {head}")
        elif pages != tree:
            apart = sorted(pages.items() ^ tree.items())
            ending.faults.append(f"{wiki.slug} has other pages than HEAD: {apart[:4]}")
        ending.faults += [f"{wiki.slug}: {fault}" for fault in index.check()]
    finally:
        index.close()
    ending.wikis += 1
    ending.pages += len(tree)


def _check_commits(ending: FinalResult, wiki: SoakWiki) -> None:
    """Every acknowledged commit is in the history."""
    history = set(run_git(wiki.repository, "rev-list", "HEAD").split())
    lost = [revision for revision in wiki.commits if revision not in history]
    ending.commits += len(wiki.commits)
    ending.faults += [f"{wiki.slug} lost the commit {revision}" for revision in lost]
    loose = run_git(wiki.repository, "fsck", "--no-progress", "--no-dangling", "--connectivity-only").strip()
    if loose:
        ending.faults.append(f"git fsck of {wiki.slug}: {loose[:200]}")


def _check_canaries(ending: FinalResult, data: Path, own: dict[str, str], log: Path) -> None:
    """No file of a wiki contains the canary of another, and no other file contains any."""
    for file in sorted(path for path in data.rglob("*") if path.is_file()):
        parts = file.relative_to(data).parts
        mine = own.get(parts[1], "") if len(parts) > 2 else ""
        alien = {word.decode() for word in _CANARY.findall(file.read_bytes())} - {mine}
        if alien:
            ending.faults.append(f"{'/'.join(parts)} contains {sorted(alien)[:3]}")
    if _CANARY.search(log.read_bytes()):
        ending.faults.append("the log contains text of pages")


def _measure_bloat(service: WikiService, wikis: Sequence[SoakWiki]) -> float:
    ratios = []
    for wiki in wikis[:: max(1, len(wikis) // _SAMPLE)][:_SAMPLE]:
        handle = service.get_handle(wiki.slug)
        before = _get_index_bytes(service, handle.wiki.id)
        handle.sync(from_scratch=True)
        ratios.append(before / _get_index_bytes(service, handle.wiki.id))
    return statistics.median(ratios)


def _get_index_bytes(service: WikiService, wiki_id: str) -> int:
    return sum(file.stat().st_size for file in service.components.store.get_directory(wiki_id).glob("g*.sqlite"))
