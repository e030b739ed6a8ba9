"""The crash gate: rounds of random work, random blows, and what must hold at the next start.

Every round begins from the same wikis (copied), so that a seed and a number repeat it; only the instants of kills
that are given by time, not by step, differ from run to run.
"""

import math
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from damage import harm
from farm import contents, open_farm
from git_repository import Repository
from history import begin, go_on
from processes import ESCAPED, Child, Work, search_until, write
from recovery import recover, registry_outcome

from wikiholt.stores.sqlite.store import SqliteStore

BLOWS = (*["kill by step", "kill by time", "files"] * 2, "disk full", "read-only", "git")
ACTIONS = ("sync", "sync", "rebuild", "rebuild", "remove")
PAGES = 60


@dataclass(slots=True)
class Round:
    """One round: what was done and what came of it; `fault` is empty when all that must hold held."""

    number: int
    changes: str = ""
    action: str = ""
    blow: str = ""
    damage: list[str] = field(default_factory=list)
    writer: str = ""
    searches: dict[str, int] = field(default_factory=dict)
    registry: str = ""
    recovery: str = ""
    fault: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        harmed = f" ({', '.join(self.damage)})" if self.damage else ""
        done = f"{self.number:4}  {self.changes:28} {self.action:8} {self.blow}{harmed}"
        return f"{done} → {self.writer}; {self.recovery}" + (f"\n      FAULT: {self.fault}" if self.fault else "")


class Gate:
    """All rounds of one seed, in one directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._seed = seed
        self._template = directory / "template"
        self._round = directory / "round"
        self._scratch = directory / "scratch"
        self._scratch.mkdir(parents=True)
        rng = Random(seed)
        for slug, count in (("victim", PAGES), ("bystander", 8)):
            begin(Repository(self._round / slug), rng, count)
        data = self._round / "data"
        service = open_farm(data)
        for slug in ("victim", "bystander"):
            service.add(slug, str(self._round / slug), {})
            service.wiki(slug).sync()
        self._ids = {wiki.slug: wiki.id for wiki in service.wikis()}
        service.close()
        shutil.copytree(self._round, self._template)

    def play(self, number: int) -> Round:
        """One round from beginning to end."""
        began = time.monotonic()
        rng = Random(f"{self._seed}/{number}")
        shutil.rmtree(self._round)
        shutil.copytree(self._template, self._round)
        played = Round(number, action=rng.choice(ACTIONS), blow=rng.choice(BLOWS))
        self._settle(rng)
        before = self._bystander()
        self._strike(played, rng)
        if played.blow == "files" or (played.blow.startswith("kill") and rng.random() < 0.3):
            files = [file for file in self._data.rglob("*") if file.is_file()]
            played.damage = harm([file for file in files if self._ids["bystander"] not in file.parts], rng)
        self._recover(played)
        if self._bystander() != before:
            self._blame(played, "the files of another wiki have changed")
        played.seconds = time.monotonic() - began
        return played

    def _settle(self, rng: Random) -> None:
        """Let the wikis look as their last writer left them, or as a copy of a data directory looks."""
        store = SqliteStore(self._data / "wikis")
        for wiki_id in self._ids.values() if rng.random() < 0.5 else ():
            with store.writing(wiki_id, 1):
                pass

    @property
    def _data(self) -> Path:
        return self._round / "data"

    def _bystander(self) -> dict[str, bytes]:
        return contents(self._data / "wikis" / self._ids["bystander"])

    def _strike(self, played: Round, rng: Random) -> None:
        """Let a writer and a searcher run, and let the blow fall."""
        victim = Repository(self._round / "victim")
        played.changes = go_on(victim, rng)
        stop = self._scratch / "stop"
        stop.unlink(missing_ok=True)
        work = self._work(played, rng)
        if played.blow == "git":
            files = [file for file in (victim.path / ".git").rglob("*") if file.is_file() and "hooks" not in file.parts]
            shutil.copytree(victim.path, self._scratch / "whole", dirs_exist_ok=True)
            for file in files:
                file.chmod(0o644)
            played.damage = harm_repository(files, rng)
        searcher = Child(self._scratch / "searcher", lambda: search_until(self._data, stop))
        writer = Child(self._scratch / "writer", lambda: write(work))
        if played.blow == "kill by time":
            time.sleep(rng.uniform(0, 1.2))
            writer.kill()
        ended = writer.join()
        stop.touch()
        told = searcher.join()
        played.writer = str(ended["outcome"])
        value = told.get("value")
        played.searches = dict(value) if isinstance(value, dict) else {}
        for name, result in (("writer", ended), ("searcher", told)):
            if result["outcome"] == ESCAPED or (name == "searcher" and result["outcome"] != "done"):
                self._blame(played, f"{name}: {result.get('trace', result)}")
        if played.blow == "git":
            shutil.rmtree(victim.path)
            shutil.move(self._scratch / "whole", victim.path)

    def _work(self, played: Round, rng: Random) -> Work:
        model = "other" if played.action == "rebuild" else "fake"
        die_at = int(math.exp(rng.uniform(0, math.log(2500)))) if played.blow == "kill by step" else 0
        limit = {"disk full": int(math.exp(rng.uniform(math.log(500), math.log(2_000_000)))), "read-only": 0}
        return Work(self._data, played.action, model, 0.03, die_at, limit.get(played.blow))

    def _recover(self, played: Round) -> None:
        """The next start, in a process of its own: it may be struck down by what it finds."""
        known = dict(self._ids)
        if played.action == "remove" and played.writer == "done":
            del known["victim"]
        spare, model = self._template / "data" / "registry.sqlite", "other" if played.action == "rebuild" else "fake"
        scratch = self._scratch / "fresh"

        def task() -> list[str]:
            registry = registry_outcome(self._data, spare, known, removal=played.action == "remove")
            return [registry, recover(self._data, model, removal=played.action == "remove", scratch=scratch)]

        result = Child(self._scratch / "recovery", task).join()
        value = result.get("value")
        if isinstance(value, list):
            played.registry, played.recovery = value
        else:
            self._blame(played, f"recovery: {result}".replace("\\n", "\n      "))

    @staticmethod
    def _blame(played: Round, fault: str) -> None:
        played.fault = f"{played.fault}\n{fault}".strip()


def harm_repository(files: list[Path], rng: Random) -> list[str]:
    """Damage files of git's; those of a repository have other kinds than ours."""
    return [told.split()[0] for told in harm(files, rng)]


def figures(played: list[Round]) -> str:
    """What was done and what came of it, counted."""
    lines = []
    for name in ("action", "blow", "writer", "recovery", "registry"):
        counted = Counter(getattr(each, name) for each in played)
        lines.append(f"{name}: " + ", ".join(f"{what or '–'} {count}" for what, count in counted.most_common()))
    damage: Counter[str] = Counter()
    searches: Counter[str] = Counter()
    for each in played:
        damage.update(each.damage)
        searches.update(each.searches)
    for name, counted in (("damage", damage), ("searches meanwhile", searches)):
        lines.append(f"{name}: " + ", ".join(f"{what} {count}" for what, count in counted.most_common()))
    faults = sum(bool(each.fault) for each in played)
    lines.append(f"{len(played)} rounds, {faults} faults, {sum(p.seconds for p in played):.0f} s")
    return "\n".join(lines)
