"""`wikiholt key`: creates, lists and revokes keys."""

import re
import sys
from datetime import UTC, datetime, timedelta

from wikiholt.api.documents.admin_documents import build_key_document, build_new_key_document
from wikiholt.domain.wiki import Key, Scope, Wiki
from wikiholt.errors import InvalidSetting
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_group, add_slug
from wikiholt.interfaces.cli.output import format_columns
from wikiholt.wikis.access import is_public

_MAX_NAMED_WIKIS = 10
_DURATION_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def add_arguments(commands: Subparsers) -> None:
    actions = add_group(commands, "key", "action")
    text = "create a key for one wiki, or for the operator, and show it once"
    create = add_command(actions, "create", run_create, text=text, changes_registry=True)
    create.add_argument("slug", nargs="?", metavar="SLUG", help="the wiki it gives access to")
    create.add_argument("--operator", action="store_true", help="a key with full access to all wikis")
    scopes = [str(scope) for scope in Scope]
    create.add_argument("--scope", choices=scopes, help="what it allows (default: read; for the operator: admin)")
    create.add_argument("--label", default="", metavar="TEXT", help="who or what it is for")
    create.add_argument("--expires", metavar="WHEN", help="a date (2027-01-31), or a duration: 12h, 30d, 8w")
    text = "list keys, without their secrets"
    add_slug(add_command(actions, "list", run_list, text=text, changes_registry=True), optional=True)
    text = "revoke a key immediately and permanently"
    revoke = add_command(actions, "revoke", run_revoke, text=text, changes_registry=True)
    revoke.add_argument("id", metavar="ID", help="the id that `key list` shows, or the full key")


def run_create(context: CommandContext) -> int:
    arguments, service = context.arguments, context.service
    if bool(arguments.slug) == arguments.operator:
        raise InvalidSetting(
            "A key is for one wiki or for the operator.", hint="Write key create SLUG, or key create --operator."
        )
    wiki = service.registry.get(arguments.slug) if arguments.slug else None
    if wiki is not None:
        service.check_repository(wiki)
    scope = Scope(arguments.scope or ("read" if wiki else "admin"))
    closed: list[str] = []
    if not service.registry.keys.has_ever_had_any():
        # These wikis are readable without a key only because there never was one.
        default = context.settings.serve_public
        closed = [wiki.slug for wiki in service.list_wikis() if not is_public(wiki, default=default)]
    key, token = service.registry.keys.create(
        wiki.id if wiki else None, scope, arguments.label, _parse_expiry(arguments.expires)
    )
    document = {**build_new_key_document(key, wiki, token), "closed_wikis": closed}
    context.print_result(document, [token])
    if not arguments.json:
        # On stderr, so that KEY=$(wikiholt key create SLUG) contains only the key.
        sys.stderr.write(
            f"Key {key.id} for {_format_target(wiki)}, scope {scope}, {_format_expiry(key)}. It is not shown again.\n"
        )
        sys.stderr.write("Send it as: Authorization: Bearer KEY\n")
        if closed:
            more = f" and {len(closed) - _MAX_NAMED_WIKIS} more" if len(closed) > _MAX_NAMED_WIKIS else ""
            names = ", ".join(closed[:_MAX_NAMED_WIKIS]) + more
            sys.stderr.write(f"This is the first key. From now on, reading needs a key in: {names}\n")
            hint = "hint: to keep a wiki open to everyone: wikiholt set SLUG public=true\n"
            sys.stderr.write(context.complete(hint))
            if context.settings.serve_owner:
                sys.stderr.write(context.complete("hint: your own browser needs no key: wikiholt open\n"))
    return 0


def run_list(context: CommandContext) -> int:
    registry, slug = context.service.registry, context.arguments.slug
    only = registry.get(slug) if slug else None
    wikis = {wiki.id: wiki for wiki in ([only] if only else registry.list_wikis())}
    rows = [(key, wikis.get(key.wiki_id or "")) for key in registry.keys.list(only.id if only else None)]
    cells = [
        (key.id, wiki.slug if wiki else "(operator)", key.scope, _format_expiry(key), key.label) for key, wiki in rows
    ]
    lines = format_columns(cells) or [context.complete("No keys yet. Next: wikiholt key create SLUG")]
    return context.print_result({"keys": [build_key_document(*row) for row in rows]}, lines)


def run_revoke(context: CommandContext) -> int:
    registry, key_id = context.service.registry, context.arguments.id
    # The full key is accepted too. Its secret is neither checked nor shown.
    full_key = re.fullmatch(r"wh_([a-z2-7]+)_[a-z2-7]+", key_id)
    revoked = registry.keys.revoke(full_key[1] if full_key else key_id)
    wiki = registry.get_by_id(revoked.wiki_id) if revoked.wiki_id else None
    lines = [f"Revoked key {revoked.id} for {_format_target(wiki)}, scope {revoked.scope}."]
    return context.print_result(build_key_document(revoked, wiki), lines)


def _format_target(wiki: Wiki | None) -> str:
    return wiki.slug if wiki else "all wikis"


def _format_expiry(key: Key) -> str:
    if key.expires_at is None:
        return "never expires"
    word = "expired" if key.is_expired() else "until"
    return f"{word} {key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _parse_expiry(text: str | None) -> datetime | None:
    """Parse a date, a date with time, or a duration from now: 12h, 30d, 8w."""
    if text is None:
        return None
    if duration := re.fullmatch(r"([0-9]{1,5})([hdw])", text):
        return datetime.now(UTC) + timedelta(**{_DURATION_UNITS[duration[2]]: int(duration[1])})
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSetting(f"--expires {text!r} is not a date.", hint="Write 2027-01-31, or 12h, 30d, 8w.") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
