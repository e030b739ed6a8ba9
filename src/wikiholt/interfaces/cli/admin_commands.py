"""`wikiholt doctor`, `verify-isolation`, `settings` and `model`: the installation."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from wikiholt.api.doctor import CheckResult, check_sign_in, fix_logins, run_checks
from wikiholt.api.isolation_check import check_isolation
from wikiholt.api.models import find_removable_model, get_models_directory, list_models, remove_model
from wikiholt.api.settings.definitions import SETTINGS
from wikiholt.errors import Conflict
from wikiholt.interfaces.cli.command import (
    PROBLEMS_FOUND_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_group,
    add_slug,
)
from wikiholt.interfaces.cli.output import format_columns, to_safe_line


def add_arguments(commands: Subparsers) -> None:
    doctor = add_command(commands, "doctor", run_doctor)
    doctor.add_argument(
        "--fix", action="store_true", help="set the password of each wiki whose login PostgreSQL refuses"
    )
    add_slug(add_command(commands, "verify-isolation", run_verify_isolation), optional=True)
    add_command(commands, "settings", run_settings)
    actions = add_group(commands, "model", "action")
    text = "download an embedding model with an ONNX graph, verify and test it"
    fetch = add_command(actions, "fetch", run_model_fetch, text=text)
    fetch.add_argument("model", metavar="hf:ORG/NAME[@REVISION]", help="a repository of the Hugging Face hub")
    fetch.add_argument("--pooling", choices=("mean", "cls"), default="", help="if the repository does not say it")
    fetch.add_argument("--query-prefix", metavar="TEXT", help="text before queries, if the repository has no prompts")
    fetch.add_argument("--passage-prefix", metavar="TEXT", help="text before passages")
    fetch.add_argument("--graph", default="", metavar="FILE", help="the ONNX file (default: onnx/model.onnx)")
    add_command(actions, "list", run_model_list, text="list built-in, fetched and remote models")
    text = "delete a fetched model, or the stored vectors of a remote one"
    remove = add_command(actions, "remove", run_model_remove, text=text)
    remove.add_argument("model", metavar="MODEL", help="a name that `model list` shows")
    remove.add_argument("--force", action="store_true", help="delete it even if it is in use")


def run_doctor(context: CommandContext) -> int:
    settings = context.settings
    results = list(fix_logins(context.service)) if context.arguments.fix else []
    results += run_checks(context.service, settings.data, settings.backup_interval)
    results += check_sign_in(context.service, settings)
    return _print_results(context, results)


def run_verify_isolation(context: CommandContext) -> int:
    if context.arguments.slug:
        context.service.registry.get(context.arguments.slug)  # an unknown wiki is an error of the caller, not a leak
    return _print_results(
        context, [result for slug in context.get_slugs() for result in check_isolation(context.service, slug)]
    )


def _print_results(context: CommandContext, results: Sequence[CheckResult]) -> int:
    style, lines = context.style, []
    results = [
        replace(result, detail=context.complete_quoted([result.detail])[0], advice=context.complete(result.advice))
        for result in results
    ]
    for result in results:
        mark = style.format_success("✓") if result.ok else style.format_error("✗")
        lines.append(f"{mark} {result.subject}: {to_safe_line(result.detail)}")
        if result.advice:
            lines.append(f"    hint: {to_safe_line(result.advice)}")
    ok = all(result.ok for result in results)
    context.print_result({"ok": ok, "findings": [asdict(result) for result in results]}, lines)
    return 0 if ok else PROBLEMS_FOUND_EXIT_CODE


def run_settings(context: CommandContext) -> int:
    values = {name: getattr(context.settings, setting.attribute) for name, setting in SETTINGS.items()}
    values |= {name: "(set)" for name, setting in SETTINGS.items() if setting.secret and values[name]}
    document = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    rows = [(name, json.dumps(value) if isinstance(value, bool) else str(value)) for name, value in document.items()]
    return context.print_result(document, format_columns(rows))


# Embedding models.


_MIB = 1024**2


def run_model_fetch(context: CommandContext) -> int:
    from wikiholt.models.model_fetch import fetch_model
    from wikiholt.models.repository_config import FetchOptions

    arguments = context.arguments
    options = FetchOptions(arguments.pooling, arguments.query_prefix, arguments.passage_prefix, arguments.graph)
    model = fetch_model(arguments.model, get_models_directory(context.settings), options)
    card = model.card
    assert card is not None
    names = ("dimensions", "window", "pooling", "query_prefix", "passage_prefix", "licence")
    document = {"model": model.name, "directory": str(model.directory), **{name: getattr(card, name) for name in names}}
    lines = [
        f"Fetched {model.name} to {model.directory}",
        f"{card.dimensions} dimensions, {card.window} tokens, pooling {card.pooling}, licence {card.licence}",
        f"query prefix {card.query_prefix!r}, passage prefix {card.passage_prefix!r}; self-test passed",
        context.complete(f'Next: model = "{model.name}" in the settings, then wikiholt sync'),
    ]
    return context.print_result(document, lines)


def run_model_list(context: CommandContext) -> int:
    models = list_models(context.settings, context.service)
    documents = [
        {
            "name": model.name,
            "kind": model.kind,
            "reranker": model.is_reranker,
            "dimensions": model.dimensions,
            "bytes": model.size_bytes,
            "used_by": list(model.used_by),
            "problem": model.problem,
        }
        for model in models
    ]
    rows = [
        (
            model.name,
            model.kind,
            str(model.dimensions or ""),
            f"{model.size_bytes / _MIB:.0f} MiB" if model.size_bytes else "",
            ", ".join(filter(None, ("reranker" if model.is_reranker else "", model.problem, *model.used_by))),
        )
        for model in models
    ]
    return context.print_result({"models": documents}, format_columns(rows))


def run_model_remove(context: CommandContext) -> int:
    name, force = context.arguments.model, context.arguments.force
    model = find_removable_model(context.settings, context.service, name)
    if model.used_by and not force:
        raise Conflict(
            f"{model.name} is in use: {', '.join(model.used_by)}",
            hint="choose another model and sync first, or repeat with --force: the next sync then builds indexes again",
        )
    remove_model(model)
    return context.print_result({"removed": model.name}, [f"Removed {model.name}."])
