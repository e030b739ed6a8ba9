"""The command line: `wikiholt COMMAND`. Data goes to stdout, errors to stderr with a hint, codes say which kind."""

import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wikiholt.app.bootstrap import build_service
from wikiholt.app.settings.definitions import Settings
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting, WikiholtError
from wikiholt.interfaces.cli import backup_commands, database_commands, key_commands, output, parser, wiki_commands
from wikiholt.wikis.service import WikiService

UNEXPECTED_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130
_SERVICE_COMMANDS = {
    "add": wiki_commands.run_add,
    "set": key_commands.run_set,
    "key": key_commands.run_key,
    "sync": wiki_commands.run_sync,
    "reindex": wiki_commands.run_reindex,
    "search": wiki_commands.run_search,
    "status": wiki_commands.run_status,
    "list": wiki_commands.run_list,
    "rebind": wiki_commands.run_rebind,
    "remove": wiki_commands.run_remove,
    "backup": backup_commands.run_backup,
    "restore": backup_commands.run_restore,
    "database": database_commands.run_database,
    "upgrade": database_commands.run_upgrade,
}
_SETTINGS_COMMANDS = {"doctor": wiki_commands.run_doctor, "move": database_commands.run_move}
_REGISTRY_COMMANDS = ("add", "set", "key", "rebind", "remove", "restore")
_REGISTRY_BACKUP_INTERVAL_S = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    output.configure_streams(sys.stdout, sys.stderr)
    parsed = parser.parse_arguments(arguments)
    try:
        settings = _load_settings(parsed, {})
        _configure_logging(settings.log_level.upper())
        return _run_command(parsed, settings)
    except WikiholtError as error:
        wiki_commands.print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was committed is kept, and the next sync goes on from there\n")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - a fault of ours must never look like an answer
        _print_crash(error)
        return UNEXPECTED_EXIT_CODE


def _load_settings(parsed: Namespace, overrides: Mapping[str, str]) -> Settings:
    """The settings of this command, and more that are stronger; another data directory has its own file of them."""
    data = Path(overrides["data"]) if "data" in overrides else parsed.data
    return load_settings(
        data,
        parsed.config,
        os.environ,
        _parse_overrides(parsed) | {name: overrides[name] for name in overrides if name != "data"},
    )


def _run_command(parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "settings":
        return wiki_commands.run_settings(parsed, settings)
    if parsed.command == "demo":
        return wiki_commands.run_demo_command(parsed, lambda data: _build_service(settings, data))
    if parsed.command in ("serve", "mcp"):
        return _run_server(parsed, settings)
    service = build_service(settings)
    try:
        if parsed.command in _SETTINGS_COMMANDS:
            return _SETTINGS_COMMANDS[parsed.command](service, parsed, settings)
        if parsed.command in ("import", "eval", "report"):
            return _run_lazy(service, parsed, settings)
        code = _SERVICE_COMMANDS[parsed.command](service, parsed)
        if parsed.command in _REGISTRY_COMMANDS:
            backup_commands.backup_registry_if_due(service, _REGISTRY_BACKUP_INTERVAL_S)
        return code
    finally:
        service.close()


def _run_lazy(service: WikiService, parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "report":
        from wikiholt.interfaces.cli.report_command import run_report  # noqa: PLC0415 - no other command reports

        return run_report(service, parsed)
    if parsed.command == "import":
        from wikiholt.interfaces.cli.import_command import run_import  # noqa: PLC0415 - no other command needs its readers

        return run_import(service, parsed, settings)
    from wikiholt.interfaces.cli.evaluation_command import run_eval  # noqa: PLC0415 - no other command measures

    return run_eval(service, parsed, lambda more: build_service(_load_settings(parsed, more)))


def _run_server(parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "mcp":
        from wikiholt.interfaces.cli.mcp_command import run_mcp  # noqa: PLC0415 - no other command needs the protocol

        return run_mcp(parsed, settings)
    from wikiholt.interfaces.cli.serve_command import run_serve  # noqa: PLC0415 - no other command needs a web server

    return run_serve(parsed, settings)


class _SafeFormatter(logging.Formatter):
    """Log lines may quote pages and git: what they quote must not look like a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return output.to_safe_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return output.to_safe_text(super().format(record)).replace("\n", "\n  ")


def _configure_logging(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _print_crash(error: Exception) -> None:
    """Say that Wikiholt has a fault; where in the code, only to those who asked for details."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        sys.stderr.write(output.to_safe_text("".join(traceback.format_exception(error))))
    about = output.to_safe_line(f"{type(error).__name__}: {error}")[:300]
    sys.stderr.write(f"error: Wikiholt has a fault: {about}\n")
    sys.stderr.write("hint: please report it, with what `--set log.level=debug` before the command adds to this\n")


def _parse_overrides(parsed: Namespace) -> dict[str, object]:
    """The settings given with --set, and those that have an option of their own."""
    values: dict[str, object] = {}
    for pair in parsed.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {pair!r} has no value", hint="write --set NAME=VALUE")
        values[name.strip()] = value.strip()
    if parsed.command == "serve":
        given = {"serve.host": parsed.host, "serve.port": parsed.port}
        values |= {name: value for name, value in given.items() if value is not None}
    return values


def _build_service(settings: Settings, data: Path) -> WikiService:
    return build_service(replace(settings, data=data, store=""))


if __name__ == "__main__":
    sys.exit(main())
