"""Two PostgreSQL servers under Patroni and three etcd members, with the configuration of deploy/failover."""

import json
import os
import pwd
import secrets
import shutil
import signal
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from bench.failover.programs import Program, find_free_ports, kill_all, list_tree, send_signal
from bench.measures import wait_until
from tests.support.postgres_server import find_postgres_binaries

DEPLOY = Path(__file__).parents[2] / "deploy" / "failover"
_PRIORITY = -10
"""The databases and etcd come before nodes and clients: two cores must not cause failovers by themselves."""
_READY_S = 120.0
_SERVERS = ("db1", "db2")
_SETUP = (
    "CREATE ROLE wikiholt LOGIN CREATEROLE PASSWORD '{secret}'",
    "CREATE DATABASE wikiholt OWNER wikiholt TEMPLATE template0 ENCODING 'UTF8'",
)


class DatabaseServer:
    """One machine with Patroni and PostgreSQL. PostgreSQL is no child of Patroni, and outlives it."""

    def __init__(self, name: str, patroni: Program, place: Path, ports: tuple[int, int]) -> None:
        self.name, self.patroni, self.place = name, patroni, place
        self.port, self.api_port = ports

    @property
    def postgres_pids(self) -> list[int]:
        with suppress(OSError, ValueError, IndexError):
            return list_tree(int((self.place / "data" / "postmaster.pid").read_text().split()[0]))
        return []

    def kill(self, *, patroni: bool = True, postgres: bool = True) -> None:
        """Kill Patroni first: it must not react to the end of PostgreSQL."""
        pids = self.postgres_pids
        if patroni:
            self.patroni.kill()
        if postgres:
            kill_all(pids)

    def send(self, number: signal.Signals) -> None:
        """Freeze or continue the whole machine."""
        self.patroni.send(number)
        for pid in self.postgres_pids:
            send_signal(pid, number)

    def recover(self) -> None:
        """Continue it, and start Patroni if it was killed."""
        self.send(signal.SIGCONT)
        if not self.patroni.is_running:
            self.patroni.start()


class DatabaseCluster:
    """etcd, Patroni and PostgreSQL, with the database `wikiholt`."""

    def __init__(self, place: Path, programs: Mapping[str, Path]) -> None:
        self._place, self._programs = place, programs
        self._superuser, self._secret = secrets.token_hex(12), secrets.token_hex(12)
        self._replication = secrets.token_hex(12)
        self._bin = _copy_binaries(place)
        ports = find_free_ports(10)
        self._etcd_ports = list(zip(ports[0:3], ports[3:6], strict=True))
        self.members = [self._make_member(number) for number in range(3)]
        self.servers = [
            self._make_server(name, (ports[6 + number], ports[8 + number])) for number, name in enumerate(_SERVERS)
        ]

    @property
    def address(self) -> str:
        """The address of the database, as a node has it."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://wikiholt:{self._secret}@{hosts}/wikiholt?target_session_attrs=read-write"

    def get_superuser_address(self, database: str = "wikiholt") -> str:
        return self.address.replace(f"wikiholt:{self._secret}", f"postgres:{self._superuser}").replace(
            "/wikiholt?", f"/{database}?"
        )

    def start(self) -> None:
        for member in self.members:
            member.start()
        wait_until(lambda: self.find_etcd_leader() is not None, _READY_S)
        for server in self.servers:
            server.patroni.start()
        wait_until(self.is_synchronous, _READY_S)
        with psycopg.connect(self.get_superuser_address("postgres"), autocommit=True) as connection:
            for statement in _SETUP:
                connection.execute(statement.format(secret=self._secret))  # type: ignore[call-overload]
        with psycopg.connect(self.get_superuser_address(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")

    def stop(self) -> None:
        for server in self.servers:
            server.send(signal.SIGCONT)
            server.patroni.stop()
            kill_all(server.postgres_pids)
        for member in self.members:
            member.stop()

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    def find_primary(self) -> DatabaseServer | None:
        return next((server for server in self.servers if _is_role(server, "primary")), None)

    def find_standby(self) -> DatabaseServer | None:
        return next((server for server in self.servers if _is_role(server, "replica")), None)

    def is_synchronous(self) -> bool:
        """Whether there is a primary with a synchronous standby."""
        return any(_is_role(server, "synchronous") for server in self.servers) and self.find_primary() is not None

    def read_timeline(self) -> int:
        """The number of the timeline: each promotion begins a new one."""
        for server in self.servers:
            with suppress(OSError, ValueError):
                status = _request(server, "patroni")
                if status.get("role") in ("primary", "master"):
                    return int(status["timeline"])
        return 0

    def find_etcd_leader(self) -> int | None:
        """The number of the member that leads etcd."""
        for number in range(len(self.members)):
            status = self._read_member(number)
            if status is not None and status["leader"] == status["header"]["member_id"]:
                return number
        return None

    def read_etcd_term(self) -> int:
        """The number of elections of etcd so far."""
        states = [self._read_member(number) for number in range(len(self.members))]
        return max(int(state["raftTerm"]) if state else 0 for state in states)

    def _read_member(self, number: int) -> dict[str, Any] | None:
        url = f"http://127.0.0.1:{self._etcd_ports[number][0]}/v3/maintenance/status"
        with suppress(OSError, ValueError):
            with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=2) as response:
                status: dict[str, Any] = json.load(response)
            return status if "leader" in status else None
        return None

    # ── processes ────────────────────────────────────────────────────────────────────────────────

    def _make_member(self, number: int) -> Program:
        client, peer = self._etcd_ports[number]
        peers = ",".join(f"etcd{each}=http://127.0.0.1:{port}" for each, (_, port) in enumerate(self._etcd_ports))
        urls = {
            "listen-client": client,
            "advertise-client": client,
            "listen-peer": peer,
            "initial-advertise-peer": peer,
        }
        options = [f"--{name}-urls=http://127.0.0.1:{port}" for name, port in urls.items()]
        command = [self._programs["etcd"], f"--name=etcd{number}", f"--data-dir={self._place / f'etcd{number}'}"]
        command += [*options, f"--initial-cluster={peers}", "--heartbeat-interval=250", "--election-timeout=2500"]
        return Program(f"etcd{number}", command, self._place / f"etcd{number}.log", priority=_PRIORITY)

    def _make_server(self, name: str, ports: tuple[int, int]) -> DatabaseServer:
        place = self._place / name
        place.mkdir()
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(place, nobody.pw_uid, nobody.pw_gid)
        settings = shutil.copy(DEPLOY / "patroni.yml", self._place / "patroni.yml")
        environment = {
            "PATRONI_NAME": name,
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{ports[1]}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{ports[1]}",
            "PATRONI_ETCD3_HOSTS": ",".join(f"127.0.0.1:{client}" for client, _ in self._etcd_ports),
            "PATRONI_POSTGRESQL_LISTEN": f"127.0.0.1:{ports[0]}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"127.0.0.1:{ports[0]}",
            "PATRONI_POSTGRESQL_DATA_DIR": str(place / "data"),
            "PATRONI_POSTGRESQL_BIN_DIR": str(self._bin),
            "PATRONI_POSTGRESQL_PGPASS": str(place / "pgpass"),
            "PATRONI_SUPERUSER_USERNAME": "postgres",
            "PATRONI_SUPERUSER_PASSWORD": self._superuser,
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": self._replication,
            "HOME": str(place),
        }
        log = self._place / f"{name}.log"
        command = [self._programs["patroni"], settings]
        patroni = Program(name, command, log, environment, priority=_PRIORITY, is_unprivileged=True)
        return DatabaseServer(name, patroni, place, ports)


def _copy_binaries(place: Path) -> Path:
    """PostgreSQL where the user that it runs as can read it."""
    return find_postgres_binaries(place, copy=os.getuid() == 0)


def _is_role(server: DatabaseServer, role: str) -> bool:
    with suppress(OSError, ValueError):
        _request(server, role)
        return True
    return False


def _request(server: DatabaseServer, path: str) -> dict[str, Any]:
    """An answer of Patroni. Raises OSError, also if the answer is no."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.api_port}/{path}", timeout=2) as response:
        document: dict[str, Any] = json.load(response)
    return document
