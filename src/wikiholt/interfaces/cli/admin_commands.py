"""`wikiholt doctor`, `wikiholt verify-isolation` and `wikiholt settings`."""

import json
from collections.abc import Sequence
from pathlib import Path

from wikiholt.app.doctor import CheckResult, check_sign_in, fix_logins, run_checks
from wikiholt.app.isolation_check import check_isolation
from wikiholt.app.settings.definitions import SETTINGS
from wikiholt.interfaces.cli.command import (
    PROBLEMS_FOUND_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_slug,
)
from wikiholt.interfaces.cli.output import to_safe_line


def add_arguments(commands: Subparsers) -> None:
    doctor = add_command(commands, "doctor", run_doctor)
    doctor.add_argument("--fix", action="store_true", help="repair what can be repaired: logins of wikis to PostgreSQL")
    add_slug(add_command(commands, "verify-isolation", run_verify_isolation), optional=True)
    add_command(commands, "settings", run_settings)


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
    for result in results:
        mark = style.format_success("✓") if result.well else style.format_error("✗")
        lines.append(f"{mark} {result.subject}: {to_safe_line(result.detail)}")
        if result.advice:
            lines.append(f"    hint: {to_safe_line(result.advice)}")
    well = all(result.well for result in results)
    names = ("subject", "well", "detail", "advice")
    findings = [{name: getattr(result, name) for name in names} for result in results]
    context.print_result({"well": well, "findings": findings}, lines)
    return 0 if well else PROBLEMS_FOUND_EXIT_CODE


def run_settings(context: CommandContext) -> int:
    values = {name: getattr(context.settings, setting.attribute) for name, setting in SETTINGS.items()}
    values |= {name: "(set)" for name, setting in SETTINGS.items() if setting.secret and values[name]}
    document = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    width = max(map(len, document))
    lines = [
        f"{name:{width}}  {json.dumps(value) if isinstance(value, bool) else value}" for name, value in document.items()
    ]
    return context.print_result(document, lines)
