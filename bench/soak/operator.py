"""The operator: adds and removes wikis, creates and revokes keys, reindexes, backs up and restores."""

import time

from bench.soak.visitor import NOT_YET, Visitor
from bench.soak.wikis import CANARY_PAGE, SoakWiki

_BUSY = {"busy": "the index is being written or rebuilt"}
_GONE = {"wiki-not-found": "the wiki was removed"}
_TIMEOUT_S = 60.0


class Operator(Visitor):
    """One operation after another, at a rate that leaves time for visitors."""

    rests = 8.0

    def do_action(self) -> None:
        wiki = self.rng.choice(self.state.wikis)
        kinds = [
            self._reindex,
            self._backup,
            self._backup,
            self._create_and_revoke_key,
            self._add_and_remove,
            self._restore,
            self._read_health,
        ]
        self.rng.choice(kinds)(wiki)

    def _reindex(self, wiki: SoakWiki) -> None:
        reply = self.session.send(
            "reindex", wiki, "POST", "/api/v1/reindex", key=wiki.admin_key, expects=(202,), allows=_BUSY
        )
        until = time.monotonic() + _TIMEOUT_S
        while reply.status in (0, 202, 200) and time.monotonic() < until:
            reply = self.session.send("reindex status", wiki, "GET", "/api/v1/reindex/status", key=wiki.admin_key)
            if reply.status == 200 and reply.document["status"] != "in_progress":
                if reply.document["status"] == "error":
                    self.ledger.add_fault(f"reindex of {wiki.slug}: {reply.document['error_message']}")
                return
            time.sleep(0.3)
        if reply.status == 200:
            self.ledger.add_fault(f"reindex of {wiki.slug} did not finish within {_TIMEOUT_S:.0f} s")

    def _backup(self, wiki: SoakWiki) -> None:
        self.session.send("backup", wiki, "POST", "/api/v1/backup", key=wiki.admin_key, expects=(201,), allows=_BUSY)
        listed = self.session.send("list backups", wiki, "GET", "/api/v1/backups", key=wiki.admin_key)
        for each in listed.document["backups"] if listed.status == 200 else ():
            if each["fault"]:
                self.ledger.add_fault(f"a backup of {wiki.slug} is damaged: {each['fault']}")

    def _restore(self, wiki: SoakWiki) -> None:
        none = {"backup-not-found": "there is no backup yet"}
        self.session.send("restore", wiki, "POST", "/api/v1/restore", key=wiki.admin_key, body={}, allows=_BUSY | none)

    def _create_and_revoke_key(self, wiki: SoakWiki) -> None:
        created = self.session.send(
            "create a key", wiki, "POST", "/api/v1/keys", key=wiki.admin_key, body={"scope": "read"}, expects=(201,)
        )
        if created.status != 201:
            return
        token = created.document["token"]
        self.session.send("use a new key", wiki, "GET", "/api/v1/status", key=token)
        gone = self.session.send(
            "revoke a key", wiki, "DELETE", f"/api/v1/keys/{created.document['id']}", key=wiki.admin_key
        )
        if gone.status == 200:
            self.session.send("use a revoked key", wiki, "GET", "/api/v1/status", key=token, expects=(401,))

    def _read_health(self, _: SoakWiki) -> None:
        for path in ("/healthz", "/readyz", "/metrics", "/api/v1/wikis"):
            self.session.send("watch", None, "GET", path, key=self.state.operator)

    def _add_and_remove(self, _: SoakWiki) -> None:
        """Add a wiki, search it as soon as possible, and remove it."""
        guest = self.rng.choice(self.state.guests)
        key = self.state.operator
        added = self.session.send(
            "add a wiki", None, "POST", "/api/v1/wikis", key=key, expects=(201,),
            body={"slug": guest.slug, "source": str(guest.repository)},
            allows={"wiki-exists": "its removal was interrupted by a restart"},
        )  # fmt: skip
        if added.status in (201, 409):
            self._search_guest(guest)
            removed = self.session.send(
                "remove a wiki", None, "DELETE", f"/api/v1/wikis/{guest.slug}", key=key, allows=_GONE | _BUSY
            )
            if removed.status == 200:
                self.session.send(
                    "search a removed wiki", guest, "GET", "/api/v1/search", key=key, query={"q": "a"}, expects=(404,)
                )

    def _search_guest(self, guest: SoakWiki) -> None:
        until, parameters = time.monotonic() + _TIMEOUT_S, {"q": guest.canary, "mode": "hybrid"}
        while time.monotonic() < until:
            reply = self.session.send(
                "search a new wiki", guest, "GET", "/api/v1/search",
                key=self.state.operator, query=parameters, allows=NOT_YET,
            )  # fmt: skip
            if reply.status == 200:
                if CANARY_PAGE not in [hit["path"] for hit in reply.document["results"]]:
                    self.ledger.add_fault(f"a new wiki does not find its canary: {reply.document['results']}")
                return
            time.sleep(0.1)
        self.ledger.add_fault(f"a new wiki could not be searched within {_TIMEOUT_S:.0f} s")


class ImpatientClient(Visitor):
    """Sends requests without a pause until it is rate limited; only this key may be limited."""

    rests = 300.0

    def do_action(self) -> None:
        wiki = self.rng.choice(self.state.wikis)
        created = self.session.send(
            "create a key", wiki, "POST", "/api/v1/keys", key=wiki.admin_key, body={"scope": "read"}, expects=(201,)
        )
        if created.status == 201:
            self._exceed_limit(wiki, created.document["token"])
            self.session.send(
                "revoke a key", wiki, "DELETE", f"/api/v1/keys/{created.document['id']}", key=wiki.admin_key
            )

    def _exceed_limit(self, wiki: SoakWiki, key: str) -> None:
        for _ in range(600):
            reply = self.session.send(
                "exceed the rate limit", wiki, "GET", "/api/v1/facets", key=key,
                allows={"too-many-requests": "the rate limit was exceeded"},
            )  # fmt: skip
            if reply.status == 429:
                if "retry-after" not in {name.lower() for name in reply.headers}:
                    self.ledger.add_fault("429 without Retry-After")
                return
            if reply.status != 200 or self.state.gate.is_paused:
                return
