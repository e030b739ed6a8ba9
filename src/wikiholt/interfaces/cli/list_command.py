"""`wikiholt list`: which wikis there are. Needs the registry alone, so it starts without the service."""

from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.output import format_columns, to_safe_line


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "list", run_list, logs=False)
    parser.add_argument("--slugs", action="store_true", help="print only the names")


def run_list(context: CommandContext) -> int:
    wikis = context.list_wikis()
    if context.arguments.slugs:
        return context.print_result({"wikis": [wiki.slug for wiki in wikis]}, [wiki.slug for wiki in wikis])
    if context.arguments.json:
        from wikiholt.api.documents.admin_documents import build_wiki_document

        return context.print_result({"wikis": [build_wiki_document(wiki) for wiki in wikis]}, [])
    no_wikis = [
        f"No wikis yet in {to_safe_line(context.describe_place())}.",
        context.complete("Next: `wikiholt search WORDS` in a folder with pages, or `wikiholt add PATH`"),
    ]
    return context.print_result(
        {}, format_columns([(wiki.slug, _redact_source(wiki.source)) for wiki in wikis]) or no_wikis
    )


def _redact_source(source: str) -> str:
    """The source without a password or token."""
    if "://" not in source:
        return source
    from wikiholt.git.remote_url import redact_url

    return redact_url(source)
