"""Runs a command: results go to stdout, errors with a hint to stderr, and the exit code names the kind of error."""

import logging
import os
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from wikiholt.app.bootstrap import build_service
from wikiholt.app.settings.definitions import Settings
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting, WikiholtError
from wikiholt.interfaces.cli import output, parser
from wikiholt.interfaces.cli.backup_commands import backup_registry_if_due
from wikiholt.interfaces.cli.command import CommandContext, print_error
from wikiholt.wikis.service import WikiService

UNEXPECTED_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130
_REGISTRY_BACKUP_INTERVAL_S = 300.0
_LONG_RUNNING_COMMANDS = ("serve", "mcp")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    output.configure_streams(sys.stdout, sys.stderr)
    parsed = parser.parse_arguments(arguments)
    try:
        settings = _load_settings(parsed, {})
        _configure_logging(settings.log_level.upper(), with_time=parsed.command in _LONG_RUNNING_COMMANDS)
        return _run_command(parsed, settings)
    except WikiholtError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; committed batches are kept, and the next sync continues from there\n")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of our output closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - an internal error must never look like a result
        _print_crash(error)
        return UNEXPECTED_EXIT_CODE


def _run_command(parsed: Namespace, settings: Settings) -> int:
    context = CommandContext(parsed, settings, _open_service, lambda overrides: _load_settings(parsed, overrides))
    try:
        exit_code: int = parsed.run(context)
        if parsed.changes_registry:
            backup_registry_if_due(context.service, _REGISTRY_BACKUP_INTERVAL_S)
        return exit_code
    finally:
        context.close()


def _open_service(settings: Settings) -> WikiService:
    return build_service(settings)


def _load_settings(parsed: Namespace, overrides: Mapping[str, str]) -> Settings:
    """Load the settings with further overrides. Another data directory has its own settings file."""
    data = Path(overrides["data"]) if "data" in overrides else parsed.data
    others = {name: value for name, value in overrides.items() if name != "data"}
    return load_settings(data, parsed.config, os.environ, _parse_overrides(parsed) | others)


def _parse_overrides(parsed: Namespace) -> dict[str, object]:
    """The settings from --set, and those with an option of their own."""
    values: dict[str, object] = {}
    for pair in parsed.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {pair!r} has no value", hint="write --set NAME=VALUE")
        values[name.strip()] = value.strip()
    if parsed.command == "serve":
        options = {"serve.host": parsed.host, "serve.port": parsed.port}
        values |= {name: value for name, value in options.items() if value is not None}
    return values


class _SafeFormatter(logging.Formatter):
    """Log lines may quote pages and git output. Quoted text must not look like a log line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return output.to_safe_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return output.to_safe_text(super().format(record)).replace("\n", "\n  ")


def _configure_logging(level: str, *, with_time: bool) -> None:
    handler = logging.StreamHandler()
    time_field = "%(asctime)s " if with_time else ""
    formatter = _SafeFormatter(f"{time_field}%(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def _print_crash(error: Exception) -> None:
    """Report an internal error. The traceback is shown only with log level debug."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        sys.stderr.write(output.to_safe_text("".join(traceback.format_exception(error))))
    summary = output.to_safe_line(f"{type(error).__name__}: {error}")[:300]
    sys.stderr.write(f"error: internal error: {summary}\n")
    sys.stderr.write("hint: please report it, with the output of `wikiholt --set log.level=debug COMMAND`\n")


if __name__ == "__main__":
    sys.exit(main())
