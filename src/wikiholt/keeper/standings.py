"""How a wiki stands with the node that looks after it, for the others to read: a note with the wiki's index."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

from wikiholt.errors import WikiholtError
from wikiholt.keeper.entries import WikiEntry, SyncState
from wikiholt.ports import IndexStore

_STATE_NOTE = "standing"
_HEALTHY_STATE = SyncState(waiting=False, missing=False, failures=0, error=None, next_try_seconds=0.0, synced_revision=None)


def publish_state(store: IndexStore, entry: WikiEntry) -> None:
    """Leave a note if there is news; never raises, for that is not worth a sync."""
    known = (entry.missing, entry.failures, entry.error, entry.backup_error)
    if entry.published_note is not None and entry.published_note[0] == known:
        return
    with suppress(WikiholtError):
        before = entry.published_note[1] if entry.published_note is not None else store.get_note(entry.wiki.id, _STATE_NOTE) or ""
        text = _encode_state(entry)
        if text != before:
            store.set_note(entry.wiki.id, _STATE_NOTE, text)
        entry.published_note = (known, text)


def read_state(store: IndexStore, wiki_id: str) -> SyncState:
    """What the node that looks after the wiki says of it; where it says nothing, all is well."""
    try:
        note = json.loads(store.get_note(wiki_id, _STATE_NOTE) or "")
        next_try = (datetime.fromisoformat(note["next_try"]) - datetime.now(UTC)).total_seconds()
        return SyncState(
            waiting=False,
            missing=bool(note["missing"]),
            failures=int(note["failures"]),
            error=_decode_error(note["error"]),
            next_try_seconds=max(0.0, next_try),
            synced_revision=None,
            backup_error=_decode_error(note["backup_error"]),
        )
    except (WikiholtError, ValueError, TypeError, KeyError):
        return _HEALTHY_STATE


def _encode_state(entry: WikiEntry) -> str:
    if not (entry.missing or entry.failures or entry.backup_error):
        return ""
    next_try = datetime.now(UTC) + timedelta(seconds=max(0.0, entry.retry_at - monotonic()))
    return json.dumps(
        {
            "missing": entry.missing,
            "failures": entry.failures,
            "error": _encode_error(entry.error),
            "next_try": next_try.isoformat(),
            "backup_error": _encode_error(entry.backup_error),
        }
    )


def _encode_error(error: WikiholtError | None) -> list[str] | None:
    return [error.code, error.message, error.hint] if error else None


def _decode_error(encoded: list[str] | None) -> WikiholtError | None:
    """The error again, of the kind it was, for a surface shows each kind in its own way."""
    if encoded is None:
        return None
    code, message, hint = encoded
    kinds = [WikiholtError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.code == code:
            with suppress(TypeError):  # one that knows more than a note says
                return kind(message, hint=hint)
    return WikiholtError(message, hint=hint)
