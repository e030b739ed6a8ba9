"""Persons that an authenticating proxy or an OpenID provider has identified."""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from wikiholt.domain.git import Author

MAX_NAME_CHARS = 200
_EMAIL_PATTERN = re.compile(r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+")


class PersonOrigin(StrEnum):
    """Who identified a person."""

    PROXY = "proxy"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Person:
    """A person and their groups. `subject` is unique among the persons of the same origin."""

    origin: PersonOrigin
    subject: str
    name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Identifies the person in rate limits and commits, without their name."""
        digest = blake2b(f"{self.origin}\0{self.subject}".encode("utf-8", "replace"), digest_size=8)
        return f"person-{digest.hexdigest()}"

    @property
    def label(self) -> str:
        """The name to show."""
        return self.name or self.subject

    def to_author(self) -> Author:
        """The author of the person's commits."""
        return make_author(self.label, self.email, self.id, default_name="Person")


def make_author(name: str, email: str, fallback_id: str, *, default_name: str) -> Author:
    """The author of commits, from a name and an address that git may not accept."""
    clean_name = re.sub(r"[<>\x00-\x1f\x7f]", "", name).strip()[:MAX_NAME_CHARS]
    is_address = len(email) < 255 and _EMAIL_PATTERN.fullmatch(email)
    return Author(
        clean_name if any(map(str.isalnum, clean_name)) else default_name,
        email if is_address else f"{fallback_id}@wikiholt.invalid",
    )
