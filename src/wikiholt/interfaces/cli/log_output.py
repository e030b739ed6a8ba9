"""Log lines and reports of internal errors on standard error."""

import logging
import sys
import time
from argparse import Namespace

from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import complete_commands


class SafeFormatter(logging.Formatter):
    """Log lines may quote pages and git output. Quoted text must not look like a log line."""

    arguments: Namespace | None = None
    """The arguments that select the installation, for commands that a line suggests."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = output.to_safe_line(super().formatMessage(record))
        return line if self.arguments is None else complete_commands(line, self.arguments)

    def format(self, record: logging.LogRecord) -> str:
        return output.to_safe_text(super().format(record)).replace("\n", "\n  ")


def configure_logging(level: str, arguments: Namespace | None = None, *, with_time: bool = False) -> None:
    """Write log lines from this level on to standard error. Commands in them get the options of these arguments."""
    handler = logging.StreamHandler()
    time_field = "%(asctime)s " if with_time else ""
    formatter = SafeFormatter(f"{time_field}%(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    formatter.arguments = arguments
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def print_crash(error: Exception) -> None:
    """Report an internal error. The traceback is shown only with log level debug."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        import traceback

        sys.stderr.write(output.to_safe_text("".join(traceback.format_exception(error))))
    summary = output.to_safe_line(f"{type(error).__name__}: {error}")[:300]
    sys.stderr.write(f"error: internal error: {summary}\n")
    sys.stderr.write("hint: please report it, with the output of `wikiholt --set log.level=debug COMMAND`\n")
