"""A separate Chroma server, as `chroma run` starts it."""

import subprocess
import sys
from pathlib import Path
from typing import Self

import httpx

from tests.support.programs import find_free_port
from tests.support.wait import TIMEOUT_S, wait_until


class RunningChroma:
    """`chroma run` on its own port, until the block ends."""

    def __init__(self, place: Path) -> None:
        self.port = find_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(sys.executable).with_name("chroma")
        command = [str(program), "run", "--path", str(self.place), "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._is_up, "the server answers")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"it ended with {self.process.returncode}"
        try:
            return httpx.get(f"{self.url}/api/v2/heartbeat", timeout=TIMEOUT_S).status_code == 200
        except httpx.TransportError:
            return False
