"""The commands `key` and `set`: who may open a wiki, and how it is set."""

import re
import sys
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from wikiholt.errors import InvalidSetting
from wikiholt.model import Key, Scope, Wiki
from wikiholt.service import Service
from wikiholt.settings import WIKI_SETTINGS
from wikiholt.settings.setting import unknown
from wikiholt.surfaces import documents
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import show

_SETTINGS = [setting.name for setting in WIKI_SETTINGS]
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def key(service: Service, arguments: Namespace) -> int:
    return {"create": _create, "list": _list, "revoke": _revoke}[arguments.action](service, arguments)


def configure(service: Service, arguments: Namespace) -> int:
    """Show a wiki's settings, after changing those that are named."""
    changes = dict(_pair(pair) for pair in arguments.pairs)
    for name in changes:
        if name not in _SETTINGS:
            raise unknown(name, "setting of a wiki", _SETTINGS)
    if len(changes) < len(arguments.pairs):
        raise InvalidSetting("A setting is given twice.", hint="Give each one once.")
    wiki = service.configure(arguments.slug, changes) if changes else service.registry.get(arguments.slug)
    shown = documents.shown_settings(wiki)
    width = max(map(len, shown), default=0)
    lines = [f"{name:{width}}  {output.line(text)}" for name, text in sorted(shown.items())]
    return show(arguments, documents.wiki_document(wiki), lines or [f"{wiki.slug} has no settings of its own."])


def _create(service: Service, arguments: Namespace) -> int:
    if bool(arguments.slug) == arguments.operator:
        raise InvalidSetting(
            "A key is of one wiki or of the operator.", hint="Write key create SLUG, or key create --operator."
        )
    wiki = service.registry.get(arguments.slug) if arguments.slug else None
    if wiki is not None:
        service.check_repository(wiki)
    scope = Scope(arguments.scope or ("read" if wiki else "admin"))
    made, token = service.registry.keys.create(
        wiki.id if wiki else None, scope, arguments.label, _expiry(arguments.expires)
    )
    show(arguments, documents.new_key_document(made, wiki, token), [token])
    if not arguments.json:
        # Not to stdout, so that KEY=$(wikiholt key create SLUG) holds the key and nothing else.
        about = wiki.slug if wiki else "every wiki"
        sys.stderr.write(f"Key {made.id} opens {about}, scope {scope}, {_until(made)}. It is not shown again.\n")
        sys.stderr.write("Send it as: Authorization: Bearer KEY\n")
    return 0


def _list(service: Service, arguments: Namespace) -> int:
    only = service.registry.get(arguments.slug) if arguments.slug else None
    wikis = {wiki.id: wiki for wiki in ([only] if only else service.registry.list())}
    found = service.registry.keys.list(only.id if only else None)
    rows = [(each, wikis.get(each.wiki_id or "")) for each in found]
    lines = _table(rows) if rows else ["No keys yet. Next: wikiholt key create SLUG"]
    return show(arguments, {"keys": [documents.key_document(*row) for row in rows]}, lines)


def _revoke(service: Service, arguments: Namespace) -> int:
    # Whoever has the key at hand need not look up its id; the secret is neither checked nor shown.
    given = re.fullmatch(r"wh_([a-z2-7]+)_[a-z2-7]+", arguments.id)
    revoked = service.registry.keys.revoke(given[1] if given else arguments.id)
    wiki = service.registry.by_id(revoked.wiki_id) if revoked.wiki_id else None
    about = wiki.slug if wiki else "every wiki"
    lines = [f"Revoked key {revoked.id}, which opened {about}, scope {revoked.scope}."]
    return show(arguments, documents.key_document(revoked, wiki), lines)


def _table(rows: list[tuple[Key, Wiki | None]]) -> list[str]:
    names = [wiki.slug if wiki else "(operator)" for _, wiki in rows]
    width = max(map(len, names))
    return [
        f"{each.id}  {name:{width}}  {each.scope:5}  {_until(each)}  {output.line(each.label)}".rstrip()
        for (each, _), name in zip(rows, names, strict=True)
    ]


def _until(key: Key) -> str:
    if key.expires_at is None:
        return "never expires"
    told = "expired" if key.expires_at <= datetime.now(UTC) else "until"
    return f"{told} {key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _expiry(text: str | None) -> datetime | None:
    """A date, a date with time, or how long from now: 12h, 30d, 8w."""
    if text is None:
        return None
    if ahead := re.fullmatch(r"([0-9]{1,5})([hdw])", text):
        return datetime.now(UTC) + timedelta(**{_UNITS[ahead[2]]: int(ahead[1])})
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSetting(f"--expires {text!r} is no date.", hint="Write 2027-01-31, or 12h, 30d, 8w.") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"{name!r} has no value.", hint="Write NAME=VALUE, or NAME= to unset it.")
    # A secret on the command line can be seen by others on this machine.
    return name.strip(), sys.stdin.readline().strip() if value == "-" else value.strip()
