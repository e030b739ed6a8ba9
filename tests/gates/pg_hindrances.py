"""What can happen to a process, or to the database under it, at one of its statements."""

import os
import signal
from contextlib import suppress
from typing import Any

import psycopg
from hindrances import Hindered, Hindrance
from pg_rounds import end_sessions
from processes import Line

CRASH, SESSIONS = "crash", "sessions"
_EXECUTE, _COPY, _CONNECT = psycopg.Cursor.execute, psycopg.Cursor.copy, psycopg.connect


class HinderedInDatabase(Hindered):
    """Counts statements, copies and log-ins as steps too; at the chosen one the server may be struck instead."""

    def __init__(
        self, line: Line, hindrance: Hindrance, window: tuple[type, str] | None, server: int, address: str
    ) -> None:
        self._server = server
        self._address = address
        super().__init__(line, hindrance, window)
        psycopg.Cursor.execute = self._counted(_EXECUTE)  # type: ignore[method-assign]
        psycopg.Cursor.copy = self._counted(_COPY)  # type: ignore[method-assign]
        psycopg.connect = self._counted(_CONNECT)

    def _counted(self, original: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._step()
            return original(*arguments, **options)

        return counted

    def _strike(self) -> None:
        if self._hindrance.kind == CRASH:
            with suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGQUIT)
        elif self._hindrance.kind == SESSIONS:
            with suppress(psycopg.Error):
                end_sessions(self._address)
        else:
            super()._strike()
