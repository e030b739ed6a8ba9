"""Where a database is and who logs in there; the secret in it is never shown."""

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
}
"""A host that is gone without a word is noticed within seconds, not within hours."""
_CREDENTIAL_PARAMETERS = {"user", "password", "passfile", "sslcert", "sslkey", "sslpassword"}
_LOCATION_PARAMETERS = ("host", "hostaddr", "port", "dbname")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The parts of a connection string, as libpq names them."""

    parts: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def parse(cls, dsn: str) -> "DatabaseAddress":
        """Read `postgresql://…` or libpq's own form; raises InvalidSetting, which never quotes it."""
        try:
            found = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            raise InvalidSetting(
                "that is not the address of a PostgreSQL database", hint="write postgresql://user:secret@host/database"
            ) from None
        given = {name: str(value) for name, value in found.items() if value is not None}
        if not given.get("port", "1").replace(",", "").isdigit() or not given.get("dbname"):
            raise InvalidSetting(
                "the address names no database, or no port that is a number",
                hint="write postgresql://user:secret@host/database",
            ) from None
        return cls(tuple(sorted((_DEFAULT_PARAMETERS | given).items())))

    @property
    def conninfo(self) -> str:
        return conninfo.make_conninfo(**dict(self.parts))

    @property
    def location(self) -> str:
        """Which database of which server this is, whoever logs in."""
        known = dict(self.parts)
        return " ".join(f"{name}={known[name]}" for name in _LOCATION_PARAMETERS if name in known)

    @property
    def dbname(self) -> str:
        return dict(self.parts)["dbname"]

    @property
    def redacted(self) -> str:
        """For the operator's eyes: all but the secrets."""
        return " ".join(f"{name}={value}" for name, value in self.parts if name in (*_LOCATION_PARAMETERS, "user"))

    def with_login(self, role: str, secret: str) -> "DatabaseAddress":
        """The same database, with another logging in."""
        rest = {name: value for name, value in self.parts if name not in _CREDENTIAL_PARAMETERS}
        return DatabaseAddress(tuple(sorted((rest | {"user": role, "password": secret}).items())))
