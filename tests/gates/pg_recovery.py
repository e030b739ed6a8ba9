"""What must hold at the next start over PostgreSQL, whatever happened before it."""

import logging
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from acknowledged import UNSURE
from damage import files_below
from farm import product
from pg_damage import REGISTRY
from pg_deeds import LEASE, newer
from pg_left import left_behind
from recovery import Log, Recovered, Start, converged, searched, served, synced

from wikiholt.errors import IndexCorrupt, IndexMissing, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.service import Service


@dataclass(slots=True)
class PgStart:
    """All that the next start is judged by."""

    start: Start
    addresses: dict[str, str]
    """Of the databases, by name; home comes first."""
    damage: list[str]
    overtaken: str = ""
    newer: bool = False


def recover_pg(told: PgStart) -> dict[str, object]:
    """Start, search, converge, compare with an embedded index built from nothing, and look for what was left."""
    log, start = Log(), told.start
    logging.getLogger("wikiholt").addHandler(log)
    logging.getLogger("wikiholt").propagate = False
    if told.newer:
        newer()
    done, began = Recovered(), time.monotonic()
    with closing(product(start.data, start.model)) as service:
        done.registry = _registry(service, told)
        removal = start.expected.wikis[start.subject]
        try:
            wiki = service.wiki(start.subject)
        except WikiNotFound:
            assert removal in (None, UNSURE), "the wiki is gone though nobody removed it"
            done.way = "was removed"
            _finish(service, told)
            return asdict(done)
        if told.overtaken:
            _kept_out(wiki, told.overtaken)
        done.before = searched(wiki)
        wiki.status()
        if removal is UNSURE:
            service.remove(start.subject)
            done.way = "removed again"
            _finish(service, told)
            return asdict(done)
        if told.damage:
            with suppress(IndexMissing):
                wiki.examine()
        if start.served:
            log.lines += served(start, wiki)
        report = synced(wiki, again=False)
        done.seconds = time.monotonic() - began
        done.way = log.way(rebuilt=report.rebuilt, new=start.model == "other")
        assert told.damage or done.way not in ("restored", "rebuilt"), f"nobody harmed it, and it was {done.way}"
        converged(start, wiki, report.revision)
        _backups_are_good(service, wiki)
        _finish(service, told)
    return asdict(done)


def _kept_out(wiki: WikiHandle, revision: str) -> None:
    """What another wrote while a node slept is what the index stands for: the one that woke wrote nothing more."""
    with closing(wiki._workshop.store.open(wiki.wiki.id)) as index:
        assert index.check() == []
        assert index.state().revision == revision, "a node that had slept wrote over what another had written since"
        head = wiki._parts.source.tree(revision)
        held = dict(index.pages()) | {problem.file: problem.blob for problem in index.problems()}
        assert held == {file: entry.blob for file, entry in head.items()}, "a node that had slept wrote pages"


def _registry(service: Service, told: PgStart) -> str:
    """The registry holds what was acknowledged, or says that it is damaged; then the newest backup is restored."""
    harmed = any(kind in REGISTRY for kind in told.damage)
    try:
        service.wikis()
        told.start.expected.check_registry(service.registry)
    except IndexCorrupt as error:
        if not harmed:
            raise AssertionError(f"the registry, which nobody harmed, says: {error.message}") from error
    else:
        assert not harmed, "the registry was harmed, and nobody noticed"
        return "whole"
    service.registry.backups.restore()
    found = {wiki.slug for wiki in service.wikis()}
    assert {"bystander", "mirror"} <= found, f"the restored registry knows only {found}"
    assert service.registry.keys.check(told.start.operator) is not None
    return "restored"


def _backups_are_good(service: Service, wiki: WikiHandle) -> None:
    for backup in (*wiki.backups.verified(), *service.registry.backups.list()):
        assert not backup.fault, f"{backup.name}: {backup.fault}"
    taken = wiki.backups.take()
    assert taken.state is not None
    assert taken.state.revision == wiki.status().head


def _finish(service: Service, told: PgStart) -> None:
    """What one who was killed left is finished by the next who looks, and then nothing is there of anybody."""
    service.registry.backups.follow()
    registered = {wiki.slug: wiki.id for wiki in service.wikis()}
    assert service.workshop.databases is not None
    service.workshop.databases.tidy(registered.values())
    for slug in registered:
        if slug.startswith("extra"):
            service.wiki(slug).sync()
    aside = any(kind in REGISTRY for kind in told.damage)
    until, left = time.monotonic() + 3 * LEASE, [""]
    while left and time.monotonic() < until:  # leases of the dead run out
        left = left_behind(told.addresses, registered, aside=aside)
        time.sleep(0.05 if left else 0)
    assert not left, f"left behind: {left}"
    if told.start.subject not in registered:
        _nothing_on_disk(told.start.data.parent, set(registered.values()))


def _nothing_on_disk(place: Path, others: set[str]) -> None:
    """No node has anything of a removed wiki on its own disk, once it has looked at what there is."""
    for node in ("data", "other"):
        with closing(product(place / node)) as service:
            assert service.workshop.databases is not None
            service.workshop.databases.tidy(others)
        for file in files_below(place / node):
            held = file.read_bytes() if not others & set(file.parts) else b""
            for trace in (b"unique1", b"victim"):
                assert trace not in held, f"{file} holds {trace!r} of a removed wiki"


__all__ = ["PgStart", "recover_pg"]
