"""Database connection strings. The password is never shown."""

import re
from dataclasses import dataclass, field

import psycopg
from psycopg import conninfo

from wikiholt.errors import InvalidSetting

_DEFAULT_PARAMETERS = {
    "connect_timeout": "3",
    "keepalives_idle": "30",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "wikiholt",
    "target_session_attrs": "primary",
}
"""With these a host that disappears is noticed within seconds instead of hours, and a standby is never used."""
_PRIMARY_ATTRIBUTES = ("primary", "read-write")
_HOST_PARAMETERS = ("host", "hostaddr", "port")
_CREDENTIAL_PARAMETERS = {"user", "password", "passfile", "sslcert", "sslkey", "sslpassword"}
_LOCATION_PARAMETERS = ("host", "hostaddr", "port", "dbname")


def _quote_name(name: str) -> str:
    """Quote an SQL name if necessary."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The parameters of a connection string, by their libpq names."""

    parameters: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def parse(cls, dsn: str) -> "DatabaseAddress":
        """Parse a `postgresql://` URL or a libpq connection string. Raises InvalidSetting, which never quotes it."""
        try:
            parsed = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            raise InvalidSetting(
                "that is not the address of a PostgreSQL database", hint="write postgresql://user:secret@host/database"
            ) from None
        parameters = {name: str(value) for name, value in parsed.items() if value is not None}
        ports = parameters.get("port", "").replace(",", "")  # a host without one has the default port
        if (ports and not ports.isdigit()) or not parameters.get("dbname"):
            raise InvalidSetting(
                "the address has no database name, or its port is not a number",
                hint="write postgresql://user:secret@host/database",
            ) from None
        address = cls(tuple(sorted((_DEFAULT_PARAMETERS | parameters).items())))
        if dict(address.parameters)["target_session_attrs"] not in _PRIMARY_ATTRIBUTES:
            raise InvalidSetting(
                "the address allows a standby, which answers with an older state and takes no writes",
                hint="leave target_session_attrs out, or set it to read-write",
            )
        if len(set(map(len, address._list_hosts().values())) - {1}) > 1:
            raise InvalidSetting(
                "the address has more hosts than ports, or fewer",
                hint="write postgresql://user:secret@host1:5432,host2:5432/database",
            )
        return address

    @property
    def conninfo(self) -> str:
        return conninfo.make_conninfo(**dict(self.parameters))

    @property
    def hosts(self) -> list["DatabaseAddress"]:
        """The same address for each of its hosts."""
        lists = self._list_hosts()
        rest = {name: value for name, value in self.parameters if name not in lists}
        return [
            DatabaseAddress(
                tuple(sorted((rest | {name: each[number % len(each)] for name, each in lists.items()}).items()))
            )
            for number in range(max(map(len, lists.values()), default=1))
        ]

    def _list_hosts(self) -> dict[str, list[str]]:
        """The values for each host, by parameter; one value is for all hosts."""
        return {name: value.split(",") for name, value in self.parameters if name in _HOST_PARAMETERS}

    @property
    def location(self) -> str:
        """Server and database, without the login."""
        known = dict(self.parameters)
        return " ".join(f"{name}={known[name]}" for name in _LOCATION_PARAMETERS if name in known)

    @property
    def dbname(self) -> str:
        return dict(self.parameters)["dbname"]

    @property
    def redacted(self) -> str:
        """The address for display, without secrets."""
        return " ".join(f"{name}={value}" for name, value in self.parameters if name in (*_LOCATION_PARAMETERS, "user"))

    def format_setup_sql(self) -> list[str]:
        """The psql input that creates the role, the database and the extension. psql asks for the password."""
        user = dict(self.parameters).get("user", "wikiholt")
        role, database = _quote_name(user), _quote_name(self.dbname)
        return [
            "-- Run once with psql, as an administrator of the server.",
            f"CREATE ROLE {role} LOGIN CREATEROLE;",
            f"\\password {role}",
            f"CREATE DATABASE {database} OWNER {role} TEMPLATE template0 ENCODING 'UTF8';",
            f"\\connect {database}",
            "CREATE EXTENSION vector;",
            "-- pg_hba.conf, before other lines that match; wikis log in with passwords:",
            f"--   local  {database}  all             scram-sha-256",
            f"--   host   {database}  all  ADDRESS/32  scram-sha-256",
        ]

    def with_login(self, role: str, secret: str) -> "DatabaseAddress":
        """The same database with another login."""
        rest = {name: value for name, value in self.parameters if name not in _CREDENTIAL_PARAMETERS}
        return DatabaseAddress(tuple(sorted((rest | {"user": role, "password": secret}).items())))
