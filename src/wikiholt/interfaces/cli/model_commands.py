"""`wikiholt model`: fetches, lists and removes embedding models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wikiholt.errors import Conflict
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command, add_group

if TYPE_CHECKING:
    from wikiholt.app.models import KnownModel

_MIB = 1024**2


def add_arguments(commands: Subparsers) -> None:
    actions = add_group(commands, "model", "action")
    text = "download an embedding model with an ONNX graph, verify and test it"
    fetch = add_command(actions, "fetch", run_fetch, text=text)
    fetch.add_argument("model", metavar="hf:ORG/NAME[@REVISION]", help="a repository of the Hugging Face hub")
    fetch.add_argument("--pooling", choices=("mean", "cls"), default="", help="if the repository does not say it")
    fetch.add_argument("--query-prefix", metavar="TEXT", help="text before queries, if the repository has no prompts")
    fetch.add_argument("--passage-prefix", metavar="TEXT", help="text before passages")
    fetch.add_argument("--graph", default="", metavar="FILE", help="the ONNX file (default: onnx/model.onnx)")
    add_command(actions, "list", run_list, text="list built-in, fetched and remote models")
    text = "delete a fetched model, or the stored vectors of a remote one"
    remove = add_command(actions, "remove", run_remove, text=text)
    remove.add_argument("model", metavar="MODEL", help="a name that `model list` shows")
    remove.add_argument("--force", action="store_true", help="also if it is in use")


def run_fetch(context: CommandContext) -> int:
    from wikiholt.app.model_setup import get_models_directory
    from wikiholt.embedding.model_fetch import fetch_model
    from wikiholt.embedding.repository_config import FetchOptions

    arguments = context.arguments
    options = FetchOptions(arguments.pooling, arguments.query_prefix, arguments.passage_prefix, arguments.graph)
    model = fetch_model(arguments.model, get_models_directory(context.settings), options)
    card = model.card
    assert card is not None
    document = {
        "model": model.name,
        "directory": str(model.directory),
        "dimensions": card.dimensions,
        "window": card.window,
        "pooling": card.pooling,
        "query_prefix": card.query_prefix,
        "passage_prefix": card.passage_prefix,
        "licence": card.licence,
    }
    lines = [
        f"Fetched {model.name} to {model.directory}",
        f"{card.dimensions} dimensions, {card.window} tokens, pooling {card.pooling}, licence {card.licence}",
        f"query prefix {card.query_prefix!r}, passage prefix {card.passage_prefix!r}; self-test passed",
        f'Next: model = "{model.name}" in the settings, then wikiholt sync',
    ]
    return context.print_result(document, lines)


def run_list(context: CommandContext) -> int:
    from wikiholt.app.models import list_models

    models = list_models(context.settings, context.service)
    return context.print_result({"models": [_build_document(model) for model in models]}, _format_table(models))


def run_remove(context: CommandContext) -> int:
    from wikiholt.app.models import find_removable_model, remove_model

    name, force = context.arguments.model, context.arguments.force
    model = find_removable_model(context.settings, context.service, name)
    if model.used_by and not force:
        raise Conflict(
            f"{model.name} is in use: {', '.join(model.used_by)}",
            hint="choose another model and sync first, or repeat with --force: the next sync then builds indexes again",
        )
    remove_model(model)
    return context.print_result({"removed": model.name}, [f"Removed {model.name}."])


def _build_document(model: KnownModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "kind": model.kind,
        "reranker": model.is_reranker,
        "dimensions": model.dimensions,
        "bytes": model.size_bytes,
        "used_by": list(model.used_by),
        "problem": model.problem,
    }


def _format_table(models: list[KnownModel]) -> list[str]:
    width = max(len(model.name) for model in models)
    lines = []
    for model in models:
        size = f"{model.size_bytes / _MIB:.0f} MiB" if model.size_bytes else ""
        dimensions = str(model.dimensions) if model.dimensions else ""
        role = "reranker" if model.is_reranker else ""
        notes = [note for note in (role, model.problem, *model.used_by) if note]
        lines.append(f"{model.name:{width}}  {model.kind:8}  {dimensions:>5}  {size:>8}  {', '.join(notes)}".rstrip())
    return lines
