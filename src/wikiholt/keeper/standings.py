"""How a wiki stands with the node that looks after it, for the others to read: a note with the wiki's index."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

from wikiholt.errors import WikiholtError
from wikiholt.keeper.entries import Entry, Standing
from wikiholt.ports import Store

_NAME = "standing"
_WELL = Standing(waiting=False, missing=False, failures=0, error=None, next_try_seconds=0.0, synced_revision=None)


def share(store: Store, entry: Entry) -> None:
    """Leave a note if there is news; never raises, for that is not worth a sync."""
    known = (entry.missing, entry.failures, entry.error, entry.backup_error)
    if entry.shared is not None and entry.shared[0] == known:
        return
    with suppress(WikiholtError):
        before = entry.shared[1] if entry.shared is not None else store.note(entry.wiki.id, _NAME) or ""
        text = _written(entry)
        if text != before:
            store.keep_note(entry.wiki.id, _NAME, text)
        entry.shared = (known, text)


def shared(store: Store, wiki_id: str) -> Standing:
    """What the node that looks after the wiki says of it; where it says nothing, all is well."""
    try:
        note = json.loads(store.note(wiki_id, _NAME) or "")
        next_try = (datetime.fromisoformat(note["next_try"]) - datetime.now(UTC)).total_seconds()
        return Standing(
            waiting=False,
            missing=bool(note["missing"]),
            failures=int(note["failures"]),
            error=_error(note["error"]),
            next_try_seconds=max(0.0, next_try),
            synced_revision=None,
            backup_error=_error(note["backup_error"]),
        )
    except (WikiholtError, ValueError, TypeError, KeyError):
        return _WELL


def _written(entry: Entry) -> str:
    if not (entry.missing or entry.failures or entry.backup_error):
        return ""
    next_try = datetime.now(UTC) + timedelta(seconds=max(0.0, entry.retry_at - monotonic()))
    return json.dumps(
        {
            "missing": entry.missing,
            "failures": entry.failures,
            "error": _told(entry.error),
            "next_try": next_try.isoformat(),
            "backup_error": _told(entry.backup_error),
        }
    )


def _told(error: WikiholtError | None) -> list[str] | None:
    return [error.code, error.message, error.hint] if error else None


def _error(told: list[str] | None) -> WikiholtError | None:
    """The error again, of the kind it was, for a surface shows each kind in its own way."""
    if told is None:
        return None
    code, message, hint = told
    kinds = [WikiholtError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.code == code:
            with suppress(TypeError):  # one that knows more than a note says
                return kind(message, hint=hint)
    return WikiholtError(message, hint=hint)
