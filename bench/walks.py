"""How much of the code one edited page and one search pass: modules, functions, SQL statements, git processes.

    python -m bench.walks [--detail]

The wiki is a git repository with the 14 pages of a demo wiki, indexed in files with the default model. Both walks are
warm: the same was done twice before. The edited page is a commit that the scheduler's call, `WikiHandle.sync`, brings
into the index; the search is a hybrid search in this process, and then the same by a request with a key to the server
that `serve` runs. Counts are of this commit and need no quiet machine.
"""

import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

import wikiholt
from bench.corpus import run_git
from bench.report import make_head, make_parser
from wikiholt.api.bootstrap import Application, open_application
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.cli.http_server import Server, build_config
from wikiholt.search.request import SearchRequest

_PACKAGE = Path(wikiholt.__file__).parent
_PAGES = _PACKAGE / "interfaces/cli/demo_wikis/allotment"
_EDITED = "Growing/Composting.md"
_QUESTIONS = ("when do we water the beds", "who keeps the key of the tool shed", "what may go on the compost heap")


class Walk:
    """Counts what runs while `record` is active, in all threads that were started after `install`."""

    def __init__(self) -> None:
        self._is_active = False
        self.functions: Counter[tuple[str, str]] = Counter()
        """Calls by module and function."""
        self.statements: list[tuple[str, str]] = []
        """The module that ran each statement, and its text."""
        self.processes: list[tuple[str, ...]] = []

    def install(self) -> None:
        """Watch this thread and those that start later, and connections and processes that are opened later."""
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)
        connect, popen = sqlite3.connect, subprocess.Popen.__init__

        def connect_traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **options)
            connection.set_trace_callback(self._on_statement)
            return connection

        def start_traced(process: Any, command: Any, *arguments: Any, **options: Any) -> None:
            if self._is_active:
                self.processes.append(tuple(map(str, command)))
            popen(process, command, *arguments, **options)

        sqlite3.connect = connect_traced
        subprocess.Popen.__init__ = start_traced  # type: ignore[method-assign]

    @contextmanager
    def record(self) -> Iterator["Walk"]:
        """Count from zero until the end of the block."""
        self.functions, self.statements, self.processes = Counter(), [], []
        self._is_active = True
        try:
            yield self
        finally:
            self._is_active = False

    @property
    def modules(self) -> list[str]:
        return sorted({module for module, _ in self.functions})

    def _on_call(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_active and event == "call":
            module = _find_module(frame)
            if module is not None and frame.f_code.co_name != "<module>":
                self.functions[module, frame.f_code.co_qualname] += 1

    def _on_statement(self, statement: str) -> None:
        # SQLite reports each statement that begins to run: PRAGMAs, BEGIN and COMMIT too, and one for each row of an
        # executemany. The parts of a statement are not counted: triggers begin with "--", and FTS5 names its own tables
        # with the schema in quotes.
        if not self._is_active or statement.startswith("--") or "'main'." in statement or '"main".' in statement:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _find_module(frame) is None:
            frame = frame.f_back
        self.statements.append((_find_module(frame) or "" if frame is not None else "", " ".join(statement.split())))


def _find_module(frame: FrameType) -> str | None:
    """The path of a frame's module in the package, or None if it is not in the package."""
    file = Path(frame.f_code.co_filename)
    return str(file.relative_to(_PACKAGE)) if file.is_relative_to(_PACKAGE) else None


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--detail", action="store_true", help="also print modules, statements and git processes")
    arguments = parser.parse_args()
    walk = Walk()
    walk.install()
    with tempfile.TemporaryDirectory() as place:
        rows, details = [make_head("| walk | modules | functions | calls | SQL statements | git processes |")], []
        walks = (
            ("edited page", count_edit),
            ("search in process", count_search),
            ("search by HTTP", count_http_search),
        )
        for name, count in walks:
            with _open_wiki(Path(place) / name.replace(" ", "-")) as (application, repository):
                count(walk, application, repository)
            rows.append(
                f"| {name} | {len(walk.modules)} | {len(walk.functions)} | {walk.functions.total()} | "
                f"{len(walk.statements)} | {len(walk.processes)} |"
            )
            details += _describe(name, walk)
    print("\n".join(rows + (details if arguments.detail else [])))


@contextmanager
def _open_wiki(place: Path) -> Iterator[tuple[Application, Path]]:
    repository = place / "wiki"
    repository.mkdir(parents=True)
    run_git(repository, "init", "-q", "-b", "main")
    for page in _PAGES.rglob("*.md"):
        file = repository / page.relative_to(_PAGES)
        file.parent.mkdir(exist_ok=True)
        file.write_text(page.read_text())
    _commit(repository)
    application = open_application(load_settings(place / "data"))
    application.service.add("wiki", str(repository), {})
    application.service.get_handle("wiki").sync()
    yield application, repository
    application.service.close()


def _commit(repository: Path) -> None:
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-q", "-m", "Edit")


def count_edit(walk: Walk, application: Application, repository: Path) -> None:
    """Record the sync of one edited page."""
    handle = application.service.get_handle("wiki")
    for number in range(3):
        page = repository / _EDITED
        page.write_text(f"{page.read_text()}\nThe heap was turned {number + 2} times this year.\n")
        _commit(repository)
        run: Callable[[], object] = handle.sync
        if number < 2:
            run()
        else:
            with walk.record():
                run()


def count_search(walk: Walk, application: Application, _: Path) -> None:
    """Record one search; its words and its query were not searched before."""
    handle = application.service.get_handle("wiki")
    for question in _QUESTIONS[:2]:
        handle.search(SearchRequest(question, mode=SearchMode.HYBRID))
    with walk.record():
        hits = handle.search(SearchRequest(_QUESTIONS[2], mode=SearchMode.HYBRID)).hits
    if not hits:
        raise SystemExit("the search found nothing")


def count_http_search(walk: Walk, application: Application, _: Path) -> None:
    """Record the same search by a request of a client with a key."""
    registry = application.service.registry
    _, token = registry.keys.create(registry.get("wiki").id, Scope.READ, "walk")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = Server(build_config(application))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/search?q="
        try:
            with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
                for question in _QUESTIONS[:2]:
                    client.get(f"{address}{question}").raise_for_status()
                with walk.record():
                    hits = client.get(f"{address}{_QUESTIONS[2]}").json()["results"]
        finally:
            server.should_exit = True
            thread.join()
    if not hits:
        raise SystemExit("the search found nothing")


def _describe(name: str, walk: Walk) -> list[str]:
    calls: Counter[str] = Counter()
    for (module, _), count in walk.functions.items():
        calls[module] += count
    return [
        *("", f"{name}: modules, with calls"),
        *(f"  {calls[module]:6} {module}" for module in walk.modules),
        *("", f"{name}: statements by module, in order"),
        *(f"  {module}: {statement[:150]}" for module, statement in walk.statements),
        *("", f"{name}: git processes"),
        *(f"  {_shorten_command(process)}" for process in walk.processes),
    ]


def _shorten_command(command: tuple[str, ...]) -> str:
    """The command without its settings (`-c name=value`)."""
    words = [word for before, word in zip(("", *command), command, strict=False) if "-c" not in (before, word)]
    return " ".join(words)[:200]


if __name__ == "__main__":
    main()
