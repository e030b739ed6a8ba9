"""The commands `key` and `set`: who may open a wiki, and how it is set."""

import re
import sys
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from wikiholt.app.settings.setting import build_unknown_error
from wikiholt.app.settings.definitions import WIKI_SETTINGS
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.wiki_commands import print_result
from wikiholt.interfaces.schemas.admin_schemas import (
    build_key_document,
    build_new_key_document,
    build_wiki_document,
    get_public_settings,
)
from wikiholt.wikis.service import WikiService

_DURATION_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def run_key(service: WikiService, arguments: Namespace) -> int:
    return {"create": _run_create, "list": _run_list, "revoke": _run_revoke}[arguments.action](service, arguments)


def run_set(service: WikiService, arguments: Namespace) -> int:
    """Show a wiki's settings, after changing those that are named."""
    changes = dict(_parse_pair(pair) for pair in arguments.pairs)
    for name in changes:
        if name not in WIKI_SETTINGS:
            raise build_unknown_error(name, "setting of a wiki", WIKI_SETTINGS)
    if len(changes) < len(arguments.pairs):
        raise InvalidSetting("A setting is given twice.", hint="Give each one once.")
    wiki = service.configure(arguments.slug, changes) if changes else service.registry.get(arguments.slug)
    shown = get_public_settings(wiki)
    width = max(map(len, shown), default=0)
    lines = [f"{name:{width}}  {output.to_safe_line(text)}" for name, text in sorted(shown.items())]
    return print_result(arguments, build_wiki_document(wiki), lines or [f"{wiki.slug} has no settings of its own."])


def _run_create(service: WikiService, arguments: Namespace) -> int:
    if bool(arguments.slug) == arguments.operator:
        raise InvalidSetting(
            "A key is of one wiki or of the operator.", hint="Write key create SLUG, or key create --operator."
        )
    wiki = service.registry.get(arguments.slug) if arguments.slug else None
    if wiki is not None:
        service.check_repository(wiki)
    scope = Scope(arguments.scope or ("read" if wiki else "admin"))
    made, token = service.registry.keys.create(
        wiki.id if wiki else None, scope, arguments.label, _parse_expiry(arguments.expires)
    )
    print_result(arguments, build_new_key_document(made, wiki, token), [token])
    if not arguments.json:
        # Not to stdout, so that KEY=$(wikiholt key create SLUG) holds the key and nothing else.
        about = wiki.slug if wiki else "every wiki"
        sys.stderr.write(
            f"Key {made.id} opens {about}, scope {scope}, {_format_expiry(made)}. It is not shown again.\n"
        )
        sys.stderr.write("Send it as: Authorization: Bearer KEY\n")
    return 0


def _run_list(service: WikiService, arguments: Namespace) -> int:
    only = service.registry.get(arguments.slug) if arguments.slug else None
    wikis = {wiki.id: wiki for wiki in ([only] if only else service.registry.list_wikis())}
    found = service.registry.keys.list(only.id if only else None)
    rows = [(each, wikis.get(each.wiki_id or "")) for each in found]
    lines = _format_key_table(rows) if rows else ["No keys yet. Next: wikiholt key create SLUG"]
    return print_result(arguments, {"keys": [build_key_document(*row) for row in rows]}, lines)


def _run_revoke(service: WikiService, arguments: Namespace) -> int:
    # Whoever has the key at hand need not look up its id; the secret is neither checked nor shown.
    given = re.fullmatch(r"wh_([a-z2-7]+)_[a-z2-7]+", arguments.id)
    revoked = service.registry.keys.revoke(given[1] if given else arguments.id)
    wiki = service.registry.get_by_id(revoked.wiki_id) if revoked.wiki_id else None
    about = wiki.slug if wiki else "every wiki"
    lines = [f"Revoked key {revoked.id}, which opened {about}, scope {revoked.scope}."]
    return print_result(arguments, build_key_document(revoked, wiki), lines)


def _format_key_table(rows: list[tuple[Key, Wiki | None]]) -> list[str]:
    names = [wiki.slug if wiki else "(operator)" for _, wiki in rows]
    width = max(map(len, names))
    return [
        f"{each.id}  {name:{width}}  {each.scope:5}  {_format_expiry(each)}  {output.to_safe_line(each.label)}".rstrip()
        for (each, _), name in zip(rows, names, strict=True)
    ]


def _format_expiry(key: Key) -> str:
    if key.expires_at is None:
        return "never expires"
    told = "expired" if key.expires_at <= datetime.now(UTC) else "until"
    return f"{told} {key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _parse_expiry(text: str | None) -> datetime | None:
    """A date, a date with time, or how long from now: 12h, 30d, 8w."""
    if text is None:
        return None
    if ahead := re.fullmatch(r"([0-9]{1,5})([hdw])", text):
        return datetime.now(UTC) + timedelta(**{_DURATION_UNITS[ahead[2]]: int(ahead[1])})
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSetting(f"--expires {text!r} is no date.", hint="Write 2027-01-31, or 12h, 30d, 8w.") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"{name!r} has no value.", hint="Write NAME=VALUE, or NAME= to unset it.")
    # A secret on the command line can be seen by others on this machine.
    return name.strip(), sys.stdin.readline().strip() if value == "-" else value.strip()
