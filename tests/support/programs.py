"""Programs of other projects that tests start on loopback ports."""

import os
import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.wait import TIMEOUT_S, wait_until

_PORTS = range(15_000, 30_000)
"""Below the ports that Linux chooses for outgoing connections."""


def find_free_port() -> int:
    """A free port for a program that cannot choose one. No outgoing connection gets it before the program starts."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


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
