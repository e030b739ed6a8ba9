"""Injects a fault into a process, or into its database, at one of its statements."""

import os
import signal
from contextlib import suppress
from typing import Any

import psycopg

from tests.crash.child_process import ChildChannel
from tests.crash.fault_injection import FaultInjector, InjectedFault
from tests.crash.postgres.round_server import terminate_sessions

CRASH, SESSIONS = "crash", "sessions"
_EXECUTE, _COPY, _CONNECT = psycopg.Cursor.execute, psycopg.Cursor.copy, psycopg.connect


class StatementFaultInjector(FaultInjector):
    """Also counts statements, COPY and connects as steps. The fault may also be one of the server."""

    def __init__(
        self, channel: ChildChannel, fault: InjectedFault, window: tuple[type, str] | None, server: int, address: str
    ) -> None:
        self._server = server
        self._address = address
        super().__init__(channel, fault, window)
        psycopg.Cursor.execute = self._count_calls(_EXECUTE)  # type: ignore[method-assign]
        psycopg.Cursor.copy = self._count_calls(_COPY)  # type: ignore[method-assign]
        psycopg.connect = self._count_calls(_CONNECT)

    def _count_calls(self, original: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._count_step()
            return original(*arguments, **options)

        return counted

    def _inject(self) -> None:
        if self._fault.kind == CRASH:
            with suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGQUIT)
        elif self._fault.kind == SESSIONS:
            with suppress(psycopg.Error):
                terminate_sessions(self._address)
        else:
            super()._inject()
