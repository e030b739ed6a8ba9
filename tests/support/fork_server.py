"""Starts Python programs as forks of a process that has imported their libraries, which takes seconds otherwise.

The process has also loaded the default model, if its libraries are those of Wikiholt.

The program is a process like any other: it has its own arguments, environment, directory, streams, signals and exit
code, and it is a child of the tests. A program whose start itself is tested needs a new interpreter instead.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT, SOURCES

WIKIHOLT_MODULES = (
    "mcp.server.lowlevel",
    "onnxruntime",
    "tokenizers",
    "uvicorn.protocols.http.httptools_impl",
    "wikiholt.interfaces.cli.serve_command",
    "wikiholt.interfaces.http.app",
)
# gunicorn is not among them: it reads the current directory when it is imported.
OTTERWIKI_MODULES = (
    "PIL.Image",
    "a2wsgi",
    "bs4",
    "feedgen.feed",
    "flask.cli",
    "flask_login",
    "flask_mail",
    "flask_sqlalchemy",
    "flask_wtf.csrf",
    "git",
    "mistune",
    "mistune.plugins.table",
    "onnxruntime",
    "pygments.formatters",
    "pygments.lexers",
    "regex",
    "sqlalchemy.dialects.sqlite",
    "tokenizers",
    "unidiff",
    "werkzeug.middleware.proxy_fix",
    "werkzeug.serving",
    "wikiholt.interfaces.http.app",
    "wikiholt.interfaces.otterwiki.plugin_runtime",
)
CHROMA_MODULES = ("chromadb", "chromadb.config")
_PR_SET_CHILD_SUBREAPER = 36
_START_VARIABLES = ("LANG", "LC_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON")
"""Beginnings of the names of variables that matter when an interpreter starts, and so must not differ."""
_OWN_ENVIRONMENT = dict(os.environ)
"""The environment at the start, which tests do not change."""
_OPTIONS = ("-m", "-c", "-P")
"""The first option of a command that can be forked. After `-P` comes `-m`."""
_FIRST_FREE_FILE = 500
_MAX_MESSAGE_BYTES = 1 << 20
_MAX_FILES = 16


_Popen = subprocess.Popen  # tests may replace it
_SIGNATURE = inspect.signature(_Popen._execute_child)  # type: ignore[attr-defined]


class ForkedPopen(subprocess.Popen[Any]):
    """A `Popen` that starts `[sys.executable, "-m" or "-c", …]` in a fork server, and any other command as usual.

    With `forks_children`, the program starts such commands as forks too.
    """

    _child_server: "_Server | None" = None
    """The server of a program that forks its children, in the process of that program."""

    def __init__(
        self,
        command: list[str],
        *,
        modules: tuple[str, ...] = WIKIHOLT_MODULES,
        forks_children: bool = False,
        **options: Any,
    ) -> None:
        self._modules = modules
        self._forks_children = forks_children
        super().__init__(command, **options)

    def _execute_child(self, *positional: Any) -> None:  # type: ignore[override]
        given = _SIGNATURE.bind(self, *positional).arguments
        environment = dict(os.environ if given["env"] is None else given["env"])
        command = given["args"]
        is_program = isinstance(command, list | tuple) and command[0] == sys.executable and command[1] in _OPTIONS
        if sys.platform != "linux" or not is_program or not _starts_alike(environment):
            super()._execute_child(*positional)  # type: ignore[misc]
            return
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        request = {
            "command": list(map(os.fspath, command)),
            "environment": environment,
            "directory": os.fspath(given["cwd"] or Path.cwd()),
            "files": [0, 1, 2, *given["pass_fds"]],
            "new_session": given["start_new_session"],
            "forks_children": self._forks_children,
        }
        files = [number if number != -1 else at for at, number in enumerate(streams)]
        server = self._child_server or _get_server(self._modules)
        self.pid = server.fork(request, [*files, *given["pass_fds"]])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


def run_forked(command: list[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` of a Python program, with captured output, in a fork server."""
    check, timeout, text = options.pop("check"), options.pop("timeout", None), options.pop("input", None)
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    with ForkedPopen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _starts_alike(environment: dict[str, str]) -> bool:
    """Whether an interpreter starts with this environment as the fork server did, and finds the same modules."""

    def select(variables: dict[str, str]) -> dict[str, str]:
        return {k: v for k, v in variables.items() if k.startswith(_START_VARIABLES) and k != "PYTHONPATH"}

    known = {str(SOURCES), str(ROOT), *_list_paths(_OWN_ENVIRONMENT)}
    return set(_list_paths(environment)) <= known and select(environment) == select(_OWN_ENVIRONMENT)


def _list_paths(environment: dict[str, str]) -> list[str]:
    return [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]


class _Server:
    """The connection to a process that forks."""

    def __init__(self, connection: socket.socket) -> None:
        self._lock = threading.Lock()
        self._connection = connection

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """Fork a child of this process with these open files and return its process id."""
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], files)
                answer = self._connection.recv(100)
            finally:
                _adopt_orphans(False)
        assert answer, "the fork server has ended"
        return int(answer)


@cache
def _get_server(modules: tuple[str, ...]) -> _Server:
    """The server that has imported these modules."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), *modules]
        process = _Popen(command, cwd=ROOT, env=_OWN_ENVIRONMENT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return _Server(ours)


def _adopt_orphans(adopt: bool) -> None:
    """Make processes whose parent ends children of this process."""
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0


# The server process


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a child for every request. Returns only in children, with the request and its files."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MAX_MESSAGE_BYTES, _MAX_FILES)
        if not message:
            os._exit(0)
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            child = os.fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            while os.getppid() == middle:  # until the tests are the parent
                time.sleep(0.001)
            connection.close()
            os.close(reader)
            os.close(writer)
            return json.loads(message), files
        os.waitpid(middle, 0)
        connection.send(os.read(reader, 100))
        for number in (reader, writer, *files):
            os.close(number)


def _fork_child_server(request: dict[str, Any], files: list[int]) -> tuple[dict[str, Any], list[int]]:
    """Give this process a server for its children. Returns in this process, and in every child with its own request."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for number in files:
            os.close(number)
        return _serve(theirs)
    theirs.close()
    with ours:  # the program may use the number
        number = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FILE)
    ForkedPopen._child_server = _Server(socket.socket(fileno=number))
    subprocess.Popen = ForkedPopen  # type: ignore[misc]
    return request, files


def _prepare(request: dict[str, Any], files: list[int]) -> list[str]:
    """Give this process what the request says. Returns the program and its arguments."""
    if request["new_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _move_files(files, request["files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    _open_streams()
    time.tzset()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    command: list[str] = request["command"][1:]
    # `python -m` adds its directory to the path, as the server itself has done, but not with `-P`.
    first = {"-m": [str(Path.cwd())], "-c": [""], "-P": []}[command[0]]
    sys.path[: 1 + len(_list_paths(_OWN_ENVIRONMENT))] = [*first, *_list_paths(dict(os.environ))]
    command = command[command[0] == "-P" :]
    sys.argv = [command[0], *command[2:]]
    return command


def _move_files(files: list[int], numbers: list[int]) -> None:
    """Give open files these numbers."""
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, _FIRST_FREE_FILE) for number in files]
    for number in files:
        os.close(number)
    for source, target in zip(moved, numbers, strict=True):
        os.dup2(source, target)
        os.close(source)


def _open_streams() -> None:
    """Open the standard streams as the interpreter does when it starts."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffering = 0 if number and old.write_through else -1  # PYTHONUNBUFFERED
        raw = open(number, "rb" if number == 0 else "wb", buffering, closefd=False)  # noqa: SIM115
        lines = number == 2 or raw.isatty()
        stream = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=lines, write_through=old.write_through)
        stream.mode = "r" if number == 0 else "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _load_default_model() -> None:
    """Load the default model, so that every fork has it. A session has no threads, which a fork would lose."""
    from wikiholt.api.settings.definitions import Settings
    from wikiholt.models import DEFAULT_MODEL, model_loader

    load_model = model_loader.load_model
    default = (DEFAULT_MODEL, None), {"device": Settings().device}
    loaded = load_model(*default[0], **default[1])
    model_loader.load_model = lambda *values, **options: (
        loaded if (values, options) == default else load_model(*values, **options)
    )


def _run_program(command: list[str]) -> None:
    kind, program = command[:2]
    if kind == "-m":
        runpy._run_module_as_main(program)  # type: ignore[attr-defined]
    else:
        exec(compile(program, "<string>", "exec"), sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests end it
    gc.disable()  # an import leaves little garbage
    for name in sys.argv[2:]:
        importlib.import_module(name)
    if "onnxruntime" in sys.argv:
        _load_default_model()
    gc.collect()
    gc.freeze()
    # As in the process of the tests: collections as often as by default take an eighth of the CPU time of a service.
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    request, files = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request["forks_children"]:
        request, files = _fork_child_server(request, files)
    _run_program(_prepare(request, files))
