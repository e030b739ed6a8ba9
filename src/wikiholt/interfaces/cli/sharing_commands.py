"""`wikiholt index push` and `index pull`: share the vectors of an index through the wiki's own repository."""

import argparse
from contextlib import closing
from dataclasses import asdict
from typing import cast

from wikiholt.api.documents.admin_documents import build_sync_document
from wikiholt.api.shared_vectors import DEFAULT_SAMPLE, PushedIndex, pull_vectors, push_index
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.wiki import Wiki
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_group, add_quiet, add_slug
from wikiholt.interfaces.cli.selection import choose_default_wiki


def add_arguments(commands: Subparsers) -> None:
    actions = add_group(commands, "index", "action")
    push = add_command(actions, "push", run_push, text="push the vectors of a wiki's index to its own repository")
    pull = add_command(actions, "pull", run_pull, text="index a wiki with the vectors that somebody has pushed")
    for parser in (push, pull):
        add_slug(parser, optional=True)
        add_remote_option(parser)
    text = f"vectors to embed again before any is used (default: {DEFAULT_SAMPLE})"
    pull.add_argument("--sample", type=int, default=DEFAULT_SAMPLE, metavar="N", help=text)
    add_quiet(pull)


def add_remote_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--remote", default="origin", metavar="NAME", help="the remote (default: origin)")


def run_push(context: CommandContext) -> int:
    wiki, service = _choose_wiki(context), context.service
    handle, embedder = service.get_handle(wiki.slug), service.load_embedder()
    limit = context.settings.remote_max_bytes
    pushed = push_index(handle, service.get_config(wiki), embedder, context.arguments.remote, limit)
    place = f"{pushed.ref} of {context.arguments.remote}"
    lines = [f"{wiki.slug}: pushed {_describe(pushed)} to {place}"]
    return context.print_result({"wiki": wiki.slug, **asdict(pushed)}, lines)


def run_pull(context: CommandContext) -> int:
    """Sync the wiki; of its texts, only those that nobody has pushed are embedded."""
    wiki, service, arguments = _choose_wiki(context), context.service, context.arguments
    embedder, pulled = pull_vectors(
        wiki,
        service.get_config(wiki),
        service.load_embedder(),
        arguments.remote,
        max(1, arguments.sample),
        context.settings.remote_max_bytes,
    )
    with (
        closing(service.open_with_embedder(wiki.slug, cast(Embedder, embedder))) as handle,
        output.show_sync_progress(wiki.slug, visible=context.show_progress, keep=False) as progress,
    ):
        report = handle.sync(progress)
    lines = [
        f"{wiki.slug}: pulled {_describe(pulled)}; {pulled.sampled} of them, embedded again, are the same",
        f"  {embedder.reused} were used, {output.format_count(embedder.embedded, 'text')} embedded",
    ]
    document = {**asdict(pulled), **build_sync_document(wiki, report)}
    return context.print_result({**document, "reused": embedder.reused, "embedded": embedder.embedded}, lines)


def _choose_wiki(context: CommandContext) -> Wiki:
    if context.arguments.slug:
        return context.service.registry.get(context.arguments.slug)
    return choose_default_wiki(context, "Name one")


def _describe(index: PushedIndex) -> str:
    return f"the vectors of {output.format_count(index.texts, 'text')} ({output.format_size(index.bytes)})"
