"""The crash gate on PostgreSQL: rounds of random work, random blows, and what must hold at the next start.

Every round begins from the same bytes of the server and of two nodes' directories; a seed and a number repeat it, but
for the instants of blows that are given by time.
"""

import shutil
import time
from hashlib import sha256
from pathlib import Path
from random import Random

from acknowledged import UNSURE, Acknowledged
from crash_round import Round
from farm import product
from git_repository import Repository
from history import begin, go_on
from peopled import peopled
from pg_blows import PG_BLOWS, ROWS, PgBlow, PgStruck, fits, lay_out
from pg_damage import harm_rows
from pg_deeds import HOME, LEASE, PG_DEEDS, SECOND, SERVE
from pg_ground import Rows, write_settings
from pg_recovery import PgStart, recover_pg
from pg_rounds import RoundServer
from planted import plant
from processes import Child
from recovery import Start

_DEEDS = (*PG_DEEDS, "sync", "reindex", "move", "remove", SERVE)
_SERVED = 0.12


class PgGate:
    """All rounds of one seed, over one server that this gate started."""

    def __init__(self, directory: Path, server: RoundServer, seed: int, *, pages: int = 24, bug: str = "") -> None:
        self._seed, self._bug, self._server = seed, bug, server
        self._template, self._round, self._scratch = (directory / name for name in ("template", "round", "scratch"))
        self._scratch.mkdir(parents=True)
        self._addresses = {HOME: server.new_database(), SECOND: server.new_database()}
        backups = f'"{self._round / "data" / "backups"}"'
        for node in ("data", "other"):
            lease = {"postgres__lease": LEASE, "lock__timeout": 30, "backup__place": backups}
            write_settings(self._round / node, self._addresses[HOME], **lease)
        made = Child(self._scratch / "made", lambda _: self._make(Random(seed), pages)).join()
        value = made.get("value")
        assert isinstance(value, dict), made.get("trace", made)
        self._ids: dict[str, str] = value["ids"]
        self._tokens: dict[str, str] = value["tokens"]
        self._revoked, self._operator = str(value["revoked"]), str(value["operator"])
        server.keep()
        shutil.copytree(self._round, self._template)

    def _make(self, rng: Random, pages: int) -> dict[str, object]:
        """Three wikis on two databases, of which everything was used once."""
        for slug, count in (("victim", pages), ("bystander", 6), ("upstream", 8)):
            begin(Repository(self._round / slug), rng, count)
        service = product(self._round / "data")
        assert service.workshop.databases is not None
        service.workshop.databases.add(SECOND, self._addresses[SECOND], 1.0)
        return peopled(service, self._round)

    def play(self, number: int, only_deed: str = "", only_blow: str = "") -> Round:
        """One round from beginning to end."""
        began, rng = time.monotonic(), Random(f"{self._seed}/{number}")
        deed, kind = only_deed or rng.choice(_DEEDS), only_blow or rng.choice(PG_BLOWS)
        while not fits(kind, deed):
            deed, kind = only_deed or rng.choice(_DEEDS), only_blow or rng.choice(PG_BLOWS)
        subject = "victim" if deed == SERVE else PG_DEEDS[deed].subject
        by_service = rng.random() < _SERVED and subject == "victim" and deed not in ("other model", "upgrade")
        played = Round(number, deed, kind, served=deed == SERVE or by_service)
        expected = Acknowledged(
            {**self._ids}, dict.fromkeys((*self._tokens, self._operator), True) | {self._revoked: False}
        )
        try:
            self._server.put_back()
            lay_out(self._template, self._round)
            played.changes = go_on(Repository(self._round / ("victim" if subject == "victim" else "upstream")), rng)
            before = self._others(subject, played)
            struck = self._strike(PgBlow(kind, deed, self._round, self._scratch, self._server, rng), played, expected)
            if kind == ROWS:
                played.damage = self._harm(subject, rng, number)
            self._recover(played, expected, subject, struck)
            if not played.fault and self._others(subject, played) != before:
                played.blame("rows of another wiki have changed")
            if not played.fault and subject == "victim":
                expected.check_pages(Repository(self._round / "victim"))
        except AssertionError as error:
            played.blame(str(error))
        played.seconds = time.monotonic() - began
        return played

    def _others(self, subject: str, played: Round) -> dict[str, str]:
        """Every row of the wikis a round is not about. A service leaves notes at all, an upgrade changes all."""
        if played.deed == "upgrade":
            return {}
        rows, found = Rows(list(self._addresses.values())), {}
        for slug, wiki_id in self._ids.items():
            for table, content in rows.of_schema(f"w_{wiki_id}").items() if slug != subject else ():
                if not (played.served and table.endswith(".notes")):
                    found[table] = sha256(repr(sorted(content, key=repr)).encode()).hexdigest()
        return found

    def _strike(self, blow: PgBlow, played: Round, expected: Acknowledged) -> PgStruck:
        plant(self._bug)
        struck = blow.strike(self._tokens, self._operator, played.number)
        plant("")
        played.beside, played.writer, played.hit = struck.beside, struck.outcome, struck.hit
        played.searches = struck.searches
        for fault in struck.faults:
            played.blame(fault)
        for told in struck.told:
            expected.hear(told)
        if expected.wikis[blow.subject] is None and blow.deed != "remove":
            expected.wikis[blow.subject] = UNSURE
        return struck

    def _harm(self, subject: str, rng: Random, turn: int) -> list[str]:
        """Damage in whichever database the wiki is."""
        schema = f"w_{self._ids[subject]}"
        for address in self._addresses.values():
            if any(name.endswith(".state") for name in Rows([address]).of_schema(schema)):
                return harm_rows(address, schema, rng, turn)
        return []

    def _recover(self, played: Round, expected: Acknowledged, subject: str, struck: PgStruck) -> None:
        """The next start, in a process of its own: it may be struck down by what it finds."""
        model = PG_DEEDS[played.deed].model if played.deed in PG_DEEDS else "fake"
        start = Start(self._round / "data", self._scratch, Path(), subject, model, expected, self._operator)
        start.served = played.served
        told = PgStart(start, self._addresses, played.damage, struck.overtaken, newer=played.deed == "upgrade")
        result = Child(self._scratch / "recovery", lambda _: recover_pg(told)).join()
        value = result.get("value")
        if isinstance(value, dict):
            played.registry, played.before = value["registry"], value["before"]
            played.way, played.recovery_seconds = value["way"], value["seconds"]
        else:
            played.blame(f"recovery: {result.get('trace') or result.get('at') or result}")
