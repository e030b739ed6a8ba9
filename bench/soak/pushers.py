"""Users of git who push commits."""

import hashlib
import hmac

from bench.soak.visitor import SharedState, Visitor
from bench.soak.wikis import SECRET, Clone, SoakWiki, make_text

_WIKIS = 15


class Pusher(Visitor):
    """Commits in a clone and pushes: new pages, edits, renames and deletions; then notifies the service, or does not."""

    rests = 6.0
    notifies = True

    def __init__(self, shared: SharedState, name: str) -> None:
        super().__init__(shared, name)
        # A few wikis with two pages of this pusher each, so that the content is bounded.
        self._wikis = self.rng.sample(shared.wikis, min(_WIKIS, len(shared.wikis)))

    def do_action(self) -> None:
        wiki = self.rng.choice(self._wikis)
        for _ in range(5):
            clone = Clone(wiki, self.state.clones / self.name)
            path, mark = self._write_change(clone, wiki)
            if clone.push():
                break
            self.ledger.add_explained("a push was rejected and repeated")
        else:
            self.ledger.add_fault(f"push: five pushes to {wiki.slug} were rejected")
            return
        with self.ledger.lock:
            self.ledger.done["push"] += 1
        kind = self._notify(wiki) if self.notifies else "pushed without a notification"
        if kind:
            self.wait_until_found(wiki, path, mark, kind)

    def _write_change(self, clone: Clone, wiki: SoakWiki) -> tuple[str, str]:
        mark, folder = self.make_mark(), f"soak/{self.name}"
        own_files = clone.list_files(folder)
        (clone.place / folder).mkdir(parents=True, exist_ok=True)
        if len(own_files) >= 2:
            self.rng.choice(own_files).unlink()
        elif own_files:
            own_files[0].rename(own_files[0].with_name(f"{mark}-moved.md"))
        path = f"{folder}/{mark}"
        (clone.place / f"{path}.md").write_text(make_text(self.rng, wiki, mark, self.state.pages))
        return path, mark

    def _notify(self, wiki: SoakWiki) -> str:
        """Notify the service in one of two ways; returns the way, if it was accepted."""
        if self.rng.random() < 0.5:
            reply = self.session.send("wake", wiki, "POST", "/api/v1/wake", key=wiki.admin_key, expects=(202,))
        else:
            body = b'{"ref":"refs/heads/main"}'
            signed = {"X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}
            reply = self.session.send(
                "webhook", wiki, "POST", "/api/v1/webhook", key="", body=body, headers=signed, expects=(202,)
            )
        return "pushed with a notification" if reply.status == 202 else ""


class SilentPusher(Pusher):
    """Pushes without a notification: the service finds the commit itself."""

    notifies = False
