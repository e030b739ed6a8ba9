"""`wikiholt past`: the indexes of past commits, which `search --at` makes."""

import re

from wikiholt.api.documents.past_documents import build_view_document
from wikiholt.errors import RevisionNotFound
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_slug
from wikiholt.interfaces.cli.output import format_columns, format_count, format_size

_COMMIT = re.compile("[0-9a-f]{7,64}")


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "past", run_past)
    add_slug(parser, optional=True)
    parser.add_argument("--delete", metavar="COMMIT", help="delete the index of this commit, or of `all`")


def run_past(context: CommandContext) -> int:
    """List the indexes of past commits of one wiki or all, or delete them first."""
    documents, rows, delete = [], [], context.arguments.delete
    if delete not in (None, "all") and not _COMMIT.fullmatch(delete.lower()):
        raise RevisionNotFound(
            f"{delete!r} is no commit.", hint="Give at least 7 digits as the list shows them, or all."
        )
    for slug in context.get_slugs():
        past = context.service.get_handle(slug).past
        for view in past.list_views() if delete is not None else ():
            if delete == "all" or view.revision.startswith(delete.lower()):
                past.remove(view.revision)
        for view in past.list_views():
            document = build_view_document(view)
            documents.append({"wiki": slug, **document})
            state = format_count(document["pages"] or 0, "page") if view.is_complete else "not complete"
            rows.append((slug, view.revision[:10], state, format_size(view.bytes), f"{view.used_at:%Y-%m-%d %H:%M}"))
    lines = format_columns(rows) or ["No past commit has an index. `wikiholt search --at 2025-06-01 WORDS` makes one."]
    return context.print_result({"views": documents}, lines)
