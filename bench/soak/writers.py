"""Writers over the API: create, edit, rename and delete pages, then search for them."""

import re
from collections.abc import Callable

from bench.soak.visitor import SharedState, Visitor
from bench.soak.wikis import CANARY_PAGE, SoakWiki, make_text

_CONFLICT = {"revision-mismatch": "another client wrote in between", "busy": "another client was writing"}
_MAX_PAGES = 30
"""Maximum number of pages of one writer in all wikis, so that growth is not content."""


class Writer(Visitor):
    """Creates, edits, renames and deletes pages over the API, and checks that searches find them."""

    rests = 4.0

    def __init__(self, shared: SharedState, name: str) -> None:
        super().__init__(shared, name)
        self._pages: dict[str, list[str]] = {}

    def do_action(self) -> None:
        full = sum(map(len, self._pages.values())) >= _MAX_PAGES
        wiki = self.rng.choice([wiki for wiki in self.state.wikis if not full or self._pages.get(wiki.slug)])
        own = self._pages.setdefault(wiki.slug, [])
        actions: list[Callable[[SoakWiki, list[str]], None]] = [self._edit_shared]
        actions += [self._delete] * 3 if full else [self._create] * 4
        actions += [self._edit, self._edit, self._rename, self._delete] if own else []
        self.rng.choice(actions)(wiki, own)

    def touch(self, wiki: SoakWiki) -> None:
        """Edit the page that everybody edits, and wait until that is indexed."""
        self._edit_shared(wiki, [])
        self.search(wiki, wiki.canary, "keyword", fresh="true")

    def _create(self, wiki: SoakWiki, own: list[str]) -> None:
        mark = self.make_mark()
        path = f"soak/{mark}"
        text = make_text(self.rng, wiki, mark, self.state.pages)
        text += f"\nThe page before is [this one]({own[-1].partition('/')[2]}.md).\n" if own else ""
        if self._write("write a page", wiki, "PUT", f"/api/v1/pages/{path}", {"content": text}, 201):
            own.append(path)
            self._check_found(wiki, path, mark)

    def _edit(self, wiki: SoakWiki, own: list[str]) -> None:
        path, mark = self.rng.choice(own), self.make_mark()
        read = self.session.send("read before an edit", wiki, "GET", f"/api/v1/pages/{path}", key=wiki.read_key)
        if read.status != 200:
            own.remove(path)
            return
        old = re.findall(r"(merk\w+x) of ", read.document["content"])[0]
        change = {"old_string": f"{old} of ", "new_string": f"{mark} of ", "revision": read.document["revision"]}
        if self._write("edit a page", wiki, "PATCH", f"/api/v1/pages/{path}", change, 200):
            self._check_found(wiki, path, mark)
        else:
            own.remove(path)

    def _rename(self, wiki: SoakWiki, own: list[str]) -> None:
        old, mark = self.rng.choice(own), self.make_mark()
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
                self.ledger.add_fault(f"fresh=true of {wiki.slug} finds {path}, which was deleted")

    def _edit_shared(self, wiki: SoakWiki, _: list[str]) -> None:
        """Edit the page that everybody edits, by the revision it was read at."""
        read = self.session.send("read before an edit", wiki, "GET", "/api/v1/pages/Home", key=wiki.read_key)
        if read.status == 200:
            text = f"# Home\n\nThis is {wiki.canary}, {self.make_mark()}. See [[{CANARY_PAGE}]].\n"
            change = {"content": text, "revision": read.document["revision"]}
            self._write("edit a shared page", wiki, "PUT", "/api/v1/pages/Home", change, 200)

    def _write(self, what: str, wiki: SoakWiki, method: str, path: str, body: object, expected: int) -> bool:
        reply = self.session.send(
            what, wiki, method, path, key=wiki.admin_key, body=body, expects=(expected,), allows=_CONFLICT
        )
        if reply.status == expected:
            wiki.add_commit(reply.document["revision"])
        return reply.status == expected

    def _check_found(self, wiki: SoakWiki, path: str, mark: str) -> None:
        kind = self.rng.randrange(3)
        if kind == 0:
            self.wait_until_found(wiki, path, mark, "written over the API")
        elif kind == 1:
            found = self.search(wiki, mark, "keyword", fresh="true")
            if found is not None and path not in found:
                self.ledger.add_fault(f"fresh=true of {wiki.slug} does not find {path} by {mark}, only {found}")
