"""One `wikiholt serve` of several over the same database."""

import http.client
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench.many_wikis.wiki_server import WikiServer, request_search
from bench.measures import wait_until


class Node(WikiServer):
    """A server that can be killed and started again."""

    def __init__(self, data: Path, roots: list[Path], log: Path) -> None:
        self._arguments = (data, roots, log)
        super().__init__(data, roots, log)

    @staticmethod
    def run_command(data: Path, *words: str) -> None:
        """Run a wikiholt command on the same data."""
        command = [str(Path(sys.executable).with_name("wikiholt")), "--data", str(data), *words]
        subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)

    def wait_for_wikis(self, slugs: Sequence[str], timeout: float = 600.0) -> None:
        """Wait until it answers for every wiki."""
        for slug in slugs:
            wait_until(lambda slug=slug: self.can_search(slug, "the"), timeout)

    def can_search(self, slug: str, word: str) -> bool:
        """Whether a search by this word is answered at all."""
        return self._search(slug, word) is not None

    def has_page(self, slug: str, word: str) -> bool:
        """Whether a page with this word is found."""
        return bool(self._search(slug, word))

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)

    def start_again(self) -> "Node":
        """Start a new process."""
        return Node(*self._arguments)

    def stop_if_running(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def _search(self, slug: str, word: str) -> list[object] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            status, document, _ = request_search(connection, slug, word, "keyword")
        return list(document["results"]) if status == 200 else None
