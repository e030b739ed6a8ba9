"""The crash gate: rounds of random work, random blows, and what must hold at the next start.

Every round begins from the same wikis (copied), so that a seed and a number repeat it; only the instants of kills
that are given by time, not by step, differ from run to run.
"""

import shutil
import time
from pathlib import Path
from random import Random

from acknowledged import UNSURE, Acknowledged
from blows import BLOWS, GIT_DEEDS, Blow, fits
from crash_round import Round
from damage import files_below, harm, kind_of
from deeds import DEEDS, SERVE
from farm import contents, product
from git_repository import Repository
from history import begin, go_on
from peopled import peopled
from planted import plant
from processes import Child, Line
from recovery import Start, recover

from wikiholt.keeper.jobs import Job, JobState, write_job
from wikiholt.stores.sqlite.store import SqliteStore

_DEEDS = (*DEEDS, "sync", "reindex", "fetch", SERVE)
_STILL = ("CURRENT", "index", "backup", "mirror pack", "mirror ref", "mirror HEAD", "mirror other")
"""Kinds of files that a running service, which looks after all wikis, leaves as they are where nothing changed."""

_DONE = Job(JobState.COMPLETE, "1")


class Gate:
    """All rounds of one seed, in one directory."""

    def __init__(self, directory: Path, seed: int, *, model: str = "fake", pages: int = 40, bug: str = "") -> None:
        self._seed = seed
        self._model = model
        self._bug = bug
        self._template = directory / "template"
        self._round = directory / "round"
        self._scratch = directory / "scratch"
        self._scratch.mkdir(parents=True)
        made = Child(self._scratch / "made", lambda _: self._make(Random(seed), pages)).join()
        value = made.get("value")
        assert isinstance(value, dict), made
        self._ids: dict[str, str] = value["ids"]
        self._tokens: dict[str, str] = value["tokens"]
        self._revoked: str = value["revoked"]
        self._operator: str = value["operator"]
        shutil.copytree(self._round, self._template)

    def _make(self, rng: Random, pages: int) -> dict[str, object]:
        """Three wikis of which everything was used once: indexes, caches, keys, backups, a job."""
        for slug, count in (("victim", pages), ("bystander", 6), ("upstream", 8)):
            begin(Repository(self._round / slug), rng, count)
        service = product(self._data, self._model)
        return peopled(service, self._round, lambda wiki_id: write_job(service.workshop.store, wiki_id, _DONE))

    @property
    def _data(self) -> Path:
        return self._round / "data"

    def play(self, number: int, only_deed: str = "", only_blow: str = "") -> Round:
        """One round from beginning to end."""
        began = time.monotonic()
        rng = Random(f"{self._seed}/{number}")
        deed, kind = "other model", ""
        while not fits(kind, deed) or (self._model != "fake" and deed == "other model"):
            deed, kind = only_deed or rng.choice(_DEEDS), only_blow or rng.choice(BLOWS)
        subject = "victim" if deed == SERVE else DEEDS[deed].subject
        played = Round(number, deed, kind, served=deed == SERVE or self._by_service(deed, subject, rng))
        expected = Acknowledged(
            {**self._ids}, dict.fromkeys((*self._tokens, self._operator), True) | {self._revoked: False}
        )
        blow = Blow(kind, deed, self._round, self._scratch, rng)
        try:
            blow.prepare(self._template)
            self._settle(rng, always=played.served)
            upstream = Repository(self._round / ("victim" if subject == "victim" else "upstream"))
            played.changes = go_on(upstream, rng)
            before = self._others(subject, still=played.served)
            harmed = self._strike(blow, played, expected, subject, rng)
            self._recover(played, expected, subject, harmed)
            if not played.fault and self._others(subject, still=played.served) != before:
                played.blame("the files of another wiki have changed")
            if not played.fault and kind != "git" and subject == "victim":
                expected.check_pages(Repository(self._round / "victim"))
        except AssertionError as error:
            played.blame(str(error))
        finally:
            blow.clear()
        played.seconds = time.monotonic() - began
        return played

    @staticmethod
    def _by_service(deed: str, subject: str, rng: Random) -> bool:
        """Whether a service is to do the recovering. With another model it would build all wikis anew, as it should."""
        return rng.random() < 0.15 and subject == "victim" and deed != "other model"

    def _settle(self, rng: Random, *, always: bool) -> None:
        """Let the wikis look as their last writer left them, or as a copy of a data directory looks."""
        store = SqliteStore(self._data / "wikis")
        for wiki_id in self._ids.values() if rng.random() < 0.5 or always else ():
            with store.writing(wiki_id, 1):
                pass

    def _others(self, subject: str, *, still: bool) -> dict[str, bytes]:
        """Every byte that belongs to the wikis a round is not about."""
        found = {}
        for slug, wiki_id in self._ids.items():
            for place in (self._data / "wikis" / wiki_id, self._data / "backups" / wiki_id) if slug != subject else ():
                for name, content in contents(place).items():
                    if not still or kind_of(place / name, self._data) in _STILL:
                        found[str(place / name)] = content
        return found

    def _strike(self, blow: Blow, played: Round, expected: Acknowledged, subject: str, rng: Random) -> dict[Path, str]:
        """Let several processes work, let the blow fall, and hear what they had acknowledged."""
        plant(self._bug)
        struck = blow.strike(self._model, self._tokens, self._operator, played.number)
        plant("")
        played.beside, played.writer, played.hit = struck.beside, struck.outcome, struck.hit
        played.searches = struck.searches
        for fault in struck.faults:
            played.blame(fault)
        for told in struck.told:
            expected.hear(told)
        if expected.wikis[subject] is None and blow.deed != "remove":
            expected.wikis[subject] = UNSURE
        if blow.kind != "files" and not (blow.kind.startswith("kill") and rng.random() < 0.25):
            return {}
        aside = {wiki_id for slug, wiki_id in self._ids.items() if slug != subject}
        files = [file for file in files_below(self._data) if not aside & set(file.parts)]
        harmed = harm(files, self._data, rng, played.number)
        played.damage = sorted(harmed.values())
        return harmed

    def _recover(self, played: Round, expected: Acknowledged, subject: str, harmed: dict[Path, str]) -> None:
        """The next start, in a process of its own: it may be struck down by what it finds."""
        model = DEEDS[played.deed].model if played.deed in DEEDS and self._model == "fake" else self._model
        spare = self._template / "data" / "registry.sqlite"
        start = Start(self._data, self._scratch, spare, subject, model, expected, self._operator)
        start.harmed = {str(file): told for file, told in harmed.items()}
        start.served = played.served

        def task(_: Line) -> object:
            return recover(start)

        result = Child(self._scratch / "recovery", task).join()
        value = result.get("value")
        if isinstance(value, dict):
            played.registry, played.before = value["registry"], value["before"]
            played.way, played.recovery_seconds = value["way"], value["seconds"]
        else:
            played.blame(f"recovery: {result.get('trace') or result.get('at') or result}")


__all__ = ["GIT_DEEDS", "Gate", "Round"]
