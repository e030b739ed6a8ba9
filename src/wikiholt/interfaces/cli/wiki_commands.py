"""`wikiholt add`, `create`, `set`, `rebind` and `remove`: which wikis there are, and their settings."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from wikiholt.api.documents.admin_documents import build_removed_document, build_wiki_document, get_public_settings
from wikiholt.api.settings.definitions import WIKI_SETTINGS
from wikiholt.api.settings.setting import build_unknown_error
from wikiholt.domain.slugs import propose_free_slug
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSetting, WikiExists
from wikiholt.git.remote_url import is_remote, redact_url
from wikiholt.interfaces.cli.command import (
    CANCELLED_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_repeatable,
    add_slug,
    can_ask,
    confirm,
)
from wikiholt.interfaces.cli.output import format_columns, format_count, to_safe_line


def add_arguments(commands: Subparsers) -> None:
    add = add_command(commands, "add", run_add, changes_registry=True)
    add.add_argument("slug", nargs="?", metavar="SLUG", help="name of the wiki (default: from the folder's name)")
    add.add_argument(
        "source", metavar="PATH_OR_URL", help="a repository or a directory of pages, or the URL of a remote repository"
    )
    text = "index the files on disk, with uncommitted edits, instead of HEAD"
    add.add_argument("--worktree", action="store_const", const="directory", dest="kind", help=text)
    add.add_argument("--subdirectory", metavar="DIR", help="index only the pages below this directory")
    create = add_command(commands, "create", run_create, changes_registry=True)
    add_slug(create)
    for parser in (add, create):
        add_repeatable(parser, "--ignore", metavar="GLOB", text="files to ignore; repeatable")
        add_repeatable(parser, "--hide", metavar="GLOB", text="pages to exclude from search; repeatable")
        parser.add_argument("--language", metavar="NAME", help="language of the pages, for stemming")
        parser.add_argument("--languages", metavar="NAMES", help="further languages of the pages, separated by commas")
        parser.add_argument("--anchors", metavar="STYLE", help="style of heading anchors in links: github or otterwiki")
        parser.add_argument("--dialect", metavar="NAME", help="dialect of the pages, such as obsidian; default: auto")
        parser.add_argument("--url", metavar="TEMPLATE", help="link of a hit; {path} is replaced by the page's path")
        parser.add_argument("--public", action="store_const", const="true", help="allow reading without a key")
        add_repeatable(parser, "--host", dest="hosts", metavar="NAME", text="host name of the wiki; repeatable")
        parser.add_argument("--interval", metavar="SECONDS", help="how often the service checks its repository")

    change = add_command(commands, "set", run_set, changes_registry=True)
    add_slug(change)
    change.add_argument(
        "pairs",
        nargs="*",
        metavar="NAME=VALUE",
        help="a setting and its value; an empty value unsets it, - reads it from standard input",
    )
    add_slug(add_command(commands, "rebind", run_rebind, changes_registry=True))
    remove = add_command(commands, "remove", run_remove, changes_registry=True)
    add_slug(remove)
    remove.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    remove.add_argument(
        "--delete-pages", action="store_true", help="delete the pages of a wiki that `create` made, without asking"
    )


def run_add(context: CommandContext) -> int:
    arguments = context.arguments
    settings = _get_settings(arguments)
    source = arguments.source if is_remote(arguments.source) else str(Path(arguments.source).resolve())
    slug = arguments.slug
    if slug is None:
        _check_not_registered(context, source)
        # The last part of the path or URL.
        folder = source.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
        slug = propose_free_slug(folder, [wiki.slug for wiki in context.list_wikis()])
    wiki = context.service.add(slug, source, settings)
    lines = [f"Added {wiki.slug}.", context.complete(f"Next: wikiholt sync {wiki.slug}")]
    return context.print_result(build_wiki_document(wiki), lines)


def _check_not_registered(context: CommandContext, source: str) -> None:
    """Raise WikiExists if there is a wiki of this source and subdirectory: another one needs a name."""
    subdirectory = (context.arguments.subdirectory or "").strip("/")
    for wiki in context.list_wikis():
        if wiki.source == source and wiki.settings.get("subdirectory", "").strip("/") == subdirectory:
            shown = to_safe_line(redact_url(source))
            raise WikiExists(
                f"{shown} is already registered as {wiki.slug}.",
                hint=f"Search it: `wikiholt search -w {wiki.slug} WORDS`. "
                f"For a second wiki of it, name one: `wikiholt add SLUG {shown}`",
            )


def run_create(context: CommandContext) -> int:
    wiki = context.service.create(context.arguments.slug, _get_settings(context.arguments))
    next_step = context.complete(f"Next: wikiholt import-pages {wiki.slug} FILE")
    return context.print_result(build_wiki_document(wiki), [f"Created {wiki.slug}, without pages.", next_step])


def _get_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of a new wiki, from the options with their names."""
    settings = {name: value for name in WIKI_SETTINGS if (value := getattr(arguments, name, None))}
    separators = {"ignore": "\n", "hide": "\n", "hosts": ", "}
    return {name: separators[name].join(value) if name in separators else value for name, value in settings.items()}


def run_set(context: CommandContext) -> int:
    """Change the named settings, then show all settings of the wiki."""
    arguments, registry = context.arguments, context.service.registry
    changes = dict(_parse_pair(pair) for pair in arguments.pairs)
    for name in changes:
        if name not in WIKI_SETTINGS:
            raise build_unknown_error(name, "setting of a wiki", WIKI_SETTINGS)
    if len(changes) < len(arguments.pairs):
        raise InvalidSetting("A setting is specified twice.", hint="Specify each setting once.")
    wiki = context.service.configure(arguments.slug, changes) if changes else registry.get(arguments.slug)
    settings = get_public_settings(wiki)
    lines = format_columns(sorted(settings.items()))
    return context.print_result(build_wiki_document(wiki), lines or [f"{wiki.slug} has no settings of its own."])


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"{name!r} has no value.", hint="Write NAME=VALUE, or NAME= to unset it.")
    # Other users of this machine can see a secret on the command line.
    return name.strip(), sys.stdin.readline().strip() if value == "-" else value.strip()


def run_rebind(context: CommandContext) -> int:
    wiki = context.service.rebind(context.arguments.slug)
    source = to_safe_line(redact_url(wiki.source))
    lines = [
        f"The repository at {source} now belongs to {wiki.slug}. Its index, keys and backups are kept.",
        context.complete(f"Next: wikiholt sync {wiki.slug}"),
    ]
    return context.print_result(build_wiki_document(wiki), lines)


def run_remove(context: CommandContext) -> int:
    wiki = context.service.registry.get(context.arguments.slug)
    if not _confirm_removal(context, wiki):
        sys.stderr.write("Nothing was removed.\n")
        return CANCELLED_EXIT_CODE
    removed = context.service.remove(wiki.slug, wiki.id)
    keys = [key.id for key in removed.keys]
    and_keys = f" and {format_count(len(keys), 'key')}" if keys else ""
    lines = [
        f"Removed {wiki.slug}: {format_count(len(removed.files), 'file')} of its index{and_keys}.",
        *format_files(removed.files),
        *(f"  key {key_id}" for key_id in keys),
        "Its pages were deleted."
        if wiki.is_managed
        else f"The {_get_source_name(wiki)} {to_safe_line(redact_url(wiki.source))} was not touched.",
    ]
    return context.print_result(build_removed_document(removed), lines)


def _get_source_name(wiki: Wiki) -> str:
    return "folder" if wiki.is_directory else "repository"


def _confirm_removal(context: CommandContext, wiki: Wiki) -> bool:
    """Whether the options or the answer on the terminal allow the removal. Without a terminal it needs --yes, and the
    only copy of pages is deleted with --delete-pages alone."""
    arguments = context.arguments
    key_count = format_count(len(context.service.registry.keys.list(wiki.id)), "key")
    if not wiki.is_managed:
        kept = f"The {_get_source_name(wiki)} is not touched."
        question = f"Delete the index, the settings and {key_count} of {wiki.slug}? {kept}"
        if not arguments.yes and not can_ask():
            sys.stderr.write(f"error: Nobody can confirm the removal of {wiki.slug}: this is no terminal.\n")
            sys.stderr.write("hint: To remove it, write --yes.\n")
            return False
        return arguments.yes or confirm(question)
    if arguments.delete_pages:
        return True
    if arguments.yes or not can_ask():
        sys.stderr.write(f"error: This would delete the only copy of the pages of {wiki.slug}.\n")
        sys.stderr.write("hint: To delete them, write --delete-pages.\n")
        return False
    return confirm(f"Delete all pages, the index, the settings and {key_count} of {wiki.slug}? There is no other copy.")


def format_files(files: Iterable[str]) -> list[str]:
    """Each file, and each folder with the number of its files: a repository or a quarantined index has many."""
    counts = Counter("".join(file.partition("/")[:2]) for file in files)
    return [
        f"  {to_safe_line(name)}" + (f" ({format_count(count, 'file')})" if name.endswith("/") else "")
        for name, count in counts.items()
    ]
