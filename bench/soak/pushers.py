"""Users of plain git: commits that are pushed."""

import hashlib
import hmac

from bench.soak.visitor import SharedState, Visitor
from bench.soak.wikis import SECRET, Clone, SoakWiki, words

_WIKIS = 15


class Pusher(Visitor):
    """Commits in a clone and pushes: new pages, edits, renames and deletions; then notifies the service, or does not."""

    rests = 6.0
    wakes = True

    def __init__(self, scene: SharedState, name: str) -> None:
        super().__init__(scene, name)
        # A few wikis with two pages of this pusher each, so that the content is bounded.
        self._wikis = self.rng.sample(scene.wikis, min(_WIKIS, len(scene.wikis)))

    def act(self) -> None:
        wiki = self.rng.choice(self._wikis)
        for _ in range(5):
            clone = Clone(wiki, self.scene.clones / self.name)
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
        """Notify the service in one of two ways; returns the way, if it was accepted."""
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
    """Pushes without a notification: the service finds the commit itself."""

    wakes = False
