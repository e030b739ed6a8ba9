"""Readers: searches of all kinds, and all other reads."""

from bench.soak.visitor import Visitor
from bench.soak.wikis import CANARY_PAGE, SoakWiki


class Reader(Visitor):
    """Searches in all modes and with filters, and reads everything else."""

    def do_action(self) -> None:
        wiki = self.rng.choice(self.state.wikis)
        self.rng.choice(
            [
                self._search_canary,
                self._search_title,
                self._search_title,
                self._search_filtered,
                self._read_other,
                self._search_with_etag,
            ]
        )(wiki)

    def _search_canary(self, wiki: SoakWiki) -> None:
        mode = self.rng.choice(["keyword", "hybrid"])
        found = self.search(wiki, wiki.canary, mode)
        if found is not None and CANARY_PAGE not in found:
            self.ledger.add_fault(f"search {mode}: {wiki.slug}'s canary is not found, only {found}")

    def _search_title(self, wiki: SoakWiki) -> None:
        mode = self.rng.choice(["hybrid", "semantic", "keyword"])
        fresh = {"fresh": "true"} if self.rng.random() < 0.1 else {}
        found = self.search(wiki, self.rng.choice([*wiki.titles, "Home"]), mode, **fresh)
        if found == [] and mode != "keyword":
            self.ledger.add_fault(f"search {mode}: no hit in {wiki.slug}")

    def _search_filtered(self, wiki: SoakWiki) -> None:
        filters = [{"tag": "soak"}, {"category": "c1"}, {"prefix": "soak"}, {"since": "7d"}, {"since": "2020-01-01"}]
        chosen = self.rng.choice(filters) | {"n": str(self.rng.randint(1, 50))}
        found = self.search(
            wiki, self.rng.choice([*wiki.titles, "note"]), self.rng.choice(["hybrid", "semantic"]), **chosen
        )
        outside = [path for path in found or () if "prefix" in chosen and not path.startswith("soak")]
        if outside:
            self.ledger.add_fault(f"search: {outside} passed the filter {chosen}")

    def _search_with_etag(self, wiki: SoakWiki) -> None:
        """Request twice; the second answer is 304 unless the wiki changed in between."""
        parameters = {"q": "home", "mode": "keyword"}
        first = self.session.send(
            "search with an ETag", wiki, "GET", "/api/v1/search", key=wiki.read_key, query=parameters
        )
        if first.status == 200:
            known = {"If-None-Match": first.headers.get("etag", "")}
            self.session.send(
                "search with an ETag", wiki, "GET", "/api/v1/search",
                key=wiki.read_key, query=parameters, headers=known, expects=(200, 304),
            )  # fmt: skip

    def _read_other(self, wiki: SoakWiki) -> None:
        path = self.rng.choice(["pages", "facets", "status", f"pages/{CANARY_PAGE}", "links", "changelog", "similar"])
        query = {"path": CANARY_PAGE} if path == "similar" else None
        self.session.send(
            f"read {path.partition('/')[0]}", wiki, "GET", f"/api/v1/{path}", key=wiki.read_key, query=query
        )
