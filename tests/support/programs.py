"""Programs of other projects that tests start on loopback ports."""

import atexit
import os
import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.wait import TIMEOUT_S, wait_until

_PORTS = range(20_000, 30_000)
"""Below the ports that systems give to connections and to servers without a port of their own."""
_RESERVATION_ADDRESS = "127.0.0.77"
_reservations = ExitStack()
"""Sockets that are open until this process ends."""
atexit.register(_reservations.close)


def find_free_port() -> int:
    """A port of the loopback interface that nothing uses. No other process of the tests gets it while this one runs."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        reservation = socket.socket()
        try:
            reservation.bind((_RESERVATION_ADDRESS, port))
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            reservation.close()
        else:
            _reservations.enter_context(reservation)
            return port
    raise AssertionError("no port is free")


@contextmanager
def run_program(command: Sequence[str], place: Path, ports: Sequence[int]) -> Iterator[None]:
    """Run a program until the end of the block, which begins when all ports accept connections."""
    log = place / "program.log"
    environment = os.environ | {"XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:

        def is_listening() -> bool:
            assert process.poll() is None, log.read_text()
            for port in ports:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=30).close()
                except OSError:
                    return False
            return True

        try:
            wait_until(is_listening)
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
