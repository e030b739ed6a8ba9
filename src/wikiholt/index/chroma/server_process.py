"""The process of Chroma's own server: `python -m wikiholt.index.chroma.server_process DIRECTORY LISTENER INSTANCE_ID`.

`LISTENER` is the number of a bound socket. A panic, a segmentation fault or an endless loop of Chroma affects only this
process. It ends when the process that started it has ended, which closes its standard input.
"""

import asyncio
import logging
import os
import socket
import sys
import threading
import time
import types
from typing import Any

from wikiholt.index.chroma.client import INSTANCE_HEADER

_FINISH_TIMEOUT_S = 10
"""How long an operation in progress may take when the server ends."""


def main(directory: str, listener: int, instance_id: str) -> None:
    """Serve until SIGTERM, or until standard input ends."""
    os.umask(0o077)
    # It is only for tracing, and needs a package that chromadb does not install.
    tracing: Any = types.ModuleType("chromadb.telemetry.opentelemetry.fastapi")
    tracing.instrument_fastapi = lambda _: None
    sys.modules[tracing.__name__] = tracing
    import numpy as np  # noqa: PLC0415
    import uvicorn  # noqa: PLC0415
    from chromadb.api.rust import RustBindingsAPI  # noqa: PLC0415
    from chromadb.config import Settings  # noqa: PLC0415
    from chromadb.server.fastapi import FastAPI  # noqa: PLC0415

    read_records = RustBindingsAPI._get

    def read_arrays(*arguments: Any, **options: Any) -> Any:
        """Chroma's server expects arrays where its engine returns lists."""
        found = read_records(*arguments, **options)
        if found["embeddings"] is not None:
            found["embeddings"] = list(np.asarray(found["embeddings"], np.float32))
        return found

    RustBindingsAPI._get = read_arrays  # type: ignore[method-assign]
    application: Any = FastAPI(
        Settings(is_persistent=True, persist_directory=directory, anonymized_telemetry=False, allow_reset=False)
    ).app()

    async def run(scope: Any, receive: Any, send: Any) -> None:
        try:
            await application(scope, receive, send)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:  # noqa: BLE001 - a Rust panic: the process is in an unknown state
            os._exit(70)

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True
        time.sleep(_FINISH_TIMEOUT_S + 2)
        os._exit(0)

    logging.disable()  # messages may contain text of pages
    headers = [(INSTANCE_HEADER, instance_id)]
    options: Any = {"log_config": None, "timeout_keep_alive": 3600, "timeout_graceful_shutdown": _FINISH_TIMEOUT_S}
    server = uvicorn.Server(uvicorn.Config(run, access_log=False, headers=headers, **options))
    threading.Thread(target=end_with_parent, daemon=True).start()
    server.run(sockets=[socket.socket(fileno=listener)])
    os._exit(0)  # without waiting for an operation that hangs


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
