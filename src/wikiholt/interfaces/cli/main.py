"""Runs a command: results go to stdout, errors with a hint to stderr, and the exit code names the kind of error."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wikiholt.interfaces.cli import parser
from wikiholt.interfaces.cli.parser import INTERRUPTED_EXIT_CODE

if TYPE_CHECKING:
    from wikiholt.api.settings.definitions import Settings

UNEXPECTED_EXIT_CODE = 70
DEFAULT_LOG_LEVEL = "warning"
_LONG_RUNNING_COMMANDS = ("serve", "mcp")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parsed = parser.parse_arguments(arguments)
    # Imported here, because help and version need none of it.
    from wikiholt.errors import WikiholtError
    from wikiholt.interfaces.cli import output
    from wikiholt.interfaces.cli.command import load_settings, print_error

    output.configure_streams(sys.stdout, sys.stderr)
    try:
        settings = load_settings(parsed, {})
        if parsed.logs or settings.log_level != DEFAULT_LOG_LEVEL:
            from wikiholt.interfaces.cli.log_output import configure_logging

            with_time = parsed.command in _LONG_RUNNING_COMMANDS
            configure_logging(settings.log_level.upper(), parsed, with_time=with_time)
        return _run_command(parsed, settings)
    except WikiholtError as error:
        print_error(error, parsed)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Pages indexed so far are kept; the same command continues.\n")
        if arguments is None:  # do not wait for the model's threads
            sys.stdout.flush()
            os._exit(INTERRUPTED_EXIT_CODE)
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of our output closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - an internal error must never look like a result
        from wikiholt.interfaces.cli.log_output import print_crash

        print_crash(error)
        return UNEXPECTED_EXIT_CODE


def _run_command(parsed: Namespace, settings: Settings) -> int:
    from wikiholt.errors import WikiNotFound
    from wikiholt.interfaces.cli.command import CommandContext

    context = CommandContext(parsed, settings)
    try:
        try:
            exit_code: int = parsed.run(context)
        except WikiNotFound as error:
            raise context.explain_missing_wiki(error) from error
        if parsed.changes_registry:
            from wikiholt.interfaces.cli.backup_commands import backup_registry_if_due

            backup_registry_if_due(context.service)
        return exit_code
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(main())
