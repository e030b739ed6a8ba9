"""The command line: `wikiholt COMMAND`. Data goes to stdout, errors to stderr with a hint, codes say which kind."""

import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wikiholt.errors import InvalidSetting, WikiholtError
from wikiholt.service import Service
from wikiholt.settings import Settings, load
from wikiholt.surfaces.cli import backups, commands, databases, keys, moves, output, parser
from wikiholt.wiring import build

UNEXPECTED = 70
INTERRUPTED = 130
_ON_SERVICE = {
    "add": commands.add,
    "set": keys.configure,
    "key": keys.key,
    "sync": commands.sync,
    "reindex": commands.reindex,
    "search": commands.search,
    "status": commands.status,
    "list": commands.list_wikis,
    "rebind": commands.rebind,
    "remove": commands.remove,
    "backup": backups.backup,
    "restore": backups.restore,
    "database": databases.database,
    "upgrade": databases.upgrade,
}
_ON_SETTINGS = {"doctor": commands.doctor, "move": moves.move}
_CHANGING_THE_REGISTRY = ("add", "set", "key", "rebind", "remove", "restore")
_OFTEN = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    output.bear_any_text(sys.stdout, sys.stderr)
    parsed = parser.parse(arguments)
    try:
        settings = _settings(parsed, {})
        _start_log(settings.log_level.upper())
        return _run(parsed, settings)
    except WikiholtError as error:
        commands.complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was committed is kept, and the next sync goes on from there\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - a fault of ours must never look like an answer
        _confess(error)
        return UNEXPECTED


def _settings(parsed: Namespace, more: Mapping[str, str]) -> Settings:
    """The settings of this command, and more that are stronger; another data directory has its own file of them."""
    data = Path(more["data"]) if "data" in more else parsed.data
    return load(
        data, parsed.config, os.environ, _overrides(parsed) | {name: more[name] for name in more if name != "data"}
    )


def _run(parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "settings":
        return commands.show_settings(parsed, settings)
    if parsed.command == "demo":
        return commands.demo(parsed, lambda data: _service(settings, data))
    if parsed.command in ("serve", "mcp"):
        return _serve(parsed, settings)
    service = build(settings)
    try:
        if parsed.command in _ON_SETTINGS:
            return _ON_SETTINGS[parsed.command](service, parsed, settings)
        if parsed.command in ("import", "eval", "report"):
            return _apart(service, parsed, settings)
        code = _ON_SERVICE[parsed.command](service, parsed)
        if parsed.command in _CHANGING_THE_REGISTRY:
            backups.follow_registry(service, _OFTEN)
        return code
    finally:
        service.close()


def _apart(service: Service, parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "report":
        from wikiholt.surfaces.cli.report import report  # noqa: PLC0415 - no other command reports

        return report(service, parsed)
    if parsed.command == "import":
        from wikiholt.surfaces.cli.imports import import_  # noqa: PLC0415 - no other command needs its readers

        return import_(service, parsed, settings)
    from wikiholt.surfaces.cli.evaluation import evaluate  # noqa: PLC0415 - no other command measures

    return evaluate(service, parsed, lambda more: build(_settings(parsed, more)))


def _serve(parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "mcp":
        from wikiholt.surfaces.cli.agents import serve_agent  # noqa: PLC0415 - no other command needs the protocol

        return serve_agent(parsed, settings)
    from wikiholt.surfaces.cli.serve import serve  # noqa: PLC0415 - no other command needs a web server

    return serve(parsed, settings)


class _SafeFormatter(logging.Formatter):
    """Log lines may quote pages and git: what they quote must not look like a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return output.line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return output.safe(super().format(record)).replace("\n", "\n  ")


def _start_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _confess(error: Exception) -> None:
    """Say that Wikiholt has a fault; where in the code, only to those who asked for details."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        sys.stderr.write(output.safe("".join(traceback.format_exception(error))))
    about = output.line(f"{type(error).__name__}: {error}")[:300]
    sys.stderr.write(f"error: Wikiholt has a fault: {about}\n")
    sys.stderr.write("hint: please report it, with what `--set log.level=debug` before the command adds to this\n")


def _overrides(parsed: Namespace) -> dict[str, object]:
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


def _service(settings: Settings, data: Path) -> Service:
    return build(replace(settings, data=data, store=""))


if __name__ == "__main__":
    sys.exit(main())
