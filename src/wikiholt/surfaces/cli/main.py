"""The command line: `wikiholt COMMAND`. Data goes to stdout, errors to stderr with a hint, codes say which kind."""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wikiholt.errors import InvalidSetting, WikiholtError
from wikiholt.service import Service
from wikiholt.settings import Settings, load
from wikiholt.surfaces.cli import commands, parser
from wikiholt.wiring import build

_INTERRUPTED = 130
_ON_SERVICE = {
    "add": commands.add,
    "sync": commands.sync,
    "search": commands.search,
    "status": commands.status,
    "list": commands.list_wikis,
    "remove": commands.remove,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parsed = parser.parse(arguments)
    try:
        settings = load(parsed.data, parsed.config, os.environ, _overrides(parsed.set))
        logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
        return _run(parsed, settings)
    except WikiholtError as error:
        commands.complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was committed is kept, and the next sync goes on from there\n")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(parsed: Namespace, settings: Settings) -> int:
    if parsed.command == "settings":
        return commands.show_settings(parsed, settings)
    if parsed.command == "demo":
        return commands.demo(parsed, lambda data: _service(settings, data))
    service = build(settings)
    try:
        if parsed.command == "doctor":
            return commands.doctor(service, parsed, settings)
        return _ON_SERVICE[parsed.command](service, parsed)
    finally:
        service.close()


def _overrides(pairs: Sequence[str]) -> dict[str, object]:
    """The settings given with --set."""
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {pair!r} has no value", hint="write --set NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def _service(settings: Settings, data: Path) -> Service:
    return build(replace(settings, data=data))


if __name__ == "__main__":
    sys.exit(main())
