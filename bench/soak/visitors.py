"""Who visits: readers, writers over the API, people who push with plain git."""

import hashlib
import hmac
import re
from collections.abc import Callable

from bench.soak.visiting import Scene, Visitor
from bench.soak.wikis import CANARY_PAGE, SECRET, Clone, SoakWiki, words

_CONFLICT = {"revision-mismatch": "somebody else wrote in between", "busy": "the repository was being written"}
_MOST = 4
"""Pages that one writer keeps in one wiki."""


class Reader(Visitor):
    """Searches in all modes and with filters, and reads what else there is."""

    def act(self) -> None:
        wiki = self.rng.choice(self.scene.wikis)
        self.rng.choice([self._canary, self._title, self._title, self._filtered, self._other, self._tagged])(wiki)

    def _canary(self, wiki: SoakWiki) -> None:
        mode = self.rng.choice(["keyword", "hybrid"])
        found = self.search(wiki, wiki.canary, mode)
        if found is not None and CANARY_PAGE not in found:
            self.ledger.complain(f"search {mode}: {wiki.slug}'s canary is not found, only {found}")

    def _title(self, wiki: SoakWiki) -> None:
        mode = self.rng.choice(["hybrid", "semantic", "keyword"])
        fresh = {"fresh": "true"} if self.rng.random() < 0.1 else {}
        found = self.search(wiki, self.rng.choice([*wiki.titles, "Home"]), mode, **fresh)
        if found == [] and mode != "keyword":
            self.ledger.complain(f"search {mode}: an empty list of {wiki.slug}")

    def _filtered(self, wiki: SoakWiki) -> None:
        filters = [{"tag": "soak"}, {"category": "c1"}, {"prefix": "soak"}, {"since": "7d"}, {"since": "2020-01-01"}]
        chosen = self.rng.choice(filters) | {"n": str(self.rng.randint(1, 50))}
        found = self.search(
            wiki, self.rng.choice([*wiki.titles, "note"]), self.rng.choice(["hybrid", "semantic"]), **chosen
        )
        outside = [path for path in found or () if "prefix" in chosen and not path.startswith("soak")]
        if outside:
            self.ledger.complain(f"search: {outside} passed the filter {chosen}")

    def _tagged(self, wiki: SoakWiki) -> None:
        """Ask twice; the second answer is 304 unless somebody wrote in between."""
        asked = {"q": "home", "mode": "keyword"}
        first = self.session.ask("search with a tag", wiki, "GET", "/api/v1/search", key=wiki.reading, query=asked)
        if first.status == 200:
            known = {"If-None-Match": first.headers.get("etag", "")}
            self.session.ask(
                "search with a tag", wiki, "GET", "/api/v1/search",
                key=wiki.reading, query=asked, headers=known, expects=(200, 304),
            )  # fmt: skip

    def _other(self, wiki: SoakWiki) -> None:
        path = self.rng.choice(["pages", "facets", "status", f"pages/{CANARY_PAGE}", "links", "changelog", "similar"])
        query = {"path": CANARY_PAGE} if path == "similar" else None
        self.session.ask(
            f"read {path.partition('/')[0]}", wiki, "GET", f"/api/v1/{path}", key=wiki.reading, query=query
        )


class Writer(Visitor):
    """Creates, edits, renames and deletes pages over the API, and looks whether they are found."""

    rests = 4.0

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self._pages: dict[str, list[str]] = {}

    def act(self) -> None:
        wiki = self.rng.choice(self.scene.wikis)
        own = self._pages.setdefault(wiki.slug, [])
        actions: list[Callable[[SoakWiki, list[str]], None]] = [self._shared]
        actions += [self._create] * 4 if len(own) < _MOST else [self._delete] * 3
        actions += [self._edit, self._edit, self._rename, self._delete] if own else []
        self.rng.choice(actions)(wiki, own)

    def _create(self, wiki: SoakWiki, own: list[str]) -> None:
        mark = self.mark()
        path = f"soak/{mark}"
        text = words(self.rng, wiki, mark, self.scene.pages)
        text += f"\nBefore it came [this one]({own[-1].partition('/')[2]}.md).\n" if own else ""
        if self._write("write a page", wiki, "PUT", f"/api/v1/pages/{path}", {"content": text}, 201):
            own.append(path)
            self._look(wiki, path, mark)

    def _edit(self, wiki: SoakWiki, own: list[str]) -> None:
        path, mark = self.rng.choice(own), self.mark()
        read = self.session.ask("read before an edit", wiki, "GET", f"/api/v1/pages/{path}", key=wiki.reading)
        if read.status != 200:
            own.remove(path)
            return
        old = re.findall(r"(merk\w+x) of ", read.document["content"])[0]
        change = {"old_string": f"{old} of ", "new_string": f"{mark} of ", "revision": read.document["revision"]}
        if self._write("edit a page", wiki, "PATCH", f"/api/v1/pages/{path}", change, 200):
            self._look(wiki, path, mark)
        else:
            own.remove(path)

    def _rename(self, wiki: SoakWiki, own: list[str]) -> None:
        old, mark = self.rng.choice(own), self.mark()
        new = f"soak/moved/{mark}"
        if self._write("rename a page", wiki, "POST", f"/api/v1/pages/{old}/rename", {"new_path": new}, 200):
            own[own.index(old)] = new
        else:
            own.remove(old)

    def _delete(self, wiki: SoakWiki, own: list[str]) -> None:
        path = own.pop(self.rng.randrange(len(own)))
        if self._write("delete a page", wiki, "DELETE", f"/api/v1/pages/{path}", None, 200):
            found = self.search(wiki, path.rpartition("/")[2], "keyword", fresh="true")
            if found and path in found:
                self.ledger.complain(f"fresh=true of {wiki.slug} finds {path}, which was deleted")

    def _shared(self, wiki: SoakWiki, _: list[str]) -> None:
        """Edit the page that everybody edits, by the revision it was read at."""
        read = self.session.ask("read before an edit", wiki, "GET", "/api/v1/pages/Home", key=wiki.reading)
        if read.status == 200:
            text = f"# Home\n\nThis is {wiki.canary}, {self.mark()}. See [[{CANARY_PAGE}]].\n"
            change = {"content": text, "revision": read.document["revision"]}
            self._write("edit a shared page", wiki, "PUT", "/api/v1/pages/Home", change, 200)

    def _write(self, what: str, wiki: SoakWiki, method: str, path: str, body: object, expected: int) -> bool:
        reply = self.session.ask(
            what, wiki, method, path, key=wiki.owning, body=body, expects=(expected,), allows=_CONFLICT
        )
        if reply.status == expected:
            wiki.acknowledge(reply.document["revision"])
        return reply.status == expected

    def _look(self, wiki: SoakWiki, path: str, mark: str) -> None:
        kind = self.rng.randrange(3)
        if kind == 0:
            self.until_found(wiki, path, mark, "written over the API")
        elif kind == 1:
            found = self.search(wiki, mark, "keyword", fresh="true")
            if found is not None and path not in found:
                self.ledger.complain(f"fresh=true of {wiki.slug} does not find {path} by {mark}, only {found}")


class Pusher(Visitor):
    """Commits at a desk and pushes: new pages, edits, renames and deletions; then wakes the service, or does not."""

    rests = 6.0
    wakes = True

    def act(self) -> None:
        wiki = self.rng.choice(self.scene.wikis)
        for _ in range(5):
            clone = Clone(wiki, self.scene.desk / self.name)
            path, mark = self._change(clone, wiki)
            if clone.push():
                break
            self.ledger.explain("a push came second and was made again")
        else:
            self.ledger.complain(f"push: five pushes to {wiki.slug} were refused")
            return
        with self.ledger.lock:
            self.ledger.done["push"] += 1
        kind = self._wake(wiki) if self.wakes else "pushed, nobody woke it"
        if kind:
            self.until_found(wiki, path, mark, kind)

    def _change(self, clone: Clone, wiki: SoakWiki) -> tuple[str, str]:
        mark, folder = self.mark(), f"soak/{self.name}"
        there = clone.files(folder)
        (clone.place / folder).mkdir(parents=True, exist_ok=True)
        if len(there) >= 2:
            self.rng.choice(there).unlink()
        elif there:
            there[0].rename(there[0].with_name(f"{mark}-moved.md"))
        path = f"{folder}/{mark}"
        (clone.place / f"{path}.md").write_text(words(self.rng, wiki, mark, self.scene.pages))
        return path, mark

    def _wake(self, wiki: SoakWiki) -> str:
        """Say that the repository changed, in one of the two ways there are; what was done, if it was taken."""
        if self.rng.random() < 0.5:
            reply = self.session.ask("wake", wiki, "POST", "/api/v1/wake", key=wiki.owning, expects=(202,))
        else:
            body = b'{"ref":"refs/heads/main"}'
            signed = {"X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}
            reply = self.session.ask(
                "webhook", wiki, "POST", "/api/v1/webhook", key="", body=body, headers=signed, expects=(202,)
            )
        return "pushed and woken" if reply.status == 202 else ""


class SilentPusher(Pusher):
    """Pushes and tells nobody: the service finds out by itself."""

    wakes = False
